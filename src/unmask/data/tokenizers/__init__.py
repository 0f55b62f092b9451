"""Tokenizers: subwords, characters, bytes, DNA, Hugging Face."""

from unmask.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer, Text8Tokenizer
from unmask.data.tokenizers.dna import DnaTokenizer
from unmask.data.tokenizers.huggingface_tokenizer import HuggingFaceTokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer
from unmask.data.tokenizers.tokenizer import TOKENIZERS, Tokenizer, TokenizerConfig

__all__ = [
    "TOKENIZERS",
    "ByteTokenizer",
    "CharacterTokenizer",
    "DnaTokenizer",
    "HuggingFaceTokenizer",
    "SubwordTokenizer",
    "Text8Tokenizer",
    "Tokenizer",
    "TokenizerConfig",
]

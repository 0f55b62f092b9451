"""Tokenizers: subwords, characters, bytes, Hugging Face."""

from unmask.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer, Text8Tokenizer
from unmask.data.tokenizers.huggingface_tokenizer import HuggingFaceTokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer
from unmask.data.tokenizers.tokenizer import TOKENIZERS, Tokenizer, TokenizerConfig

__all__ = [
    "TOKENIZERS",
    "ByteTokenizer",
    "CharacterTokenizer",
    "HuggingFaceTokenizer",
    "SubwordTokenizer",
    "Text8Tokenizer",
    "Tokenizer",
    "TokenizerConfig",
]

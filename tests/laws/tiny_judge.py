"""A causal language model of the transformers library, random and tiny, with a tokenizer of its own."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTEXT = 32
SENTENCE = "the cat sat on a mat and then one dog ran to the old red hill by the sea"
PREFIX = "<|endoftext|>"


def fast_tokenizer(**special: str):
    """Byte-level BPE; <|endoftext|> has an id, and <other> as well."""
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[PREFIX, "<other>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([SENTENCE] * 5, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def save_judge(folder: Path, seed: int = 0) -> Path:
    """GPT-2's architecture with two layers, in safetensors."""
    from transformers import GPT2Config, GPT2LMHeadModel

    tokenizer = fast_tokenizer(eos_token=PREFIX)
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2,
        initializer_range=0.5,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder

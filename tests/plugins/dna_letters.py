"""A tokenizer kind: the letters of DNA, with the base that each pairs with."""

import json
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unmask.data.tokenizers.tokenizer import TOKENIZERS, Tokenizer, TokenizerConfig, own_specials
from unmask.options import option

LETTERS, PARTNERS = "ACGTN", "TGCAN"


@TOKENIZERS.register("dna_letters")
class DNALetters(Tokenizer):
    """One token a letter of DNA: A, C, G, T, and N for all else."""

    @dataclass(frozen=True)
    class Config(TokenizerConfig):
        kind: str = "dna_letters"
        small: Literal["upper", "unknown"] = option("upper", help="Small letters: capitals, or N.")

    def __init__(self, small: str = "upper") -> None:
        vocabulary = own_specials(len(LETTERS))
        partners = [LETTERS.index(letter) for letter in PARTNERS]
        partners += range(len(LETTERS), vocabulary.size)  # special tokens pair with themselves
        super().__init__(replace(vocabulary, complement_ids=tuple(partners)))
        self.small = small

    @classmethod
    def build(cls, config, texts):
        return cls(config.small)

    @classmethod
    def parse(cls, files):
        return cls(json.loads(files["dna_letters.json"])["small"])

    def files(self):
        return super().files() | {"dna_letters.json": json.dumps({"small": self.small})}

    def encode_batch(self, texts):
        texts = [text.upper() for text in texts] if self.small == "upper" else texts
        ids = {letter: token for token, letter in enumerate(LETTERS)}
        return [np.array([ids.get(c, ids["N"]) for c in text], np.int64) for text in texts]

    def decode(self, ids):
        return "".join(LETTERS[token] for token in self.content(ids))

    def covered(self, text, tokens):
        return min(tokens, len(text))

"""A tokenizer by its configuration, and a saved one by its folder."""

import json
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

from unmask.data.tokenizers.characters import (
    ByteTokenizer,
    CharacterTokenizer,
    Text8Tokenizer,
)
from unmask.data.tokenizers.huggingface_tokenizer import hugging_face
from unmask.data.tokenizers.no_tokenizer import AbsentTokenizer
from unmask.data.tokenizers.subwords import parse_subwords, train_bpe
from unmask.data.tokenizers.tokenizer import Tokenizer, TokenizerConfig
from unmask.errors import UnmaskError, unknown
from unmask.files.untrusted import foreign_text, refusing
from unmask.vocabulary import Vocabulary

_FILES = ("vocabulary.json", "tokenizer.json", "alphabet.json")


def build_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
    """The configured tokenizer; bpe and characters learn from `texts`, the others never read them."""
    builders: dict[str, Callable[[], Tokenizer]] = {
        "bpe": lambda: train_bpe(texts, config.size),
        "bytes": ByteTokenizer,
        "characters": lambda: CharacterTokenizer(chain.from_iterable(map(set, texts))),
        "hf": lambda: hugging_face(config.path),
        "text8": Text8Tokenizer,
    }
    return builders[config.kind]()


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """A tokenizer that `save` wrote, or one in Hugging Face's layout."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UnmaskError(f"no tokenizer folder {folder}")
    if not (folder / "vocabulary.json").exists():
        return hugging_face(str(folder))
    with refusing(f"the tokenizer in {folder} is damaged"):
        names = (name for name in _FILES if (folder / name).exists())
        return parse_tokenizer({name: foreign_text(folder / name, inside=folder) for name in names})


def parse_tokenizer(files: dict[str, str]) -> Tokenizer:
    """The tokenizer that `files` described."""
    parsers: dict[str, Callable[[], Tokenizer]] = {
        "absent": lambda: AbsentTokenizer(
            Vocabulary(**json.loads(files["vocabulary.json"])["vocabulary"])
        ),
        "bytes": ByteTokenizer,
        "characters": lambda: CharacterTokenizer(json.loads(files["alphabet.json"])),
        "subwords": lambda: parse_subwords(files),
        "text8": Text8Tokenizer,
    }
    state = json.loads(files["vocabulary.json"])
    if state["kind"] not in parsers:
        raise unknown("tokenizer kind", state["kind"], parsers)
    tokenizer = parsers[state["kind"]]()
    if "labels" not in state:
        return tokenizer
    vocabulary, labels = Vocabulary(**state["vocabulary"]), state["labels"]
    if sorted(labels.values()) != list(range(vocabulary.size - len(labels), vocabulary.size)):
        raise UnmaskError("its classes have other ids than those behind its tokens")
    return tokenizer.having(vocabulary, labels)

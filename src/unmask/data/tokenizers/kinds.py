"""Builds a tokenizer from its configuration and loads a saved one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from unmask.data.tokenizers.huggingface_tokenizer import hugging_face
from unmask.data.tokenizers.no_tokenizer import NoTokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer
from unmask.data.tokenizers.tokenizer import TOKENIZERS, Tokenizer, TokenizerConfig
from unmask.errors import UnmaskError
from unmask.files.untrusted import foreign_text, refusing
from unmask.vocabulary import Vocabulary

# kinds by their name in saved files, where it is not the registered name
_STORED = {kind.kind: kind for kind in (SubwordTokenizer, NoTokenizer)}


def build_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
    """The configured tokenizer. Only a kind that is trained on text reads `texts`."""
    return TOKENIZERS[config.kind].build(config, texts)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer in a folder that `save` wrote, or in a folder of Hugging Face's layout."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UnmaskError(f"no tokenizer folder {folder}")
    if not (folder / "vocabulary.json").exists():
        return hugging_face(str(folder))
    with refusing(f"the tokenizer in {folder} is damaged"):
        return parse_tokenizer(TextFiles(folder))


def parse_tokenizer(files: Mapping[str, str]) -> Tokenizer:
    """The tokenizer in saved files (name -> text). Its kind is stored in `vocabulary.json`."""
    state = json.loads(files["vocabulary.json"])
    kind = state["kind"]
    tokenizer = (_STORED[kind] if kind in _STORED else TOKENIZERS[str(kind)]).parse(files)
    template = state.get("chat_template")
    tokenizer.chat_template = template if isinstance(template, str) else None
    if "labels" not in state and tokenizer.vocabulary.pad_id is not None:
        return tokenizer
    vocabulary, labels = Vocabulary(**state["vocabulary"]), state.get("labels", {})
    if sorted(labels.values()) != list(range(vocabulary.size - len(labels), vocabulary.size)):
        raise UnmaskError("the ids of its class labels do not follow the ids of its tokens")
    return tokenizer.having(vocabulary, labels)


class TextFiles(Mapping[str, str]):
    """The untrusted text files of a folder by name, read when they are looked up.

    Args:
        folder: the folder.
        inside: the folder that targets of symbolic links must lie in; `folder` by default.
    """

    def __init__(self, folder: Path, inside: Path | None = None) -> None:
        self._folder, self._inside = folder, inside or folder

    def __getitem__(self, name: str) -> str:
        path = self._folder / name
        if path.name != name or not path.exists():
            raise KeyError(name)
        return foreign_text(path, inside=self._inside)

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in sorted(self._folder.iterdir()) if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)

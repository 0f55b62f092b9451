"""Hugging Face tokenizers by folder or hub name, read without running remote code."""

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers

from unmask.data.tokenizers.backend_file import read_backend
from unmask.data.tokenizers.subwords import SubwordTokenizer, byte_level
from unmask.data.tokenizers.tokenizer import TOKENIZERS, Tokenizer, TokenizerConfig
from unmask.errors import UnmaskError
from unmask.files.untrusted import foreign_text, refusing
from unmask.imports import extra
from unmask.vocabulary import Vocabulary

# settings that name the special token of each role; _USUAL: tokens to look for if none is set
_SETTINGS = {
    "mask": ("mask_token",),
    "pad": ("pad_token",),
    "bos": ("bos_token", "cls_token"),
    "eos": ("eos_token", "sep_token"),
}
_USUAL = {
    "mask": ("[MASK]", "<mask>"),
    "pad": ("[PAD]", "<pad>"),
    "bos": ("[CLS]", "<s>", "<bos>", "<|endoftext|>"),
    "eos": ("[SEP]", "</s>", "<eos>", "<|endoftext|>"),
}
_SIZES = {"gpt2": 50_258, "bert-base-uncased": 30_522}  # vocabulary sizes with MASK


@TOKENIZERS.register("hf")
class HuggingFaceTokenizer(SubwordTokenizer):
    """A Hugging Face tokenizer by folder or hub name (`path`), read without running remote code."""

    learns = False

    @classmethod
    def build(cls, config: TokenizerConfig, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer in the folder or under the hub name `path`."""
        return hugging_face(config.path)

    @classmethod
    def check(cls, config: TokenizerConfig) -> None:
        """Raises an error if `path` is empty."""
        if not config.path:
            raise UnmaskError("tokenizer.kind hf needs tokenizer.path: a folder or a hub name")

    @classmethod
    def planned_size(cls, config: TokenizerConfig) -> int | None:
        """The vocabulary size of a tokenizer in `_SIZES`; None for others."""
        return _SIZES.get(config.path)


def hugging_face(path: str) -> SubwordTokenizer:
    """The Hugging Face tokenizer in a folder or under a hub name."""
    if Path(path).is_dir():
        return _from_folder(Path(path))
    return _from_hub(path)


def _from_hub(name: str) -> SubwordTokenizer:
    transformers = extra("transformers", f"the tokenizer {name!r} (there is no such folder)")
    try:
        found = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UnmaskError(f"no tokenizer {name!r} as a folder or on the hub: {reason}") from None
    with tempfile.TemporaryDirectory() as folder:
        found.save_pretrained(folder)
        return _from_folder(Path(folder))


def _from_folder(folder: Path) -> SubwordTokenizer:
    settings = _json(folder / "tokenizer_config.json") | _json(folder / "special_tokens_map.json")
    with refusing(f"the tokenizer in {folder} cannot be read"):
        backend = _backend(folder, settings)
        tokenizer = SubwordTokenizer(backend, _vocabulary(backend, settings))
        tokenizer.chat_template = _chat_template(folder, settings)
        return tokenizer


def _chat_template(folder: Path, settings: dict[str, Any]) -> str | None:
    """The chat template: a file of its own, or a setting; of several the one named default."""
    if (folder / "chat_template.jinja").exists():
        return foreign_text(folder / "chat_template.jinja")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = [one for one in template if isinstance(one, dict) and one.get("name") == "default"]
        template = named[0].get("template") if named else None
    return template if isinstance(template, str) else None


def _backend(folder: Path, settings: dict[str, Any]) -> Backend:
    if (folder / "tokenizer.json").exists():
        return read_backend(foreign_text(folder / "tokenizer.json"))
    if (folder / "vocab.json").exists() and (folder / "merges.txt").exists():
        for name in ("vocab.json", "merges.txt"):
            foreign_text(folder / name)
        model = models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
        return byte_level(model, bool(settings.get("add_prefix_space", False)))
    if (folder / "vocab.txt").exists():
        return _word_piece(folder / "vocab.txt", settings)
    raise UnmaskError(
        f"no tokenizer in {folder}: it needs tokenizer.json, vocab.json with merges.txt, or vocab.txt"
    )


def _word_piece(vocabulary: Path, settings: dict[str, Any]) -> Backend:
    """BERT's WordPiece tokenizer from its `vocab.txt`."""
    foreign_text(vocabulary)
    unknown = _token_text(settings.get("unk_token")) or "[UNK]"
    backend = Backend(models.WordPiece.from_file(str(vocabulary), unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        strip_accents=settings.get("strip_accents"),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def _vocabulary(backend: Backend, settings: dict[str, Any]) -> Vocabulary:
    """The vocabulary. Special ids are from settings or usual names; MASK, BOS and EOS may be new."""
    known = backend.get_vocab(with_added_tokens=True)
    if not known:
        raise UnmaskError("its vocabulary is empty")
    ids = {role: _role_id(role, settings, known) for role in _SETTINGS}
    base = Vocabulary.over(max(known.values()) + 1, mask_id=ids["mask"])
    size, bos, eos = base.size, ids["bos"], ids["eos"]
    if bos is None and eos is None:
        bos, eos, size = size, size + 1, size + 2
    # if only one of them exists, it is both BOS and EOS, as in GPT-2
    bos, eos = (eos if bos is None else bos), (bos if eos is None else eos)
    return Vocabulary(size, base.mask_id, ids["pad"], bos, eos)


def _role_id(role: str, settings: dict[str, Any], known: dict[str, int]) -> int | None:
    named = [_token_text(settings.get(setting)) for setting in _SETTINGS[role]]
    named = [name for name in named if name] or list(_USUAL[role])
    return next((known[name] for name in named if name in known), None)


def _token_text(token: Any) -> str | None:
    """The text of a token in the settings: a string, or the field `content` of an added token."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        settings = json.loads(foreign_text(path))
    except (ValueError, RecursionError):
        raise UnmaskError(f"{path} is not JSON") from None
    return settings if isinstance(settings, dict) else {}

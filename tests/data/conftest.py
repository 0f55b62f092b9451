"""Small tokenizers in the file layouts of the hub, and a cache for each test."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer, TokenizerConfig

TEXT = """The cat sat on the mat. The dog lay on the rug; the cat saw the dog.
"Über allen Gipfeln ist Ruh", she said: naïve café, 日本語, 42 cats & 7 dogs!
A long time ago there was a small house in the woods, and nobody lived there.
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory) -> Path:
    """vocab.json and merges.txt, one special token at the last id."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator([TEXT], trainer)
    folder = tmp_path_factory.mktemp("gpt2")
    backend.model.save(str(folder))
    vocab = json.loads((folder / "vocab.json").read_text())
    vocab["<|endoftext|>"] = len(vocab)
    (folder / "vocab.json").write_text(json.dumps(vocab))
    names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    (folder / "special_tokens_map.json").write_text(json.dumps(names))
    return folder


@pytest.fixture(scope="session")
def bert_words() -> list[str]:
    letters = [prefix + chr(c) for c in range(97, 123) for prefix in ("", "##")]
    words = ["the", "cat", "sat", "on", "mat", "mask", "[", "]", ".", ",", "##s"]
    specials = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return list(dict.fromkeys(specials + words + letters))


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory, bert_words) -> Path:
    """vocab.txt alone."""
    folder = tmp_path_factory.mktemp("bert")
    (folder / "vocab.txt").write_text("\n".join(bert_words) + "\n")
    return folder


@pytest.fixture(scope="session")
def bert_json_folder(tmp_path_factory, bert_words) -> Path:
    """tokenizer.json with special tokens, truncation and padding switched on."""
    words = {word: index for index, word in enumerate(bert_words)}
    backend = Backend(models.WordPiece(words, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    backend.add_special_tokens([AddedToken(name, special=True) for name in names])
    backend.enable_truncation(4)
    backend.enable_padding(length=4)
    folder = tmp_path_factory.mktemp("bert-json")
    backend.save(str(folder / "tokenizer.json"))
    content = {"mask_token": {"content": "[MASK]"}, "cls_token": "[CLS]", "sep_token": "[SEP]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="session")
def tokenizers(gpt2_folder, bert_folder) -> dict[str, Tokenizer]:
    """One tokenizer of every kind."""
    configs = {kind: TokenizerConfig(kind, 300) for kind in ("bpe", "bytes", "characters", "text8")}
    configs["gpt2"] = TokenizerConfig("hf", path=str(gpt2_folder))
    configs["bert"] = TokenizerConfig("hf", path=str(bert_folder))
    return {name: build_tokenizer(config, [TEXT]) for name, config in configs.items()}

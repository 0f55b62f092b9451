"""Models that are pushed to the hub and loaded from it. A fake hub replaces the network."""

import inspect
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from hub_models import FIXTURE, logits, refused, some_tokens, tiny
from transformers import AutoModelForMaskedLM

import unmask
import unmask.integrations.transformers
from unmask.data.data_config import Portion
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.formats import foreign_format, huggingface
from unmask.formats import read as reading

NAMES = (
    *("snapshot_download", "create_repo", "create_branch", "upload_folder"),
    *("list_repo_files", "hf_hub_download"),
)


class Hub:
    """A fake of huggingface_hub, with repositories as folders and revisions within them."""

    def __init__(self, root: Path, served: Path | None = None) -> None:
        self.root, self.served, self.asked = root, served, []
        self.messages: list[str] = []

    def place(self, name: str, revision: str | None) -> Path:
        return self.root / name / (revision or "main")

    def snapshot_download(
        self, name: str, revision: str | None = None, allow_patterns: Any = None
    ) -> str:
        self.asked.append(name if revision is None else (name, revision))
        if self.served is None:
            raise OSError("Cannot reach the hub\nand more")
        return str(self.served)

    def create_repo(self, name: str, private: bool, exist_ok: bool):
        if name == "not/mine":
            raise ValueError("no right")
        name = name if "/" in name else f"me/{name}"
        self.place(name, None).mkdir(parents=True, exist_ok=exist_ok)
        return type("Repo", (), {"repo_id": name, "__str__": lambda self: f"https://x/{name}"})()

    def create_branch(self, repo_id: str, branch: str, exist_ok: bool) -> None:
        self.place(repo_id, branch).mkdir(exist_ok=exist_ok)

    def list_repo_files(self, repo_id: str, revision: str | None = None) -> list[str]:
        place = self.place(repo_id, revision)
        return [str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()]

    def hf_hub_download(self, repo_id: str, filename: str, revision: str | None = None) -> str:
        return str(self.place(repo_id, revision) / filename)

    def upload_folder(
        self,
        repo_id: str,
        folder_path: Path,
        commit_message: str,
        revision: str | None = None,
        delete_patterns: list[str] | None = None,
    ) -> None:
        place = self.place(repo_id, revision)
        for name in self.list_repo_files(repo_id, revision):
            if any(fnmatch(name, pattern) for pattern in delete_patterns or []):
                (place / name).unlink()
        shutil.copytree(folder_path, place, dirs_exist_ok=True)
        self.messages.append(commit_message)


def cached(folder: Path, cache: Path) -> Path:
    """A folder as in the hub's cache: every file of the snapshot is a link."""
    blobs, snapshot = cache / "blobs", cache / "snapshots" / "0a1b2c"
    blobs.mkdir(parents=True)
    for index, file in enumerate(path for path in folder.rglob("*") if path.is_file()):
        shutil.copy(file, blobs / str(index))
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blobs / str(index))
    return snapshot


@pytest.fixture
def hub(monkeypatch, folder, tmp_path):
    stub = Hub(tmp_path / "hub", cached(folder, tmp_path / "cache" / "models--me--my-mdlm"))
    for name in NAMES:
        monkeypatch.setattr(huggingface_hub, name, checked(name, stub))
    return stub


def checked(name: str, stub: Hub) -> Callable[..., Any]:
    """A function of the fake hub that first checks its arguments against the
    library's signature.
    """
    signature = inspect.signature(getattr(huggingface_hub, name))

    def call(*args: Any, **options: Any) -> Any:
        signature.bind(*args, **options)
        return getattr(stub, name)(*args, **options)

    return call


def test_pushing_writes_the_folder(model, folder, hub):
    assert model.push_to_hub("me/my-mdlm", licence="apache-2.0") == "https://x/me/my-mdlm"
    pushed = hub.place("me/my-mdlm", None)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "generation_config.json"):
        assert (pushed / name).read_bytes() == (folder / name).read_bytes()
    assert 'unmask.load("me/my-mdlm")' in (pushed / "README.md").read_text()
    model.push_to_hub("bare", revision="try", commit_message="first try", licence="mit")
    branch = hub.place("me/bare", "try")  # a bare name belongs to the logged-in user
    card = (branch / "README.md").read_text()
    assert 'unmask.load("me/bare")' in card and "license: 'mit'" in card
    assert not any(hub.place("me/bare", None).iterdir())
    assert hub.messages == ["unmask", "first try"]
    assert refused(lambda: model.push_to_hub("not/mine")) == (
        "the hub refused 'not/mine': no right"
    )


def test_pushing_again_deletes_only_the_weights_of_the_previous_push(model, hub):
    model.push_to_hub("me/again", shard="10KB")
    pushed = hub.place("me/again", None)
    others = {"adapter.safetensors", "model-of-mine.safetensors", "images/plot.png"}
    for name in others:
        (pushed / name).parent.mkdir(exist_ok=True)
        (pushed / name).write_text("mine")
    assert len(list(pushed.glob("model-0*.safetensors"))) > 3
    model.push_to_hub("me/again")
    left = {name for name in hub.list_repo_files("me/again") if "safetensors" in name}
    assert left == {"model.safetensors"} | {name for name in others if "safetensors" in name}
    assert (pushed / "images" / "plot.png").is_file()
    tokens = some_tokens(model)
    model.method.serve()  # as in a loaded model
    assert torch.equal(logits(unmask.load(pushed), tokens), logits(model, tokens))
    model.push_to_hub("me/again", shard="10KB")
    assert not (pushed / "model.safetensors").exists()
    # nothing is deleted because of a foreign or broken index
    for index in ('{"weight_map": {"a": "*", "b": "adapter.safetensors"}}', "[1]", "{"):
        (pushed / huggingface.INDEX).write_text(index)
        model.push_to_hub("me/again")
        assert others <= set(hub.list_repo_files("me/again"))
        assert not (pushed / huggingface.INDEX).exists()


def private(root: Path) -> unmask.Model:
    """A model whose configuration contains local paths."""
    model = tiny()
    there = root / "alice" / "secret"
    there.mkdir(parents=True, exist_ok=True)
    data = replace(
        model.config.data,
        train=(Portion(f"{there}/wikipedia.train.txt.xz", 2.0), Portion(f"{there}/")),
        valid=str(there / "wikipedia.valid.txt.xz"),
        tokenizer=TokenizerConfig("bpe", 300, path=str(there), source=str(there / "words.txt")),
        cache=str(there / "cache"),
    )
    init_from = str(there / "runs" / "first")
    return replace(model, config=replace(model.config, data=data, init_from=init_from))


def test_published_files_contain_no_local_paths(hub, tmp_path):
    model = private(tmp_path)
    model.save_pretrained(tmp_path / "out")
    model.push_to_hub("me/private", card=f"# Mine\ntrained on {model.config.data.valid}\n")
    auto = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    auto.save_pretrained(tmp_path / "theirs")
    for folder in (tmp_path / "out", hub.place("me/private", None), tmp_path / "theirs"):
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) >= 2
        for file in files:
            content = file.read_bytes()
            for told in (str(tmp_path), "alice", "secret/", str(Path.home())):
                assert told.encode() not in content, (file, told)
    card = (tmp_path / "out" / "README.md").read_text()
    assert "2 × wikipedia.train.txt.xz + 1 × secret" in card
    assert "on wikipedia.valid.txt.xz" in (hub.place("me/private", None) / "README.md").read_text()
    config = unmask.load(tmp_path / "out").config
    names = ("elsewhere:wikipedia.train.txt.xz", "elsewhere:secret")
    assert config.data.train == (Portion(names[0], 2.0), Portion(names[1]))
    assert (config.data.valid, config.data.cache) == ("elsewhere:wikipedia.valid.txt.xz", "")
    assert (config.init_from, config.data.tokenizer.source) == ("first", "elsewhere:words.txt")


def test_a_hub_name_is_loaded_like_a_folder(model, hub, tmp_path, monkeypatch):
    tokens = some_tokens(model)
    model.method.serve()  # as in a loaded model
    assert torch.equal(logits(unmask.load("me/my-mdlm"), tokens), logits(model, tokens))
    unmask.load("hf:bare")
    assert hub.asked == ["me/my-mdlm", "bare"]
    hub.served = None
    assert refused(lambda: unmask.load("me/other")) == (
        "no local folder 'me/other', and the hub does not provide it: Cannot reach the hub"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me").mkdir()
    asked = len(hub.asked)
    for mistake in ("me/other", "runs/demo", "/me/other", "nothing", "a/b/c", "../a"):
        assert "no model" in refused(lambda name=mistake: unmask.load(name))
    assert len(hub.asked) == asked


def test_a_link_out_of_the_models_cache_is_refused(hub, tmp_path):
    file = hub.served / "tokenizer" / "vocabulary.json"
    shutil.copy(file, tmp_path / "elsewhere.json")
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere.json")
    assert "leads out of its folder" in refused(lambda: unmask.load("me/my-mdlm"))


def test_a_revision_is_requested(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unmask.load("me/my-mdlm", revision="v1.0")
    unmask.load("me/my-mdlm@refs/pr/1")
    unmask.load("hf:bare@0a1b2c")
    pinned = [("me/my-mdlm", "v1.0"), ("me/my-mdlm", "refs/pr/1"), ("bare", "0a1b2c")]
    assert hub.asked == pinned
    (tmp_path / "mine").mkdir()
    for call, reason in {
        lambda: unmask.load("mine", revision="v1"): "'mine' is no name of the hub",
        lambda: unmask.load("me/x@a", revision="b"): "'me/x@a' names a revision already",
        lambda: unmask.load("me/x", revision="a b"): "'a b' is no revision",
        lambda: unmask.load("me/x", revision="a/../b"): "'a/../b' is no revision",
        lambda: unmask.load("me/x@"): "no model 'me/x@'",
        lambda: unmask.load("mine/x@v1"): "no model 'mine/x@v1'",
    }.items():
        assert reason in refused(call)
    assert hub.asked == pinned


def test_a_hub_tokenizer_keeps_its_name(hub, tmp_path):
    hub.served = FIXTURE
    found = reading.fetch("somebody/mdlm@v2")
    assert found.config.data.tokenizer.path == "somebody/mdlm"
    huggingface.write(found, tmp_path / "out")
    tree = json.loads((tmp_path / "out" / "config.json").read_text())
    assert tree["run"]["data"]["tokenizer"]["path"] == "somebody/mdlm"


def test_a_checkpoint_without_a_tokenizer_uses_the_default_one(hub, tmp_path, monkeypatch):
    monkeypatch.setitem(foreign_format._DEFAULT_TOKENIZERS, 98, "somebody/words")
    words = [f"w{i}" for i in range(95)]
    (tmp_path / "vocab.txt").write_text("\n".join([*words, "[CLS]", "[SEP]"]))
    hub.served = tmp_path
    model = unmask.load(FIXTURE)
    assert hub.asked == ["somebody/words"]
    assert model.tokenizer.vocabulary == unmask.Vocabulary(98, 97, None, 95, 96)
    hub.served = None
    assert "without a tokenizer" in refused(lambda: unmask.load(FIXTURE).generate("w1"))

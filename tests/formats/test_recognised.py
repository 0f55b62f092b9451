"""`unmask models PATH` names format, method and network, and large models are refused before reading."""

import json

import pytest
from llama_models import reference, write_tokenizer

import unmask
from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.formats import foreign
from unmask.formats.recognised import recognised
from unmask.runtime import host_memory


@pytest.fixture
def dream(tmp_path):
    """A tiny folder in the layout of Dream, in two shards."""
    reference("qwen2").save_pretrained(tmp_path, max_shard_size="20KB")
    config = tmp_path / "config.json"
    tree = json.loads(config.read_text()) | {"model_type": "Dream", "mask_token_id": 44}
    config.write_text(json.dumps(tree))
    write_tokenizer(tmp_path, chat="{{ messages }}")
    return tmp_path


def test_facts_of_a_folder_come_from_its_headers(dream, monkeypatch, capsys):
    def fail(*_):
        raise AssertionError("the weights are read")

    monkeypatch.setattr(foreign.StoredTensors, "__getitem__", fail)
    assert main(["models", str(dream)]) == 0
    printed = capsys.readouterr().out
    for line in (
        "Dream",
        "mdlm",
        "llama, 32 width, 2 depth, 4 heads",
        "of the next token, shifted",
    ):
        assert line in printed
    found = recognised(str(dream))
    assert found["attention"] == "full" and found["positions"] == "64"
    assert found["MASK"].startswith("44, ") and found["chat template"] == "yes"
    monkeypatch.undo()
    network = unmask.load(dream).method.backbone
    count = sum(parameter.numel() for parameter in network.parameters())
    assert found["parameters"].startswith(f"{count / 1e6:,.1f}M")


def test_facts_of_our_own_models(capsys):
    assert main(["models", "stories", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "unmask" and found["method"] == "mdlm"


def test_a_model_larger_than_the_memory_is_refused_before_it_is_read(dream, monkeypatch):
    monkeypatch.setattr(host_memory, "free_memory", lambda: 10_000)
    with pytest.raises(UnmaskError, match=r"GiB of memory in fp32, and 0\.0 GiB are free"):
        unmask.load(dream)


def test_free_memory_is_positive_or_unknown(monkeypatch, tmp_path):
    found = host_memory.free_memory()
    assert found is None or found > 0
    monkeypatch.setattr(host_memory, "_FACTS", tmp_path / "none")
    assert host_memory.free_memory() is None

"""Fine-tuning on chats, from a folder of a family to an exported folder that answers."""

import json
import re

import pytest
from chat_models import CHATML, write_model

import unmask
from unmask.cli import main

SETTINGS = {
    "data.messages_field": "messages",
    "data.length": 64,
    "data.packing": "pad",
    "training.steps": 8,
    "training.batch": 8,
    "training.lr": 0.02,
    "training.warmup": 2,
    "training.validate_every": 8,
    "training.validation_rows": 4,
    "training.precision": "fp32",
}


@pytest.mark.parametrize(
    ("family", "own"),
    [("llama", {}), ("llada", {"lora.rank": 4}), ("sdar", {"lora.rank": 4, "data.packing": "fit"})],
)
def test_a_family_is_trained_on_chats_and_written_back(family, own, tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    answers = {"A": "aa", "B": "bbbb", "C": "c" * 60}
    talks = [
        [{"role": "user", "content": ask}, {"role": "assistant", "content": answer}]
        for ask, answer in answers.items()
    ]
    lines = [json.dumps({"messages": talk}) for talk in talks * 20]
    (tmp_path / "chats.jsonl").write_text("\n".join(lines))
    lines = []
    model = unmask.train(
        "finetune",
        run=tmp_path / "run",
        data=tmp_path / "chats.jsonl",
        overrides={"init_from": str(write_model(tmp_path / "start", family)), **SETTINGS, **own},
        say=lines.append,
    )
    said = "\n".join(lines)
    assert "chats are longer than 64 tokens and cut there" in said
    before, after = re.search(r"([\d.]+) bits/byte before, ([\d.]+) after", said).groups()
    assert float(after) < float(before) - 0.2
    out = tmp_path / "out"
    assert main(["export", str(tmp_path / "run"), str(out), "--format", "decoder"]) == 0
    assert json.loads((out / "config.json").read_text())["model_type"] == family
    again = unmask.load(out)
    assert again.tokenizer.chat_template == CHATML
    (ours,), (theirs,) = (one.chat("B", tokens=8, temperature=0) for one in (model, again))
    assert ours.ids == theirs.ids

"""PEFT's adapters take part in every forward pass, get gradients, and merge into plain weights."""

import pytest
import torch
from hub_models import some_tokens, tiny
from tiny_models import one_line

import unmask
from unmask.config.run_config import resolve
from unmask.errors import UnmaskError
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM

peft = pytest.importorskip("peft")

TARGETS = ["all-linear", ["qkv", "head"]]


def drawn(adapted: torch.nn.Module) -> None:
    """Sets the adapters to random weights, as after training."""
    for name, parameter in adapted.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.1)


def logits(network: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return network.eval()(input_ids=x).logits.softmax(-1)


@pytest.mark.parametrize("timed", ["false", "true"])
@pytest.mark.parametrize("targets", TARGETS, ids=str)
def test_adapters_have_an_effect_learn_save_and_merge(targets, timed, tmp_path):
    model = tiny(backbone__time_conditioning=timed)
    network, x = UnmaskForMaskedLM.from_model(model), some_tokens(model) % 200
    plain = logits(network, x)
    adapted = peft.get_peft_model(network, peft.LoraConfig(r=2, target_modules=targets))
    torch.testing.assert_close(logits(adapted, x), plain)  # adapters begin at zero
    drawn(adapted)
    changed = logits(adapted, x)
    assert not torch.allclose(changed, plain, atol=1e-3)
    adapted.train()(input_ids=x, labels=x).loss.backward()
    trained = {name: p.grad for name, p in adapted.named_parameters() if p.requires_grad}
    assert trained and all(grad is not None and grad.any() for grad in trained.values())
    adapted.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(UnmaskForMaskedLM.from_model(model), tmp_path)
    torch.testing.assert_close(logits(again, x), changed)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(logits(merged, x), changed, rtol=1e-3, atol=1e-5)
    assert merged.backbone.plain and all(block.plain for block in merged.backbone.blocks)


def test_a_run_trains_adapters_and_exports_plain_weights(tmp_path):
    base = tiny("bytes", backbone__dropout="0")
    base.save(tmp_path / "base")
    (tmp_path / "notes.txt").write_text("the cat sat\n" * 60)
    settings = {
        "data.train": tmp_path / "notes.txt", "data.cache": tmp_path / "cache",
        "data.separator": "line", "training.steps": 6, "training.batch": 8, "training.lr": 0.03,
        "training.warmup": 0, "training.ema": 0, "training.device": "cpu", "training.save_every": 3,
        "init_from": tmp_path / "base", "lora.rank": 2,
    }  # fmt: skip
    said: list[str] = []
    text = {name: str(value) for name, value in settings.items()}
    model = unmask.train(base.config, tmp_path / "run", overrides=text, say=said.append)
    assert any("of them trained" in line for line in said)
    old, new = base.method.state_dict(), model.method.state_dict()
    assert old.keys() == new.keys()
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    parts = ("attention.qkv", "attention.out", "mlp.0", "mlp.2")
    assert changed == {f"backbone.blocks.{i}.{part}.weight" for i in range(2) for part in parts}
    texts = ["the cat sat"]
    assert model.perplexity(texts).nats < base.perplexity(texts).nats
    (tmp_path / "run" / "model").rename(tmp_path / "exported")
    for folder in ("run", "exported"):  # a run without an export is read from its checkpoint
        found = unmask.load(tmp_path / folder, device="cpu").method.state_dict()
        assert all(torch.equal(new[name], tensor) for name, tensor in found.items())


def test_adapters_need_a_trained_model(tmp_path):
    with pytest.raises(UnmaskError) as caught:
        unmask.train(resolve({}, {"lora.rank": 2}), tmp_path / "run")
    assert "set init_from" in one_line(caught)

"""The package's classes in transformers: registration in any import order, and the options of transformers."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import accelerate
import pytest
import torch
from hub_models import refused, some_tokens, tiny
from safetensors import SafetensorError
from transformers import AutoModelForMaskedLM, GenerationConfig

import unmask
import unmask.integrations.transformers
from unmask.backbones import backbone as base
from unmask.config.components import build_method
from unmask.config.run_config import from_dict, to_dict
from unmask.errors import UnmaskError
from unmask.integrations.transformers.configuration import UnmaskConfig
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM, UnmaskModel

# common modules are imported once; each import order runs in its own process
ORDERS = [
    "import unmask.integrations.transformers; import transformers",
    "import transformers; import unmask.integrations.transformers",
]
EACH = """
import os, sys
import accelerate, huggingface_hub.hf_api, torch._dynamo
finders = list(sys.meta_path)
import unmask
assert sys.meta_path == finders
for order in {orders!r}:
    if not os.fork():
        exec(order)
        from transformers import AutoModelForMaskedLM
        print(type(AutoModelForMaskedLM.from_pretrained({folder!r})).__name__, flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.slow
def test_importing_the_integration_registers_the_auto_classes(folder):
    code = EACH.format(orders=ORDERS, folder=str(folder))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["UnmaskForMaskedLM"] * len(ORDERS), done.stderr


@torch.no_grad()
@pytest.mark.parametrize("kind", [UnmaskForMaskedLM, UnmaskModel])
def test_arguments_without_an_effect_are_refused(model, kind):
    network, tokens = kind.from_model(model), some_tokens(model)
    whole = network(tokens)[0]
    nothing = {"output_attentions": False, "use_cache": False}
    first_type = torch.zeros_like(tokens)
    assert torch.equal(network(tokens, token_type_ids=first_type, **nothing)[0], whole)
    for name, value in {
        "token_type_ids": first_type + 1,
        "inputs_embeds": torch.zeros(3, 9, 16),
        "output_attentions": True,
        "past_key_values": (),
    }.items():
        told = refused(lambda name=name, value=value: network(tokens, **{name: value}))
        assert told == f"{kind.__name__} takes no {name}: leave it out"
    assert "takes no inputs_embeds" in refused(lambda: network(inputs_embeds=torch.zeros(3, 9, 16)))
    assert "lacks input_ids" in refused(lambda: network())
    assert "attention_mask has shape [3, 1, 9, 9]" in refused(
        lambda: network(tokens, attention_mask=torch.ones(3, 1, 9, 9))
    )
    times = torch.full((3,), 0.5)
    assert "does not read the time" in refused(lambda: network(tokens, timesteps=times))
    if kind is UnmaskForMaskedLM:
        clean = tokens % 100
        assert "the bound of labels takes no timesteps" in refused(
            lambda: network(clean, labels=clean, timesteps=times)
        )


@torch.no_grad()
def test_outputs_with_return_dict_false_are_tuples(model):
    tokens = some_tokens(model)
    network, features = UnmaskForMaskedLM.from_model(model), UnmaskModel.from_model(model)
    (logits,) = network(tokens, return_dict=False)
    assert torch.equal(logits, network(tokens).logits)
    clean = tokens.masked_fill(tokens == model.tokenizer.vocabulary.mask_id, 0)
    loss, _ = network.eval()(clean, labels=clean, return_dict=False)
    assert torch.equal(loss, network.eval()(clean, labels=clean).loss)
    (h,) = features(tokens, return_dict=False)
    assert torch.equal(h, features(tokens).last_hidden_state)
    network.config.return_dict = False
    assert torch.equal(network(tokens)[0], logits) and type(network(tokens)) is tuple
    assert torch.equal(network(tokens, return_dict=True).logits, logits)


@torch.no_grad()
def test_another_thread_finds_weights_while_they_are_prepared_again(model, monkeypatch):
    network, tokens, found = UnmaskForMaskedLM.from_model(model), some_tokens(model), []
    network(tokens)
    pad = base.F.pad
    monkeypatch.setattr(
        base.F, "pad", lambda *args: found.append(network.backbone.usable) or pad(*args)
    )
    network(tokens)
    assert found and None not in found


def replicas(network: torch.nn.Module, count: int) -> list[torch.nn.Module]:
    """Replicas as torch makes them for several devices, all on this device."""
    module = import_module("torch.nn.parallel.replicate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            module,
            "_broadcast_coalesced_reshape",
            lambda tensors, devices, detach: [[t * 1 for t in tensors] for _ in devices],
        )
        return module.replicate(network, range(count))


@pytest.mark.parametrize(
    "settings", [{}, {"backbone__time_conditioning": "true"}, {"schedule": "learned"}]
)
def test_a_replica_computes_with_its_own_weights(settings):
    model = tiny(**settings)
    network, tokens = UnmaskForMaskedLM.from_model(model), some_tokens(model)
    with torch.no_grad():
        whole = network(tokens).logits  # a replica does not use its prepared weights
        first, second = replicas(network, 2)
        assert not list(second.parameters())
        vars(second.backbone.head)["weight"].zero_()  # frozen weights of the original would hide it
        torch.testing.assert_close(first(tokens).logits, whole)
        assert not torch.allclose(second(tokens).logits[..., 0], whole[..., 0])
        assert torch.equal(network(tokens).logits, whole)
    network.train()
    network(tokens, labels=tokens).loss.backward()
    grads = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    network.noise.step = 0
    first, second = replicas(network, 2)
    second(tokens, labels=tokens).loss.backward()
    assert network.noise.step == 1
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.grad, grads[name])


@torch.no_grad()
def test_a_network_stays_on_one_device(model, folder):
    network, tokens = UnmaskForMaskedLM.from_model(model), some_tokens(model)
    size = sum(p.numel() * p.element_size() for p in network.parameters())
    room = {0: size // 2, 1: 3 * size, "cpu": 3 * size}
    kept = sorted(network._no_split_modules)
    chosen = accelerate.infer_auto_device_map(network, room, no_split_module_classes=kept)
    assert set(chosen.values()) == {1}
    placed = AutoModelForMaskedLM.from_pretrained(folder, device_map="auto")
    logits = placed(tokens.to(placed.device)).logits.cpu()
    near = {"rtol": 1e-3, "atol": 1e-3} if placed.device.type == "cuda" else {}
    torch.testing.assert_close(logits, network(tokens).logits, **near)


def test_generation_keeps_the_training_mode(folder):
    auto = AutoModelForMaskedLM.from_pretrained(folder).train()
    auto.generate(max_new_tokens=2, seed=0)
    refused(lambda: auto.generate(samplr="x"))
    refused(lambda: auto.generate(torch.zeros(1, 9, dtype=torch.long), max_length=3))
    assert all(module.training for module in auto.modules())


def test_generate_uses_the_saved_defaults(model, tmp_path):
    usual = {"length": 10, "sampler": "first_hitting", "temperature": 0.5, "top_k": 3}
    ours = unmask.Model(model.method, model.tokenizer, model.config, usual)
    ours.save_pretrained(tmp_path / "a")
    auto = AutoModelForMaskedLM.from_pretrained(tmp_path / "a")
    auto.save_pretrained(tmp_path / "b")
    v = model.tokenizer.vocabulary
    for network in (auto, AutoModelForMaskedLM.from_pretrained(tmp_path / "b")):
        for explicit in ({}, {"temperature": 2.0}, {"sampler": "ancestral", "steps": 3}):
            text = ours.generate(seed=5, **explicit)[0].ids
            told = network.generate(seed=5, **explicit)[0].tolist()
            assert told[: len(text)] == text and len(told) <= 10
        assert network.generate(max_length=20, seed=5).shape[1] > 10
        assert network.generate(max_new_tokens=3, seed=5).shape[1] <= 4
    gaps = torch.tensor([[v.bos_id, 1, v.mask_id, 2, v.mask_id, v.eos_id]])
    filled = auto.generate(gaps, seed=1)  # a text with gaps has its length
    assert filled.shape == gaps.shape and v.mask_id not in filled
    greedy = [auto.generate(gaps, seed=seed, top_k=1).tolist() for seed in range(4)]
    plain = UnmaskForMaskedLM.from_model(model)
    assert plain.config.generation == {}
    assert len({str(row) for row in greedy}) < len(
        {str(plain.generate(gaps, seed=seed).tolist()) for seed in range(4)}
    )
    assert Path(tmp_path / "b" / "generation_config.json").exists() is False
    assert unmask.load(tmp_path / "b").defaults == usual


def test_auto_classes_read_the_authors_models():

    from transformers import AutoModel

    folder = Path(__file__).parents[2] / "fixtures" / "official-dit-tiny"
    model = unmask.load(folder, device="cpu")
    tokens = torch.arange(48).reshape(2, 24) % 90
    tokens[:, 3:6] = model.tokenizer.vocabulary.mask_id
    network = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="sdpa")
    ours = UnmaskForMaskedLM.from_model(model)
    with torch.inference_mode():
        assert torch.equal(network(tokens).logits, ours(tokens).logits)
        features = AutoModel.from_pretrained(folder, dtype=torch.float64)(tokens)
    assert features.last_hidden_state.dtype == torch.float64
    with pytest.raises(UnmaskError, match="takes no device_map"):
        AutoModelForMaskedLM.from_pretrained(folder, device_map="auto")


def test_generate_takes_the_options_of_transformers(folder):
    auto = AutoModelForMaskedLM.from_pretrained(folder)
    asked = GenerationConfig(max_new_tokens=5, do_sample=True, top_k=3, eos_token_id=1)
    ids = auto.generate(generation_config=asked, seed=1)
    assert torch.equal(ids, auto.generate(max_new_tokens=5, top_k=3, seed=1))
    assert auto.generate(generation_config=asked, max_new_tokens=2, seed=1).shape[1] <= 3
    greedy = [auto.generate(max_new_tokens=5, do_sample=False, seed=seed) for seed in (0, 0)]
    assert torch.equal(*greedy)
    beams = GenerationConfig(num_beams=4)
    assert "sets num_beams" in refused(lambda: auto.generate(generation_config=beams))

    class Streamer:
        def __init__(self) -> None:
            self.put_ids, self.ended = [], False

        def put(self, value: torch.Tensor) -> None:
            self.put_ids += value.flatten().tolist()

        def end(self) -> None:
            self.ended = True

    for sampler in ("ancestral", "left_to_right", "remask"):
        streamer = Streamer()
        ids = auto.generate(max_new_tokens=5, seed=1, sampler=sampler, streamer=streamer)
        assert torch.equal(ids, auto.generate(max_new_tokens=5, seed=1, sampler=sampler))
        assert streamer.put_ids == ids[0].tolist() and streamer.ended
    two = torch.zeros(2, 3, dtype=torch.long)
    assert "takes one text" in refused(lambda: auto.generate(two, streamer=Streamer()))


@torch.no_grad()
def test_hidden_states_positions_and_kernels(model, folder):
    network, features = UnmaskForMaskedLM.from_model(model), UnmaskModel.from_model(model)
    x = some_tokens(model)
    found = features(x, output_hidden_states=True)
    assert len(found.hidden_states) == 1 + len(network.backbone.blocks)
    assert torch.equal(found.hidden_states[0], network.backbone.embedding(x))
    assert torch.equal(found.hidden_states[-1], found.last_hidden_state)
    assert torch.equal(
        network(x, output_hidden_states=True).hidden_states[1], found.hidden_states[1]
    )
    plain, places = network(x).logits, torch.arange(x.shape[1])
    assert torch.equal(network(x, position_ids=places.expand_as(x)).logits, plain)
    moved = network(x, position_ids=places[None] + 7).logits  # rotary angles depend on distances
    torch.testing.assert_close(moved, plain, rtol=1e-3, atol=1e-4)
    by_row = torch.stack([places, 2 * places, places.flip(0)])
    rows = network(x, position_ids=by_row, output_hidden_states=True)
    assert torch.equal(rows.logits[:1], network(x[:1]).logits)
    assert not torch.allclose(rows.logits[1].softmax(-1), plain[1].softmax(-1), atol=1e-3)
    assert rows.hidden_states[-1].shape == found.last_hidden_state.shape
    assert "position_ids have shape" in refused(lambda: network(x, position_ids=places[:4]))
    bert = UnmaskForMaskedLM.from_model(tiny(backbone="bert", backbone__positions="24"))
    assert "24 positions" in refused(lambda: bert(x, position_ids=places + 20))
    for kind in ("sdpa", "eager"):
        auto = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation=kind)
        assert auto.config._attn_implementation == kind
        torch.testing.assert_close(auto(x).logits, plain)


# runs in its own process, because the compiler cannot trace the shape checks of the tests
ONE_GRAPH = """
import sys
import torch
from hub_models import some_tokens, tiny
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM

torch.set_grad_enabled(False)
for timed in ("false", "true"):
    model = tiny(backbone__time_conditioning=timed)
    network, x = UnmaskForMaskedLM.from_model(model), some_tokens(model)
    seen = torch.ones_like(x)
    seen[0, 5:] = 0
    compiled = torch.compile(network, fullgraph=True, backend="eager")
    rows, length = torch.export.Dim("rows", min=2), torch.export.Dim("length", min=2)
    shapes = {"input_ids": {0: rows, 1: length}, "attention_mask": {0: rows, 1: length}}
    given = {"input_ids": x, "attention_mask": seen}
    program = torch.export.export(network, (), given, dynamic_shapes=shapes).module()
    for tokens, mask in ((x, seen), (x[:2, :5], seen[:2, :5])):
        expected = network(tokens, mask).logits
        torch.testing.assert_close(compiled(tokens, mask).logits, expected)
        torch.testing.assert_close(program(input_ids=tokens, attention_mask=mask).logits, expected)
"""


@pytest.mark.slow
def test_a_network_is_one_graph():
    helpers = str(Path(__file__).parents[2] / "helpers")
    place = {**os.environ, "PYTHONPATH": os.pathsep.join([helpers, *sys.path])}
    command = [sys.executable, "-c", ONE_GRAPH]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=place)
    assert done.returncode == 0, done.stderr


def test_embeddings_are_resized(model, folder, tmp_path):
    auto, x = AutoModelForMaskedLM.from_pretrained(folder), some_tokens(model)
    size = model.tokenizer.vocabulary.size
    with torch.no_grad():
        before = auto(x).logits
        auto.resize_token_embeddings(size + 3)
        torch.testing.assert_close(auto(x).logits[..., :size], before)
    clean = x % 100
    assert auto(clean, labels=clean).loss.isfinite()
    auto.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert again.config.vocab_size == again.method.vocabulary.size == size + 3
    assert unmask.load(tmp_path, device="cpu").tokenizer.vocabulary.size == size + 3
    assert "lies outside" in refused(lambda: auto.resize_token_embeddings(3))


def test_a_tied_head_stays_tied(model, tmp_path):
    settings = {"width": 16, "depth": 1, "heads": 2, "tied_head": True}
    config = from_dict(to_dict(model.config) | {"backbone": {"name": "dit", **settings}})
    method = build_method(config, model.tokenizer.vocabulary)
    auto = UnmaskForMaskedLM.from_model(unmask.Model(method, model.tokenizer, config))
    size, x = model.tokenizer.vocabulary.size, some_tokens(model)
    auto.resize_token_embeddings(size + 3)
    auto.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    loaded = unmask.load(tmp_path, device="cpu").method
    with torch.no_grad():
        expected = auto(x).logits
        torch.testing.assert_close(again(x).logits, expected)
    for network in (auto.backbone, again.backbone, loaded.backbone):
        assert network.head.weight is network.embedding.weight
        assert network.head.bias.shape == (size + 3,)


def test_auto_classes_refuse_weights_that_are_not_finite(model, tmp_path):
    network = UnmaskForMaskedLM.from_model(model)
    with torch.no_grad():
        network.backbone.head.weight[3] = torch.nan
    network.save_pretrained(tmp_path)
    said = [refused(lambda: AutoModelForMaskedLM.from_pretrained(tmp_path))]
    said.append(refused(lambda: unmask.load(tmp_path, device="cpu")))
    assert all("NaN or infinity in backbone.head.weight" in line for line in said)


@torch.no_grad()
def test_a_row_is_continued_by_masks_up_to_the_length_of_the_configuration(model, tmp_path):
    network, tokens = UnmaskForMaskedLM.from_model(model), some_tokens(model)
    mask_id, length = network.config.mask_token_id, tokens.shape[1]
    tokens[:, -2:] = mask_id
    longer = torch.cat([tokens, torch.full((len(tokens), 4), mask_id)], 1)
    expected = network(longer).logits[:, :length]
    network.config.row_length = length + 4
    seen = torch.ones_like(tokens)
    seen[:, -1] = 0  # a mask that the caller leaves out stands for text all the same
    positions = torch.arange(length).expand(len(tokens), -1)
    for given in (
        {},
        {"attention_mask": seen},
        {"attention_mask": seen, "position_ids": positions},
    ):
        found = network(tokens, output_hidden_states=True, **given)
        assert torch.allclose(found.logits, expected, atol=1e-6)
        assert all(layer.shape[1] == length for layer in found.hidden_states)
    network.config.row_length = length  # a row of that length stays as it is
    assert torch.equal(network(tokens).logits, UnmaskForMaskedLM.from_model(model)(tokens).logits)
    network.config.row_length = 12
    network.save_pretrained(tmp_path / "network")
    assert UnmaskForMaskedLM.from_pretrained(tmp_path / "network").config.row_length == 12
    assert unmask.load(tmp_path / "network").length == model.length
    for wrong in (0, -1, 2.5, "all", True):
        with pytest.raises(UnmaskError, match="row_length must be 1 or more"):
            UnmaskConfig(row_length=wrong)


@pytest.mark.parametrize("full", [True, False])
def test_a_full_disk_is_a_system_error(model, monkeypatch, tmp_path, full):
    text = "I/O error: No space left on device (os error 28)" if full else "another fault"

    def fails(*_: object, **__: object) -> None:
        raise SafetensorError(text)

    monkeypatch.setattr("huggingface_hub.save_torch_state_dict", fails)
    with pytest.raises(OSError if full else SafetensorError) as found:
        model.save_pretrained(tmp_path / "model")
    assert (getattr(found.value, "errno", None) == 28) == full
    assert "\n" not in str(found.value) and not (tmp_path / "model").exists()

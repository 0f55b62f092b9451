"""Models that are saved in the hub's layout are the same after loading,
also through transformers.
"""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from hub_models import TEXT, logits, refused, some_tokens, tiny
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer

import unmask
import unmask.integrations.transformers
from unmask.backbones.dit import DiT
from unmask.config.components import build_method
from unmask.data.tokenizers.gaps import parse_blanks
from unmask.formats import huggingface
from unmask.formats import read as reading
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM, UnmaskModel

TEXTS = [TEXT, "", " .", "日本 Z\n\n x  y"]


def masked(model: unmask.Model, tokens: torch.Tensor) -> torch.Tensor:
    """The logits with MASK excluded, as the classes of transformers return them."""
    found = logits(model, tokens)
    found[..., model.tokenizer.vocabulary.mask_id] = -torch.inf
    return found


@torch.no_grad()
def test_a_round_trip_changes_no_bit(model, folder, tmp_path):
    again, tokens = unmask.load(folder), some_tokens(model)
    auto = AutoModelForMaskedLM.from_pretrained(folder)
    assert type(auto) is UnmaskForMaskedLM
    for name, tensor in model.method.state_dict().items():
        assert torch.equal(again.method.state_dict()[name], tensor)
        assert torch.equal(auto.state_dict()[name], tensor)
    model.method.serve()  # as in a loaded model
    assert torch.equal(auto(tokens).logits, masked(model, tokens))
    assert torch.equal(logits(again, tokens), logits(model, tokens))
    assert again.config == model.config and again.defaults == model.defaults
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    auto.save_pretrained(tmp_path)  # written and read by transformers
    assert torch.equal(
        AutoModelForMaskedLM.from_pretrained(tmp_path)(tokens).logits, auto(tokens).logits
    )


@pytest.mark.parametrize(
    "swap",
    [
        lambda p, new: p.copy_(new),
        lambda p, new: p.data.copy_(new),
    ],  # the second bypasses autograd's version counter
)
def test_prepared_weights_follow_changes_of_the_weights(model, swap):
    tokens, gaps = some_tokens(model), torch.full((2, 9), model.tokenizer.vocabulary.mask_id)
    network, other = UnmaskForMaskedLM.from_model(model), UnmaskForMaskedLM.from_model(model)
    ask = {
        "logits": lambda asked: asked(tokens).logits,
        "loss": lambda asked: asked.eval()(tokens, labels=tokens).loss,
        "text": lambda asked: asked.generate(gaps, seed=1),
    }
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(-1.5)
        for name, answer in ask.items():
            before, expected = network(tokens).logits, answer(other)
            old = [parameter.clone() for parameter in network.parameters()]
            for parameter, new in zip(network.parameters(), other.parameters(), strict=True):
                swap(parameter, new)
            assert torch.equal(answer(network), expected), name
            for parameter, new in zip(network.parameters(), old, strict=True):
                swap(parameter, new)
            assert torch.equal(network(tokens).logits, before)
            assert not torch.equal(answer(network), expected), name


def test_weights_are_prepared_once_per_text_and_also_in_inference_mode(model, monkeypatch):
    tokens, times = some_tokens(model), []
    freeze = DiT.freeze
    monkeypatch.setattr(DiT, "freeze", lambda *args: times.append(1) or freeze(*args))
    with torch.inference_mode():
        network = UnmaskForMaskedLM.from_model(model)
        expected = network(tokens).logits
    with torch.no_grad():
        assert torch.equal(UnmaskForMaskedLM.from_model(model)(tokens).logits, expected)
    times.clear()
    UnmaskForMaskedLM.from_model(model).generate(max_length=9, steps=4, seed=1)
    assert len(times) == 1


@pytest.mark.parametrize("kind", [AutoModel, AutoModelForMaskedLM])
def test_incomplete_weights_are_refused(folder, tmp_path, kind):
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    tensors = load_file(copy / "model.safetensors")
    gone = next(name for name in tensors if "qkv" in name)

    def write(changed: dict[str, torch.Tensor]) -> None:
        save_file(changed, copy / "model.safetensors", metadata={"format": "pt"})

    write({name: tensor for name, tensor in tensors.items() if name != gone})
    for load in (kind.from_pretrained, unmask.load):
        assert f" does not fit: {gone} is missing" in refused(lambda load=load: load(copy))
    write({**tensors, gone: tensors[gone][1:].clone()})
    told = refused(lambda: kind.from_pretrained(copy, ignore_mismatched_sizes=True))
    assert told == f"{copy} does not fit: {gone} has another shape; save it again"
    write(tensors)
    network, info = kind.from_pretrained(copy, output_loading_info=True)
    assert isinstance(network, UnmaskModel | UnmaskForMaskedLM) and not info["missing_keys"]


def test_a_network_from_a_configuration_has_the_packages_initial_weights(model, folder):
    config = AutoConfig.from_pretrained(folder)
    torch.manual_seed(1)
    network = AutoModelForMaskedLM.from_config(config)
    torch.manual_seed(1)
    ours = build_method(model.config, model.tokenizer.vocabulary).state_dict()
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, ours[name]), name


def test_a_folder_with_other_files_is_not_overwritten(model, folder, tmp_path):
    target = shutil.copytree(folder, tmp_path / "clone")
    model.save_pretrained(target)  # replaces an earlier model
    (target / "diary.txt").write_text("dear diary")
    assert "holds 'diary.txt', which is no part of a model" in refused(
        lambda: model.save_pretrained(target)
    )
    assert (target / "diary.txt").is_file() and (target / "config.json").is_file()
    other = tmp_path / "bert"
    other.mkdir()
    (other / "config.json").write_text('{"model_type": "bert"}')
    assert "is no unmask model" in refused(lambda: model.save_pretrained(other))
    assert "is a file" in refused(lambda: model.save_pretrained(other / "config.json"))


@torch.no_grad()
@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters", "text8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_model_saved_by_transformers_is_loaded(kind, dtype, tmp_path):
    model = tiny(kind)
    model = replace(model, tokenizer=model.tokenizer.with_labels(["good", "bad"]))
    model = unmask.Model(
        build_method(model.config, model.tokenizer.vocabulary),
        model.tokenizer,
        model.config,
        {"length": 10, "top_k": 50},
    )
    model.save_pretrained(tmp_path / "ours")
    auto = AutoModelForMaskedLM.from_pretrained(tmp_path / "ours", dtype=dtype)
    auto.save_pretrained(tmp_path / "theirs")
    bare = unmask.load(tmp_path / "theirs")  # without a tokenizer, unless it needs no file
    assert bare.tokenizer.vocabulary == model.tokenizer.vocabulary
    assert bare.tokenizer.kind == (kind if kind in ("bytes", "text8") else "absent")
    AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "tokenizer").exists()
    again, ours = unmask.load(tmp_path / "theirs"), model.tokenizer
    assert type(again.tokenizer) is type(ours)
    assert (again.tokenizer.vocabulary, again.tokenizer.labels) == (ours.vocabulary, ours.labels)
    for text in [*TEXTS, "[MASK] and [PAD] are text, <[good]> too"]:
        assert again.tokenizer.encode(text) == ours.encode(text)
        assert again.tokenizer.decode(ours.encode(text)) == ours.decode(ours.encode(text))
    for name, tensor in model.method.state_dict().items():
        assert torch.equal(again.method.state_dict()[name], tensor.to(dtype).float())
    assert again.config == model.config and again.defaults == model.defaults
    assert again.generate("The", label="good", seed=1)[0].ids


def test_weights_that_are_no_floats_do_not_fit(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    tensors = load_file(copy / "model.safetensors")
    save_file({name: tensor.long() for name, tensor in tensors.items()}, copy / "model.safetensors")
    assert "is int64[" in refused(lambda: unmask.load(copy))


@torch.no_grad()
def test_weights_beyond_a_size_go_into_several_files(model, tmp_path):
    model.save_pretrained(tmp_path / "a", shard="10KB")
    files = sorted(path.name for path in (tmp_path / "a").glob("*.safetensors"))
    assert len(files) > 3 and "model.safetensors" not in files
    tokens = some_tokens(model)
    torch.testing.assert_close(logits(unmask.load(tmp_path / "a"), tokens), logits(model, tokens))
    AutoModelForMaskedLM.from_pretrained(tmp_path / "a")
    other = tmp_path / "a" / "adapter.safetensors"
    shutil.copy(tmp_path / "a" / files[0], other)
    assert "holds 'adapter.safetensors'" in refused(lambda: model.save_pretrained(tmp_path / "a"))
    other.unlink()
    model.save_pretrained(tmp_path / "a")  # the earlier parts are removed
    left = [path.name for path in (tmp_path / "a").glob("*.safetensors*")]
    assert left == ["model.safetensors"]


@torch.no_grad()
def test_padding_has_no_effect_and_outputs_are_dataclasses(model, folder):
    auto, features = AutoModelForMaskedLM.from_pretrained(folder), AutoModel.from_pretrained(folder)
    assert type(features) is UnmaskModel
    assert AutoConfig.from_pretrained(folder).mask_token_id == model.tokenizer.vocabulary.mask_id
    tokens = some_tokens(model)
    seen = torch.arange(9) < torch.tensor([[9], [5], [2]])
    padded = auto(tokens, attention_mask=seen.long())
    for row, length in enumerate([9, 5, 2]):
        alone = auto(tokens[[row], :length]).logits[0]
        torch.testing.assert_close(padded.logits[row, :length], alone)
    assert torch.equal(auto(tokens, return_dict=False)[0], auto(tokens).logits)
    h = features(tokens).last_hidden_state
    torch.testing.assert_close(
        auto.backbone.logits(h)[..., :-1], auto(tokens).logits[..., :-1], rtol=0, atol=1e-5
    )


@torch.no_grad()
def test_a_time_conditioned_network_computes_the_time_from_the_masks():
    aware = UnmaskForMaskedLM.from_model(tiny(backbone__time_conditioning="true"))
    mask_id = aware.config.mask_token_id
    tokens = torch.tensor([[1, 2, mask_id, mask_id], [1, 2, 3, mask_id]])
    times = torch.tensor([0.5, 0.25], dtype=torch.float64) / (1 - 1e-3)
    torch.testing.assert_close(aware(tokens).logits, aware(tokens, timesteps=times).logits)
    assert not torch.allclose(
        aware(tokens).logits[..., 0], aware(tokens, timesteps=times.flip(0)).logits[..., 0]
    )


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters", "text8"])
def test_auto_tokenizer_has_the_ids_of_the_tokenizer(kind, tmp_path):
    model = tiny(kind)
    model.save_pretrained(tmp_path / "a")
    theirs, ours = AutoTokenizer.from_pretrained(tmp_path / "a"), model.tokenizer
    v = ours.vocabulary
    for text in TEXTS:
        ids = theirs(text)["input_ids"]
        assert ids == [v.bos_id, *ours.encode(text), v.eos_id]
        assert theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)
    assert (theirs.mask_token_id, theirs.pad_token_id) == (v.mask_id, v.pad_id)
    gaps = "The cat [MASK] on[MASK] the"
    assert theirs(gaps)["input_ids"] == [v.bos_id, *parse_blanks(gaps, ours), v.eos_id]
    assert len(theirs) == v.size


def test_fill_mask_and_generate(model, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    auto = AutoModelForMaskedLM.from_pretrained(folder)
    pipe = transformers.pipeline("fill-mask", model=str(folder), tokenizer=tokenizer)
    v = model.tokenizer.vocabulary
    best = pipe("The cat [MASK] on the mat", top_k=v.size)
    assert best[0]["score"] >= best[1]["score"] > 0
    assert v.mask_id not in [row["token"] for row in best if row["score"] > 0]
    ids = tokenizer("The cat [MASK] on", return_tensors="pt")["input_ids"]
    filled = auto.generate(ids, seed=3)
    assert filled.shape == ids.shape and v.mask_id not in filled
    assert torch.equal(filled[ids != v.mask_id], ids[ids != v.mask_id])
    # with the same sampler, prompt and seed the text is the package's own
    prompt = tokenizer("The cat", return_tensors="pt")
    written = auto.generate(**prompt, max_length=12, sampler="first_hitting", seed=5)
    ours = model.generate("The cat", length=12, sampler="first_hitting", seed=5)
    assert written[0].tolist()[: len(ours[0].ids)] == ours[0].ids
    several = auto.generate(max_new_tokens=4, num_return_sequences=3, seed=1)
    assert len(several) == 3 and several.shape[1] <= 5
    assert "unknown option 'samplr'" in refused(lambda: auto.generate(samplr="x"))


def test_the_card_contains_the_known_facts(model, folder, tmp_path):
    card = (folder / "README.md").read_text()
    assert card.startswith("---\n") and "license: 'apache-2.0'" in card
    assert "builtin:pydoc" in card and "not measured" in card
    bound = {
        "nats": 1.5,
        "error": 0.001,
        "bits_per_byte": 2.5,
        "bits_per_byte_error": 0.002,
        "certificate": "upper",
        "data": "notes.txt",
        "packing": "wrap",
        "tokens": 100,
        "draws": 8,
    }
    model.save_pretrained(tmp_path / "a", card={"bound": bound, "about": "About notes."})
    card = (tmp_path / "a" / "README.md").read_text()
    assert (
        "bound on notes.txt | ≤ 2.5000 ± 0.0020 bits per byte, ≤ 1.5000 ± 0.0010 nats" in card
        and "About notes." in card
    )
    model.save_pretrained(tmp_path / "a", card="# Mine\n")
    assert (tmp_path / "a" / "README.md").read_text().endswith("---\n# Mine\n")


def test_an_autoregressive_model_comes_back_too(tmp_path):
    model = tiny(method="autoregressive")
    model.save_pretrained(tmp_path / "a")
    again, tokens = unmask.load(tmp_path / "a"), some_tokens(model)
    torch.testing.assert_close(logits(again, tokens), logits(model, tokens))
    assert "fills no gaps" in refused(lambda: AutoModelForMaskedLM.from_pretrained(tmp_path / "a"))
    AutoModel.from_pretrained(tmp_path / "a")


def test_the_error_of_a_missing_library_has_the_install_command(model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: model.save_pretrained(tmp_path / "a"), lambda: reading.download("a/b")):
        assert "pip install -e '.[hub]'" in refused(call)


def test_damage_is_one_line(folder, tmp_path):
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    tree = json.loads((copy / "config.json").read_text())
    for change in (
        {"run": 1},
        {"run": {"backbone": {"name": "x"}}},
        {"vocabulary": None, "run": None},
    ):
        (copy / "config.json").write_text(json.dumps(tree | change))
        refused(lambda: unmask.load(copy))
    (copy / "config.json").write_text("[" * 50_000)
    assert "not JSON" in refused(lambda: unmask.load(copy))
    assert tree["model_type"] == huggingface.MODEL_TYPE

"""A saved model is the same after loading, and a damaged model is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import PROMPTS, TEXTS, content, one_line

import unmask
from unmask.errors import UnmaskError
from unmask.files import storage
from unmask.files.storage import atomic_folder
from unmask.likelihood.calibration import input_products


def test_an_exported_model_is_the_same_model(either, tmp_path):
    either.save(tmp_path / "deep" / "exported")
    copy = unmask.load(tmp_path / "deep" / "exported")
    ours, theirs = either.method.state_dict(), copy.method.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert copy.config == either.config
    assert copy.tokenizer.fingerprint == either.tokenizer.fingerprint
    assert [content(r) for r in copy.generate(PROMPTS)] == [
        content(r) for r in either.generate(PROMPTS)
    ]
    assert copy.perplexity(TEXTS[:3]) == either.perplexity(TEXTS[:3])


def test_loading_draws_no_random_numbers_and_reads_every_file_once(either, tmp_path, monkeypatch):
    either.save(tmp_path / "exported")
    read, digest = [], storage._digest
    monkeypatch.setattr(storage, "_digest", lambda path: (read.append(path), digest(path))[1])
    before = torch.get_rng_state()
    unmask.load(tmp_path / "exported")
    assert torch.equal(torch.get_rng_state(), before)
    assert len(read) == len(set(read)) > 2


def test_saving_replaces_a_model_and_nothing_else(model, left_to_right, tmp_path):
    left_to_right.save(tmp_path / "here")
    model.save(tmp_path / "here")
    assert unmask.load(tmp_path / "here").config == model.config
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "diary.txt").write_text("dear diary")
    with pytest.raises(UnmaskError, match="no unmask model"):
        model.save(notes)
    assert (notes / "diary.txt").read_text() == "dear diary"
    for file, reason in {"diary.txt": "no part of a model", "card.json": "a card of its"}.items():
        (tmp_path / "here" / file).write_text("{}")
        with pytest.raises(UnmaskError, match=reason):
            model.save(tmp_path / "here")
        (tmp_path / "here" / file).unlink()


def test_a_run_is_loaded_before_it_is_finished(run, model, tmp_path):
    running = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(running / "model")  # it is written when training ends
    early = unmask.load(running)
    ours, theirs = early.method.state_dict(), model.method.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert str(early.generate("The")[0]) == str(model.generate("The")[0])
    shutil.rmtree(running / "checkpoints")
    with pytest.raises(UnmaskError, match="no checkpoint yet"):
        unmask.load(running)


@pytest.mark.parametrize("text", ["", "seed: [", "nonsense: 1", "\0", "seed: -"])
def test_a_run_with_a_damaged_configuration_is_refused(run, tmp_path, text):
    running = Path(shutil.copytree(run, tmp_path / "run"))
    shutil.rmtree(running / "model")
    (running / "config.yaml").write_text(text)
    with pytest.raises(UnmaskError) as caught:
        unmask.load(running)
    one_line(caught)


def test_a_model_in_bf16_is_rounded_once_and_half_as_large(model, tmp_path):
    model.save(tmp_path / "full")
    model.save(tmp_path / "half", "bf16")
    copy = unmask.load(tmp_path / "half")
    for name, weight in model.method.state_dict().items():
        found = copy.method.state_dict()[name]
        assert found.dtype == weight.dtype
        assert torch.equal(found, weight.bfloat16().float())
    sizes = [(tmp_path / each / "model.safetensors").stat().st_size for each in ("full", "half")]
    assert 0.48 < sizes[1] / sizes[0] < 0.54
    copy.save(tmp_path / "again", "bf16")
    files = [(tmp_path / each / "model.safetensors").read_bytes() for each in ("half", "again")]
    assert files[0] == files[1]
    with pytest.raises(UnmaskError, match="unknown precision 'fp16'"):
        model.save(tmp_path / "other", "fp16")


def test_a_model_in_int8_has_a_bounded_error_and_a_quarter_of_the_size(model, tmp_path):
    for precision in ("fp32", "int8"):
        model.save(tmp_path / precision, precision)
    copy = unmask.load(tmp_path / "int8")
    for name, weight in model.method.state_dict().items():
        found = copy.method.state_dict()[name]
        assert found.dtype == weight.dtype
        if weight.ndim == 2:
            largest = weight.abs().amax(1, keepdim=True)
            assert ((found - weight).abs() <= largest / 254 * (1 + 1e-5)).all(), name
        else:
            assert torch.equal(found, weight.bfloat16().float()), name
    files = {name: tmp_path / name / "model.safetensors" for name in ("fp32", "int8", "again")}
    assert files["int8"].stat().st_size < 0.4 * files["fp32"].stat().st_size
    copy.save(tmp_path / "again", "int8")
    stored, again = (load_file(files[name]) for name in ("int8", "again"))
    for name, tensor in stored.items():
        if tensor.dtype == torch.int8:
            assert torch.equal(tensor, again[name]), name


def test_a_model_in_int4_has_an_eighth_of_the_size_and_is_stored_again_without_loss(
    model, tmp_path
):
    for precision in ("int8", "int4"):
        model.save(tmp_path / precision, precision)
    copy = unmask.load(tmp_path / "int4")
    stored = load_file(tmp_path / "int4" / "model.safetensors")
    packed = {name for name, tensor in stored.items() if tensor.dtype == torch.uint8}
    assert packed
    for name, weight in model.method.state_dict().items():
        found = copy.method.state_dict()[name]
        if name in packed:
            largest = weight.view(-1, 32).abs().amax(1)
            errors = (found - weight).view(-1, 32).square().mean(1)
            assert (errors <= (largest / 8).square()).all(), name
            assert errors.mean() < 0.015 * weight.square().mean(), name
    files = {name: tmp_path / name / "model.safetensors" for name in ("int8", "int4", "again")}
    assert files["int4"].stat().st_size < 0.75 * files["int8"].stat().st_size
    copy.save(tmp_path / "again", "int4")
    again = unmask.load(tmp_path / "again").method.state_dict()
    assert all(torch.equal(copy.method.state_dict()[name], again[name]) for name in packed)


def test_the_text_of_a_calibration_lowers_the_error_of_the_layers(model, tmp_path):
    model.save(tmp_path / "plain", "int4")
    model.save(tmp_path / "calibrated", "int4", calibration=TEXTS)
    products, ours = input_products(model, TEXTS), model.method.state_dict()
    assert len(products) >= 8

    def error(folder: str) -> float:
        stored = unmask.load(tmp_path / folder).method.state_dict()
        changes = {name: stored[name] - ours[name] for name in products}
        return sum(float((d @ products[name]).mul(d).sum()) for name, d in changes.items())

    assert error("calibrated") < 0.7 * error("plain")
    with pytest.raises(UnmaskError, match="calibration is for the precision int4"):
        model.save(tmp_path / "other", "int8", calibration=TEXTS)


@pytest.mark.parametrize("precision", ["int8", "int4"])
@pytest.mark.parametrize("wrong", ["missing", "short", "float", "nan"])
def test_scales_that_do_not_fit_their_matrix_are_refused(model, tmp_path, wrong, precision):
    model.save(tmp_path / "int8", precision)
    file = tmp_path / "int8" / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("_scale"))
    scale = tensors.pop(name)
    if wrong != "missing":
        new = {"short": scale[:-1].clone(), "float": scale.double(), "nan": scale * float("nan")}
        tensors[name] = new[wrong]
    with atomic_folder(tmp_path / "wrong") as folder:  # with a manifest that fits
        shutil.copytree(tmp_path / "int8", folder, dirs_exist_ok=True)
        (folder / "manifest.json").unlink()
        save_file(tensors, folder / "model.safetensors")
    expected = {"missing": r"is (u?int8|not expected)", "nan": "NaN"}.get(wrong, "per row")
    with pytest.raises(UnmaskError, match=expected) as caught:
        unmask.load(tmp_path / "wrong")
    one_line(caught)


def test_weights_of_another_precision_than_declared_are_refused(model, tmp_path):
    model.save(tmp_path / "half", "bf16")
    content = json.loads((tmp_path / "half" / "model.json").read_text())
    with atomic_folder(tmp_path / "wrong") as wrong:  # with a manifest that fits
        shutil.copytree(tmp_path / "half", wrong, dirs_exist_ok=True)
        (wrong / "manifest.json").unlink()
        (wrong / "model.json").write_text(json.dumps(content | {"precision": "fp32"}))
    with pytest.raises(UnmaskError, match=r"does not fit: .* is bfloat16.* instead of float32"):
        unmask.load(tmp_path / "wrong")


def test_sampling_defaults_are_saved_with_a_model(model, tmp_path):
    defaults = {"length": "9", "steps": "3", "temperature": "0.5"}
    model.save(tmp_path / "model", defaults=defaults)
    usual = unmask.load(tmp_path / "model")
    assert usual.defaults == {"length": 9, "steps": 3, "temperature": 0.5}
    assert content(usual.generate()[0]) == content(
        model.generate(length=9, steps=3, temperature=0.5)[0]
    )
    assert content(usual.generate(steps=None)[0]) == content(usual.generate()[0])
    frames = list(usual.stream("The"))
    assert frames[-1].tokens.shape == (1, 9)
    # given options win over defaults, and a given sampler has its own steps
    given = {"length": 12, "temperature": 1.0, "sampler": "first_hitting"}
    assert content(usual.generate(**given)[0]) == content(model.generate(**given)[0])
    assert usual.generate(grid="1,0.5,0")[0].calls <= 2  # a grid of times has its own steps
    gap = "The [MASK:14] sat on the [MASK:2]."
    # a gap has its own steps; its tokens are chosen with the model's defaults unless options are
    # given
    cooler = content(model.fill(gap, temperature=0.5)[0])
    assert content(usual.fill(gap)[0]) == content(usual.fill(gap, temperature=None)[0]) == cooler
    assert content(usual.fill(gap, temperature=1.0)[0]) == content(model.fill(gap)[0]) != cooler
    text, part = "The cat sat on the mat and the dog sat on the cat.", {"remask": 0.9}
    cooler = content(model.edit(text, temperature=0.5, **part)[0])
    assert content(usual.edit(text, **part)[0]) == cooler != content(model.edit(text, **part)[0])
    usual.save(tmp_path / "copy", defaults={"steps": 5})
    model.save(tmp_path / "remasks", defaults={**defaults, "sampler": "remask"})
    remasks, how = unmask.load(tmp_path / "remasks"), {"temperature": 0.5, "sampler": "remask"}
    again = content(model.fill(gap, **how)[0])
    assert content(remasks.fill(gap)[0]) == again != content(usual.fill(gap)[0])
    assert unmask.load(tmp_path / "copy").defaults == {**usual.defaults, "steps": 5}


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"seed": 3}, "unknown default 'seed'"),
        ({"steps": "few"}, "steps: 'few' is not a whole number"),
        ({"length": "long"}, "length: 'long' is not a whole number"),
        ({"length": 1}, "length must be 2 or more"),
        ({"length": 10**11}, "1048576 at most"),
        ({"sampler": "nope"}, "unknown sampler 'nope'"),
    ],
)
def test_defaults_are_checked_when_they_are_saved(model, tmp_path, defaults, message):
    with pytest.raises(UnmaskError, match=message) as caught:
        model.save(tmp_path / "model", defaults=defaults)
    one_line(caught)
    assert not (tmp_path / "model").exists()


FILES = ["model.safetensors", "model.json", "manifest.json"]
FILES += ["tokenizer/vocabulary.json", "tokenizer/tokenizer.json"]


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", [cut, flip, Path.unlink], ids=["cut", "flipped", "missing"])
def test_a_damaged_exported_model_is_refused(model, tmp_path, name, damage: Callable):
    model.save(tmp_path / "model")
    assert sorted(FILES) == sorted(
        path.relative_to(tmp_path / "model").as_posix()
        for path in (tmp_path / "model").rglob("*")
        if path.is_file()
    )
    damage(tmp_path / "model" / name)
    with pytest.raises(UnmaskError) as caught:
        unmask.load(tmp_path / "model")
    one_line(caught)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    for path, message in [
        (tmp_path / "nowhere", "no model"),
        (tmp_path, "it has no model.json and no config.yaml"),
    ]:
        with pytest.raises(UnmaskError, match=message) as caught:
            unmask.load(path)
        one_line(caught)
    with pytest.raises(UnmaskError, match="no model"):
        unmask.load(__file__)

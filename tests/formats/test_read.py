"""Checkpoints of other projects have the same outputs here, and misfits are named in the error."""

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from hub_models import FIXTURE, fill, logits, refused
from safetensors.torch import load_file, save_file

import unmask
from unmask.backbones.layers.state import KVState
from unmask.shapes import Batch

CLOSE = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def expected() -> dict[str, torch.Tensor]:
    return load_file(FIXTURE / "expected.safetensors")


@pytest.fixture
def folder(tmp_path) -> Path:
    """The published layout: config.json and model.safetensors."""
    for name in ("config.json", "model.safetensors"):
        shutil.copy(FIXTURE / name, tmp_path)
    return tmp_path


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def retensor(folder: Path, how) -> None:
    tensors = load_file(folder / "model.safetensors")
    how(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_the_published_layout_gives_the_authors_logits(folder, expected):
    model = unmask.load(folder)
    assert model.config.method.name == "mdlm" and model.length == 24
    assert model.tokenizer.vocabulary == unmask.Vocabulary(98, 97)
    ours = logits(model, expected["z_t"])
    torch.testing.assert_close(ours, expected["logits_unconditioned"], **CLOSE)
    change(folder / "config.json", time_conditioning=True)
    ours = logits(unmask.load(folder), expected["z_t"], expected["sigma"])
    torch.testing.assert_close(ours, expected["logits_time_conditioned"], **CLOSE)
    assert "came without a tokenizer" in refused(lambda: model.generate("The"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    """A tiny GPT-2 of transformers, and its folder with a tokenizer of 60 ids."""
    folder = tmp_path_factory.mktemp("gpt2")
    config = transformers.GPT2Config(
        vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=20,
        bos_token_id=59, eos_token_id=59,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).eval()
    fill(theirs)
    theirs.save_pretrained(folder)
    write_gpt2_tokenizer(folder)
    return theirs, folder


def write_gpt2_tokenizer(folder, **more) -> None:
    letters = {chr(97 + i): i for i in range(26)} | {f"w{i}": 26 + i for i in range(33)}
    model = {"type": "WordLevel", "vocab": letters | {"<|endoftext|>": 59}, "unk_token": "a"}
    tree = {"version": "1.0", "added_tokens": [], "model": model, **more}
    (folder / "tokenizer.json").write_text(json.dumps(tree))


X = torch.randint(0, 60, (3, 9), generator=torch.Generator().manual_seed(0))
PROMPT = torch.tensor([[59, *X[0, 1:].tolist()]])


@torch.no_grad()
def test_gpt2_has_the_logits_of_transformers(gpt2):
    theirs, folder = gpt2
    model = unmask.load(folder)
    assert model.tokenizer.vocabulary == unmask.Vocabulary(61, 60, None, 59, 59)
    torch.testing.assert_close(logits(model, X)[..., :60], theirs(X).logits, **CLOSE)
    assert model.generate("a", length=8)[0].ids[0] == 59


@torch.no_grad()
def test_gpt2_reads_a_text_in_pieces_with_a_cache(gpt2):
    backbone, cache = unmask.load(gpt2[1]).method.backbone, KVState(9)
    pieces = [backbone.features(part, state=cache) for part in X.split([4, 1, 1, 3], 1)]
    torch.testing.assert_close(torch.cat(pieces, 1), backbone.features(X))


@torch.no_grad()
def test_gpt2_has_the_nats_of_transformers_after_its_bos(gpt2):
    theirs, folder = gpt2
    costs = -theirs(PROMPT).logits.log_softmax(-1)[0, :-1].gather(1, PROMPT[0, 1:, None])[:, 0]
    valid = torch.ones_like(PROMPT, dtype=torch.bool)
    losses = unmask.load(folder).method.nll(Batch(PROMPT, valid), None).per_token()[0]
    torch.testing.assert_close(losses[1:], costs, **CLOSE)
    assert losses[0] == 0


@torch.no_grad()
def test_gpt2_continues_a_prompt_token_by_token(gpt2):
    theirs, folder = gpt2
    denoise, t = unmask.load(folder).method.denoiser(), torch.ones(1, dtype=torch.float64)

    def check(row: torch.Tensor, column: int) -> None:
        found = denoise(row, t, (torch.tensor([0]), torch.tensor([column])))[0, :60]
        expected = theirs(row).logits.log_softmax(-1)[0, column - 1]
        torch.testing.assert_close(found, expected, **CLOSE)

    for column in (3, 4, 5, 2):
        check(PROMPT, column)
    changed = PROMPT.clone()
    changed[0, 2] = (changed[0, 2] + 1) % 59
    check(changed, 5)  # the cache is cropped from the changed token on
    assert "first token" in refused(
        lambda: denoise(PROMPT, t, (torch.tensor([0]), torch.tensor([0])))
    )


def test_the_mask_of_gpt2_differs_from_a_pad_token(gpt2, tmp_path):
    theirs, folder = gpt2
    shutil.copytree(folder, tmp_path / "gpt2")
    pad = {"id": 60, "content": "[PAD]", "special": True, "lstrip": False, "rstrip": False,
           "normalized": False, "single_word": False}  # fmt: skip
    write_gpt2_tokenizer(tmp_path / "gpt2", added_tokens=[pad])
    model = unmask.load(tmp_path / "gpt2")
    assert model.tokenizer.vocabulary == unmask.Vocabulary(62, 61, 60, 59, 59)
    (tmp_path / "gpt2" / "tokenizer.json").unlink()
    bare = unmask.load(tmp_path / "gpt2")  # without a tokenizer; MASK is an extra id
    assert bare.tokenizer.vocabulary.mask_id == 60
    with torch.no_grad():
        for loaded in (model, bare):
            torch.testing.assert_close(logits(loaded, X)[..., :60], theirs(X).logits, **CLOSE)


HEAD = "backbone.output_layer.linear.bias"
MISFITS = {
    "missing": (lambda t: t.pop(HEAD), "head.bias is missing"),
    "too many": (lambda t: t.update(x=torch.ones(1)), "x is not expected"),
    "shape": (lambda t: t.update({HEAD: torch.ones(3)}), "head.bias is float32[3]"),
    "dtype": (lambda t: t.update({HEAD: torch.ones(98, dtype=torch.int64)}), "weights are floats"),
    "NaN": (lambda t: t.update({HEAD: torch.full((98,), torch.nan)}), "NaN or infinity"),
    "rotation": (
        lambda t: t["backbone.rotary_emb.inv_freq"].mul_(2),
        "inv_freq does not hold rotary frequencies of base 10,000",
    ),
}


@pytest.mark.parametrize("name", MISFITS)
def test_weights_that_do_not_fit_are_named(folder, name):
    how, message = MISFITS[name]
    retensor(folder, how)
    assert message in refused(lambda: unmask.load(folder))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_heads": None}, "no setting n_heads"),
        ({"n_heads": "4"}, "n_heads is '4', which is no int"),
        ({"n_blocks": 10**9}, "backbone.depth must be 0 or more"),
        ({"n_blocks": 3}, "is missing"),
        (
            {"model_type": "gemma"},
            "type 'gemma', which cannot be read; known types: Dream, Fast_dLLM_Qwen",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(folder, settings, message):
    change(folder / "config.json", **settings)
    assert message in refused(lambda: unmask.load(folder))


def test_weights_in_several_files(folder, expected):
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    files = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, some in files.items():
        save_file({name: tensors[name] for name in some}, folder / file)
    (folder / "model.safetensors").unlink()
    index = folder / "model.safetensors.index.json"
    where = {name: file for file, some in files.items() for name in some}
    index.write_text(json.dumps({"weight_map": where}))
    ours = logits(unmask.load(folder), expected["z_t"])
    torch.testing.assert_close(ours, expected["logits_unconditioned"], **CLOSE)
    index.write_text(json.dumps({"weight_map": where | {names[0]: "../a.safetensors"}}))
    assert "leads out of its folder" in refused(lambda: unmask.load(folder))
    index.unlink()
    assert "model.safetensors is missing" in refused(lambda: unmask.load(folder))

"""The encoder–decoder encodes a source once, and the decoder has the same result with and without a cache."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from tiny_models import one_line

import unmask
from unmask.cli import main
from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.data.load import rows_from
from unmask.data.tokenizers.characters import CharacterTokenizer
from unmask.errors import UnmaskError
from unmask.extensions.pairs.backbones.encoder_decoder import EncoderDecoder
from unmask.likelihood.estimate import nats_by_row
from unmask.methods.method import Serving
from unmask.model import Model
from unmask.randomness import RowStream
from unmask.shapes import Batch, last_of, targets

PAIRS = [("ab", "xyz"), ("c", "y"), ("bacb", "zzyx"), ("aa", "xy")]
SOURCES = [source for source, _ in PAIRS]
DATA = {
    "data.source_field": "a",
    "data.target_field": "b",
    "data.packing": "pad",
    "data.length": "14",
    "data.tokenizer.kind": "characters",
}
SHAPE = {"width": "16", "depth": "2", "heads": "2", "dropout": "0.2", "condition_width": "8"}
LIMITS = {"source_positions": "6", "target_positions": "6"}
HEAD = {**LIMITS, "length_head": "true"}
KINDS = {
    "mdlm, EOS": ("mdlm", {}),
    "mdlm, length": ("mdlm", HEAD),
    "sedd, length": ("sedd", {**HEAD, "time_conditioning": "true"}),
    "autoregressive": ("autoregressive", {**LIMITS, "causal": "true"}),
}
DIFFUSION = [name for name in KINDS if name != "autoregressive"]


def settings(kind: str) -> dict[str, str]:
    method, fields = KINDS[kind]
    fill = str("target_positions" not in fields).lower()
    named = {f"backbone.{name}": value for name, value in {**SHAPE, **fields}.items()}
    return {
        **DATA,
        "method": method,
        "data.fill_target": fill,
        "backbone": "encoder_decoder",
        **named,
    }


def model_of(kind: str, **changed: str) -> Model:
    """An untrained model with no weight at zero."""
    config = resolve({}, list({**settings(kind), **changed}.items()))
    tokenizer = CharacterTokenizer("abcxyz")
    method = build_method(config, tokenizer.vocabulary)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return Model(method, tokenizer, config)


def batch(model: Model) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = rows_from(PAIRS, model.tokenizer, model.config.data)
    given = rows.given(range(len(rows)))
    assert given is not None
    return *rows[range(len(rows))], given


@pytest.mark.parametrize("kind", KINDS)
def test_the_encoder_reads_the_source_only(kind):
    model = model_of(kind)
    x, valid, given = batch(model)
    network = model.method.backbone
    other = x.clone()
    open_ = targets(valid, given)
    other[open_] = model.tokenizer.vocabulary.mask_id
    before = given & ~last_of(given)  # the decoder starts with the source's EOS
    h = network.features(x, valid=valid)
    assert torch.equal(network.features(other, valid=valid)[before], h[before])
    changed = x.clone()
    changed[:, 1] = model.tokenizer.encode("b")[0]
    seen = (network.features(changed, valid=valid) - h).abs().amax(-1) > 1e-6
    assert seen[(x[:, 1] != changed[:, 1])[:, None] & open_].all()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_with_sources_of_any_length_equal_rows_alone(kind):
    model = model_of(kind)
    x, valid, given = batch(model)
    network = model.method.backbone
    h, state = network.features(x, valid=valid), network.encode(x, valid)
    cached = network.features(x, valid=valid, state=state) if not network.causal else h
    at = targets(valid, given).flatten().nonzero()[:, 0]
    torch.testing.assert_close(network.features(x, valid=valid, at=at), h.flatten(0, 1)[at])
    torch.testing.assert_close(cached.flatten(0, 1)[at], h.flatten(0, 1)[at])
    for row, size in enumerate(valid.sum(1).tolist()):
        alone = network.features(x[row : row + 1, :size])[0]
        torch.testing.assert_close(alone, h[row, :size], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", DIFFUSION)
def test_every_sampler_step_uses_the_sources_that_were_encoded_once(kind, monkeypatch):
    model = model_of(kind)
    read = []
    whole = EncoderDecoder._encoded

    def counted(self, inputs, valid):
        read.append(len(inputs))
        return whole(self, inputs, valid)

    monkeypatch.setattr(EncoderDecoder, "_encoded", counted)
    for sampler, n in product(("ancestral:steps=4", "confidence", "first_hitting"), (1, 3)):
        read.clear()
        results = model.generate(SOURCES, sampler=sampler, n=n)
        assert sum(read) == len(SOURCES)
        assert sum(result.calls for result in results) > len(SOURCES)
    read.clear()
    model.generate(SOURCES, batch=2)
    assert sum(read) == len(SOURCES)


@pytest.mark.parametrize("fixed", [False, True], ids=["", "padded"])  # as for CUDA graphs
@pytest.mark.parametrize("kind", DIFFUSION)
def test_the_denoiser_gives_log_x_theta_of_any_rows(kind, fixed):
    model = model_of(kind)
    model.method.serving = Serving(fixed=fixed)
    x, _, given = batch(model)
    v = model.tokenizer.vocabulary
    z = torch.where(given | (x == v.eos_id), x, v.mask_id)
    denoiser = model.method.denoiser()
    for rows in ([0, 1, 2, 3], [2], [3, 0, 0], [1, 2]):
        part, t = z[rows], torch.full((len(rows),), 0.5, dtype=torch.float64)
        at = (part == v.mask_id).nonzero(as_tuple=True)
        expected = model.method.log_x_theta(part, t, at)
        torch.testing.assert_close(denoiser(part, t, at), expected, rtol=1e-4, atol=1e-5)
        shorter = denoiser.up_to(5)
        if model.method.backbone.predicts_length:
            torch.testing.assert_close(shorter(part, t, at), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fixed", [False, True], ids=["", "padded"])
def test_cached_decoding_has_the_exact_likelihood(fixed):
    model = model_of("autoregressive")
    model.method.serving = Serving(fixed=fixed)
    rows = rows_from(PAIRS, model.tokenizer, model.config.data)
    exact = nats_by_row(model.method, rows)["nll"][0]
    x, valid, given = batch(model)
    scored = targets(valid, given)
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):  # a decoder is used again for other sources
        decode, total = model.method.denoiser().decoder(), torch.zeros(4, dtype=torch.float64)
        rows, wanted = x[order], scored[order]
        with torch.inference_mode():
            for column in wanted.any(0).nonzero()[:, 0].tolist():
                row = wanted[:, column].nonzero()[:, 0]
                log_p = decode(rows, column, row)
                total[row] -= log_p.gather(1, rows[row, column][:, None])[:, 0].double()
        torch.testing.assert_close(total, exact[order], rtol=1e-5, atol=1e-5)
        del decode


def test_a_cropped_state_encodes_a_changed_source_again():
    model = model_of("autoregressive")
    x, _, _ = batch(model)
    x = x[:2].clone()
    t, at = torch.zeros(2), (torch.tensor([0, 1]), torch.tensor([6, 6]))
    denoiser = model.method.denoiser()
    with torch.inference_mode():
        denoiser(x, t, at)
        x[0, 1] = model.tokenizer.encode("c")[0]
        torch.testing.assert_close(denoiser(x, t, at), model.method.denoiser()(x, t, at))


@pytest.mark.parametrize("kind", ["mdlm, length", "sedd, length"])
def test_the_bound_of_a_target_has_its_length_and_no_token_for_its_end(kind):
    model = model_of(kind)
    x, valid, given = batch(model)
    method, scored = model.method, targets(valid, given)
    for step in range(4):
        noise = method.noise(RowStream(0, step, range(len(x)), len(x)), scored)
        assert not (noise.masked & last_of(scored)).any()
        losses = method.nll(Batch(x, valid, given), noise, full_bound=True)
        lengths = method.backbone.encode(x, valid).source.lengths.log_softmax(-1)
        expected = -lengths[torch.arange(len(x)), scored.sum(1) - 1]
        torch.testing.assert_close(losses.terms["length"].sum(1), expected)
        torch.testing.assert_close(losses.total, losses.per_token().sum())
    stream = RowStream(0, 0, range(len(x)), len(x))
    plain, method.few_shapes = method(Batch(x, valid, given), stream), True
    graph = method(Batch(x, valid, given), stream)  # as in a CUDA graph
    torch.testing.assert_close(graph, plain)
    assert model.perplexity(PAIRS, draws=2).tokens == sum(len(target) + 1 for _, target in PAIRS)
    with pytest.raises(UnmaskError, match="leave order, orders and pseudo out"):
        model_of("mdlm, length").perplexity(PAIRS, order="left_to_right")


@pytest.mark.parametrize("kind", ["mdlm, length", "sedd, length"])
def test_targets_have_the_length_that_the_head_predicts(kind):
    model = model_of(kind)
    with torch.no_grad():
        head = model.method.backbone.length_head
        head.weight.zero_()
        head.bias.copy_(torch.tensor([-9.0, -9, -9, 9, -9, -9]))
    for strategy in ("deterministic", "stochastic"):
        for result in model.generate(SOURCES, strategy=strategy):
            assert (len(result.text), len(result.ids)) == (3, 4)
    frames = list(model.stream("ab"))
    assert frames[-1].tokens.shape == frames[0].tokens.shape
    head.bias.data.copy_(torch.tensor([9.0, -9, -9, -9, -9, -9]))
    assert [result.text for result in model.generate(SOURCES)] == [""] * 4
    assert "leave stop out" in refused(lambda: model.generate("ab", stop=False))
    assert "give another sampler" in refused(lambda: model.generate("ab", sampler="remask"))
    assert "leave the constraint out" in refused(lambda: model.generate("ab", regex="x+"))


def refused(call) -> str:
    with pytest.raises(UnmaskError) as caught:
        call()
    return one_line(caught)


def test_an_order_policy_reveals_no_eos_whose_place_the_length_gives():
    drawn_places = pytest.importorskip("unmask.extensions.orders.train_policy").drawn_places
    model = model_of("mdlm, length")
    x, valid, given = batch(model)
    letters = x != model.tokenizer.vocabulary.eos_id
    assert torch.equal(drawn_places(model, x, valid, given), valid & ~given & letters)


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "mdlm, EOS"])
def test_a_source_or_target_that_is_too_long_is_one_line(kind):
    model = model_of(kind)
    assert "has 7 tokens with its special tokens and the encoder reads 6: shorten it" in refused(
        lambda: model.generate("abcab")
    )
    said = refused(lambda: model.perplexity([("ab", "x"), ("abcab", "xy")]))
    assert said.endswith("encoder reads 6: shorten it, or train with backbone.source_positions 7")
    said = refused(lambda: model.perplexity([("ab", "xyzxyz")]))
    assert said.endswith("decoder reads 6: shorten it, or train with backbone.target_positions 7")
    assert all(len(result.text) <= 6 for result in model.generate(SOURCES))
    assert "contain EOS" in refused(
        lambda: model.generate([[6, model.tokenizer.vocabulary.eos_id, 7]])
    )
    assert "a prompt is a text or a list of ids, not 3" in refused(
        lambda: model.generate(["ab", 3])
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"data.fill_target": "true"},
            "set data.fill_target false, or backbone.target_positions 0",
        ),
        ({"backbone.length_head": "false"}, "set data.fill_target true"),
        ({"backbone.target_positions": "0"}, "set target_positions"),
        ({"backbone.causal": "true"}, "set length_head false"),
        ({"backbone.encoder_depth": "-1"}, "encoder_depth must be 0 or more"),
        ({"method": "autoregressive"}, "set backbone.causal true"),
    ],
)
def test_settings_that_exclude_each_other_are_one_line(changed, message):
    assert message in refused(lambda: model_of("mdlm, length", **changed))


@pytest.mark.parametrize("kind", KINDS)
def test_every_command_works_with_it(kind, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"a": a, "b": b}) for a, b in PAIRS * 4]
    Path("pairs.jsonl").write_text("\n".join(lines))
    steps = {"steps": "2", "batch": "4", "warmup": "1", "sample_every": "0", "device": "cpu"}
    options = {**settings(kind), "data.train": "pairs.jsonl", "data.valid": "pairs.jsonl"}
    options |= {f"training.{name}": value for name, value in steps.items()}
    argv = [part for name, value in options.items() for part in (f"--{name}", value)]

    def run(*command: str) -> str:
        capsys.readouterr()
        assert main(command) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    if kind != "mdlm, EOS":  # one source of many is too long: refused before the first step
        Path("long.jsonl").write_text("\n".join([*lines, json.dumps({"a": "abcab", "b": "x"})]))
        assert main(["train", "demo", "--run", "long", *argv, "--data.train", "long.jsonl"]) == 2
        assert "train with backbone.source_positions 7" in capsys.readouterr().err
        assert not Path("long", "log.jsonl").exists()
    train = ("train", "demo", "--run", "run", *argv, "--data.cache", "cache")
    run(*train)
    prompts = ["--prompt", "ab", "--prompt", "bacb", "--seed", "3", "--device", "cpu"]
    text = run("generate", "run", *prompts)
    assert json.loads(run("evaluate", "run", "--draws", "2", "--json"))["nats"] > 0
    found = json.loads(run("evaluate", "translation", "run", "--data", "pairs.jsonl", "--json"))
    assert json.dumps(found).count("calls") == 1
    run("export", "run", "ours")
    run("export", "run", "theirs", "--pretrained")
    assert "encoder_decoder" in Path("theirs", "README.md").read_text(encoding="utf-8")
    for folder in ("ours", "theirs"):
        assert run("generate", folder, *prompts) == text
    loaded = unmask.load("ours")
    assert loaded.method.backbone.longest_source == (None if kind == "mdlm, EOS" else 6)


def test_an_interrupted_run_resumes_with_the_same_bits(tmp_path, monkeypatch):
    lines = [json.dumps({"a": a, "b": b}) for a, b in PAIRS * 4]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    training = {"steps": "4", "batch": "4", "warmup": "1", "save_every": "1", "log_every": "1"}
    options = {f"training.{name}": value for name, value in training.items()}
    files = {
        "data.train": str(tmp_path / "pairs.jsonl"),
        "data.valid": str(tmp_path / "pairs.jsonl"),
    }
    chosen = {**settings("mdlm, length"), **options, **files, "data.cache": str(tmp_path / "cache")}
    config = resolve({}, list({**chosen, "training.device": "cpu"}.items()))

    whole_encode, trained = EncoderDecoder.encode, []

    def stop_in_step_3(self, inputs, valid=None):
        trained.extend([self.training] * self.training)
        if len(trained) == 3:
            raise KeyboardInterrupt
        return whole_encode(self, inputs, valid)

    monkeypatch.setattr(EncoderDecoder, "encode", stop_in_step_3)
    with pytest.raises(KeyboardInterrupt):
        unmask.train(config, tmp_path / "stopped", say=lambda line: None)
    resumed = unmask.train(config, tmp_path / "stopped", say=lambda line: None)
    assert len(trained) == 3 + 2  # steps 3 and 4
    whole = unmask.train(config, tmp_path / "whole", say=lambda line: None)
    for ours, theirs in zip(resumed.method.parameters(), whole.method.parameters(), strict=True):
        assert torch.equal(ours, theirs)

"""The masked language model: 15% of the tokens, of which 80% are masked, 10% replaced, 10% kept."""

import pytest
import torch
from builders import small_method

import unmask
from unmask.config.run_config import resolve
from unmask.errors import UnmaskError
from unmask.methods.method import targets
from unmask.randomness import RowStream

ROWS, LENGTH = 32, 250
VALID = torch.arange(LENGTH).expand(ROWS, -1) < 200
GIVEN = torch.arange(LENGTH).expand(ROWS, -1) < 20
X = torch.randint(1, 10, (ROWS, LENGTH), generator=torch.Generator().manual_seed(0))


def drawn(method):
    return method.noise(RowStream(0, 3, range(ROWS), ROWS), targets(VALID, GIVEN))


def test_shares_of_the_tokens():
    noise = drawn(small_method("mlm"))
    assert not noise.predicted[~targets(VALID, GIVEN)].any()
    predicted = noise.predicted.sum()
    assert abs(float(predicted) / (ROWS * 180) - 0.15) < 0.02
    assert abs(float(noise.masked.sum() / predicted) - 0.8) < 0.05
    assert abs(float(noise.replaced.sum() / predicted) - 0.1) < 0.03
    assert not (noise.masked & noise.replaced).any()
    assert not (noise.masked | noise.replaced)[~noise.predicted].any()


def test_the_loss_is_the_cross_entropy_at_predicted_tokens(monkeypatch):
    method, seen = small_method("mlm"), []
    features = method.backbone.features
    monkeypatch.setattr(
        method.backbone, "features", lambda z, *a, **k: seen.append(z) or features(z, *a, **k)
    )
    noise = drawn(method)
    found = method.nll(X, VALID, noise, given=GIVEN).per_token()
    z = seen[0]
    assert (z[noise.masked] == method.vocabulary.mask_id).all()
    kept = ~noise.masked & ~noise.replaced
    assert torch.equal(z[kept], X[kept])
    assert torch.equal(z[noise.replaced], noise.other[noise.replaced])
    assert set(noise.other.unique().tolist()) == set(range(1, 10))  # no special id
    logits = method.backbone.logits(features(z, valid=VALID))
    logits[..., method.vocabulary.mask_id] = -torch.inf
    nats = torch.nn.functional.cross_entropy(logits.transpose(1, 2), X, reduction="none") / 0.15
    torch.testing.assert_close(found, nats * noise.predicted, rtol=1e-4, atol=1e-4)


def test_a_diffusion_model_continues_from_it(tmp_path):
    text = tmp_path / "x.fa"
    text.write_text(">x\n" + "ACGGT" * 400)
    settings = {"data.train": str(text), "data.cache": str(tmp_path / "cache"), "training.steps": 2}
    settings |= {"data.tokenizer.kind": "dna", "data.packing": "windows", "data.length": 16}
    settings |= {"backbone.width": 16, "backbone.depth": 1, "backbone.heads": 1}
    settings |= {"training.batch": 4, "training.device": "cpu", "data.reverse_complement": 0.5}
    first = resolve({}, settings | {"method": "mlm"})
    model = unmask.train(first, tmp_path / "mlm", say=lambda line: None)
    bound = model.perplexity()
    assert bound.certificate == "none" and bound.tokens == 976
    assert model.perplexity(estimator="pseudo").certificate == "pseudo"
    with pytest.raises(UnmaskError, match="the method mlm writes no text"):
        model.generate()
    second = resolve({}, settings | {"method": "mdlm", "init_from": str(tmp_path / "mlm")})
    lines: list[str] = []
    other = unmask.train(second, tmp_path / "mdlm", say=lines.append)
    assert other.perplexity(draws=2).certificate == "upper"
    [filled] = other.fill("ACG[MASK:4]T", seed=1)
    assert len(filled.text) == 8 and set(filled.text) <= set("ACGT")
    [written] = other.generate(seed=1)
    assert len(written.text) == 16 and set(written.text) <= set("ACGT")

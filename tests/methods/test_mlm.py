"""The masked language model: 15% of the tokens, of which 80% are masked, 10% replaced, 10% kept."""

import torch
from builders import small_method

from unmask.randomness import RowStream
from unmask.shapes import Batch, targets

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
    found = method.nll(Batch(X, VALID, GIVEN), noise).per_token()
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

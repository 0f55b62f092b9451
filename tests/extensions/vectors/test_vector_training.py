"""Training of methods of vectors: causes of steps that are not finite, and Plaid's schedule."""

import pytest
import torch
from builders import small_method
from recipe_runs import trained
from tiny_models import one_line

from unmask.config.components import outline
from unmask.config.run_config import resolve
from unmask.errors import UnmaskError
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.training.trainer import Trainer


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("plaid", lambda m: m.codebook.weight.fill_(1.0), "the codes of all tokens are equal"),
        ("diffusion_lm", lambda m: m.codebook.weight.fill_(0.5), "the codes of all tokens are"),
        ("diffusion_lm", lambda m: m.codebook.weight.mul_(1e6), "the norm of the codes"),
        ("plaid", lambda m: m.gammas.ends.mul_(20), "the noise schedule has left its range"),
    ],
)
def test_collapse_and_explosion_stop_training_like_a_loss_that_is_not_finite(
    name, damage, message, tmp_path, monkeypatch
):
    step = Trainer._step

    def damaged(trainer: Trainer) -> None:
        with torch.no_grad():
            damage(trainer.method)
        step(trainer)

    monkeypatch.setattr(Trainer, "_step", damaged)
    limits = {"training.max_skips": "2", "training.log_every": "1"}
    with pytest.raises(UnmaskError, match=message) as caught:
        trained(name, tmp_path, **limits)
    assert "not finite" in one_line(caught)


def test_plaids_schedule_lowers_the_variance_and_its_ends_the_bound():
    """The values between the ends get the gradient of loss^2; the mean of the bound has none in them."""
    method = small_method("plaid").train()
    with torch.no_grad():
        method.gammas.ends.copy_(torch.tensor([-3.0, 6.0]))
    x = torch.randint(1, 10, (64, 10), generator=torch.Generator().manual_seed(0))
    valid = torch.ones_like(x).bool()
    noise = method.training_noise(RowStream(0, 0, range(64), 64), valid)
    losses = method.nll(Batch(x, valid), noise)
    losses.total.backward()
    assert method.gammas.ends.grad.all()
    found = method.gammas.between.logits.grad.clone()

    def second_moment(logits: torch.Tensor) -> torch.Tensor:
        """Sum over rows of (nats per token)^2, in tokens, at the same noise."""
        with torch.no_grad():
            kept = method.gammas.between.logits.clone()
            method.gammas.between.logits.copy_(logits)
            terms = method.nll(Batch(x, valid), noise).terms["diffusion"].double()
            method.gammas.between.logits.copy_(kept)
        plain = terms.mean(1) * (1 - method.config.reconstructed)
        return (plain.square() / (1 - method.config.reconstructed)).sum() * x.shape[1]

    logits, wanted = method.gammas.between.logits.detach().clone(), torch.zeros_like(found)
    for index in range(len(logits)):
        shift = torch.zeros_like(logits)
        shift[index] = 1e-2
        wanted[index] = (second_moment(logits + shift) - second_moment(logits - shift)) / 2e-2
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.02 * float(wanted.abs().max()))


def test_a_network_that_reads_tokens_only_is_refused():
    pytest.importorskip("unmask.extensions.pairs")
    fields = {"data.source_field": "a", "data.target_field": "b", "data.packing": "pad"}
    settings = {"method": "plaid", "backbone": "encoder_decoder", **fields}
    with pytest.raises(UnmaskError, match="reads tokens: set backbone dit"):
        outline(resolve({}, list(settings.items())))

"""Weights of MDLM's training loss have the mean of the bound's weights and do not change reported bounds."""

import math

import pytest
import torch

from unmask.backbones.dit import DiT
from unmask.diffusion.schedule import SCHEDULES, Cosine, LogLinear
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Uniform
from unmask.errors import UnmaskError
from unmask.likelihood.estimate import likelihood
from unmask.methods.mdlm import MDLM
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

VOCABULARY = Vocabulary.over(6)
LENGTH = 12


def built(weight: str, schedule=None, times=None, trained: bool = False, **more) -> MDLM:
    torch.manual_seed(0)
    network = DiT(DiT.Config("", 8, 1, 2, dropout=0.0), VOCABULARY)
    if trained:
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.5)
    config = MDLM.Config(loss_weight=weight, **more)
    return MDLM(config, network, VOCABULARY, schedule or LogLinear(), times or Uniform())


def loss(method: MDLM, rows: int) -> float:
    """The training loss per token."""
    x = torch.arange(rows * LENGTH).view(rows, LENGTH) % 5
    stream = RowStream(1, 0, range(rows), rows)
    return float(method(Batch(x, torch.ones_like(x).bool()), stream).total.detach()) / x.numel()


@pytest.mark.parametrize("weight", ["elbo", "uniform", "clipped"])
@pytest.mark.parametrize("schedule", [LogLinear(), Cosine()])
@pytest.mark.parametrize("times", list(TIME_SAMPLERS))
def test_an_untrained_network_has_the_same_loss_under_every_weight(weight, schedule, times):
    """Every masked token has log 6 nats. The mean over times is that of the bound for every time sampler."""
    method = built(weight, schedule, TIME_SAMPLERS.build(times), largest_weight=3.0)
    assert loss(method, 2048) == pytest.approx(math.log(6), rel=0.06)


@pytest.mark.parametrize("steps", [0, 4])
def test_uniform_weighs_all_masked_tokens_alike_in_any_schedule(steps):
    found = []
    for schedule in (LogLinear(), Cosine()):
        method = built("uniform", schedule, TIME_SAMPLERS.build("stratified"), True, steps=steps)
        found.append(loss(method, 2048))
    if steps == 0:  # equal steps in t are not equal steps in the mask ratio
        assert found[0] == pytest.approx(found[1], rel=0.03)
    method = built("uniform", trained=True, steps=steps)
    x, valid = torch.zeros(8, LENGTH, dtype=torch.long), torch.ones(8, LENGTH).bool()
    noise = method.training_noise(RowStream(2, 0, range(8), 8), valid)
    weights = method.loss_inputs(noise.t)[0] * noise.importance
    torch.testing.assert_close(weights, torch.full_like(weights, 2.0), rtol=2e-3, atol=0)
    bound = method.nll(
        Batch(x, valid), method.noise(RowStream(2, 0, range(8), 8), valid)
    ).per_token()
    trained = method.nll(Batch(x, valid), noise).per_token()
    ratio = 1 - method.schedule.alpha(noise.t)
    torch.testing.assert_close(trained, bound * 2 * ratio[:, None].float())


def test_clipped_weights_lie_between_uniform_and_the_bound():
    share = [
        built("clipped", largest_weight=limit).training_noise(
            RowStream(2, 0, range(8), 8), torch.ones(8, LENGTH).bool()
        ).importance
        for limit in (1.0, 4.0, 1e9)
    ]  # fmt: skip
    same = [
        built(weight).training_noise(RowStream(2, 0, range(8), 8), torch.ones(8, LENGTH).bool())
        for weight in ("uniform", "elbo")
    ]
    torch.testing.assert_close(share[0], same[0].importance)
    torch.testing.assert_close(share[2], same[1].importance)
    assert share[1].max() / share[1].min() < share[0].max() / share[0].min()


class Held:
    """Eight held-out rows."""

    bytes = characters = 8 * LENGTH

    def __len__(self) -> int:
        return 8

    def __getitem__(self, rows: range) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.arange(8 * LENGTH).view(8, LENGTH)[rows.start : rows.stop] % 5
        return x, torch.ones_like(x).bool()


def test_the_reported_bound_does_not_depend_on_the_weight():
    bounds = [
        likelihood(built(weight, trained=True).eval(), Held()) for weight in ("elbo", "uniform")
    ]
    assert bounds[0].nats == bounds[1].nats
    assert loss(built("uniform", trained=True), 8) != loss(built("elbo", trained=True), 8)


def test_mistakes_are_refused():
    with pytest.raises(UnmaskError, match=r"loss_weight 'unifrom'.*uniform"):
        MDLM.Config(loss_weight="unifrom")
    with pytest.raises(UnmaskError, match=r"largest_weight must be finite and 1 or more, not 0\.5"):
        MDLM.Config(largest_weight=0.5)
    with pytest.raises(UnmaskError, match=r"learned schedule .*: set method\.loss_weight elbo"):
        built("uniform", SCHEDULES["learned"](SCHEDULES["learned"].Config()))

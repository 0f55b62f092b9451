"""Block diffusion: one pass over [z_t ; x], the chain rule of blocks, and the bounds of block sizes."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch
from builders import small_method
from kit import Language, TableBackbone, _pairs, gauss_legendre, mask_probability

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers.attention_rules import BlockRule, NoisyCleanRule
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise
from unmask.errors import UnmaskError
from unmask.likelihood.estimators import ESTIMATORS
from unmask.methods.block_diffusion import BlockDiffusion, BlockNoise
from unmask.methods.mdlm import MDLM
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

LENGTH = 4
LANGUAGE = Language.random(length=LENGTH)
BLOCKS = [1, 2, 0]


class BlockTable(TableBackbone):
    """Looks up p(x_l | earlier blocks of x, visible tokens of the block), where the rule allows no more."""

    rules = True

    def features(self, tokens, condition=None, at=None, rule=None, **rest):
        if isinstance(rule, NoisyCleanRule):
            z, x = tokens.chunk(2, 1)
            assert x.shape[1] == rule.length
            columns = []
            for column in range(rule.length):
                start = column // rule.block * rule.block
                known = torch.full_like(x, self.language.size)  # later blocks are not seen
                known[:, :start] = x[:, :start]
                known[:, start : start + rule.block] = z[:, start : start + rule.block]
                columns.append(super().features(known)[:, column])
            h = torch.stack(columns, 1)
            h = torch.cat([h, h], 1)
        else:
            h = super().features(tokens)
        return h if at is None else h.flatten(0, 1)[at]


def table_method(block: int, conditionals=None, eps: float = 0.0, **options) -> BlockDiffusion:
    conditionals = LANGUAGE.conditionals if conditionals is None else conditionals
    backbone = BlockTable(LANGUAGE, conditionals, time_conditioning=False)
    schedule = SCHEDULES.build("loglinear", eps=eps)
    config = BlockDiffusion.Config(blocks=(block,), **options)
    sampler = TIME_SAMPLERS.build("uniform", t_min=0.0)
    return BlockDiffusion(config, backbone, LANGUAGE.vocabulary, schedule, sampler).eval()


@torch.no_grad()
def expected_bounds(method: BlockDiffusion) -> torch.Tensor:
    """The exact mean of the bound of each sequence, over times and masks."""
    t, weight = gauss_legendre(16)
    if method.steps:
        t = torch.arange(1, method.steps + 1).double() / method.steps
        weight = torch.full_like(t, 1 / method.steps)
    chance = mask_probability(LANGUAGE.masks, method.schedule.alpha(t))
    x, masked = _pairs(LANGUAGE.sequences, LANGUAGE.masks)
    total = torch.zeros(len(x), dtype=torch.float64)
    for time, share, p in zip(t, weight, chance.T, strict=True):
        level = torch.full(x.shape, float(time), dtype=torch.float64)
        noise = BlockNoise(
            *(level, masked, torch.ones_like(level), 0.0, torch.zeros_like(masked)),
            block=method.block,
        )
        losses = method.nll(Batch(x, torch.ones_like(masked)), noise).per_token().double().sum(1)
        total += share * p.repeat(len(LANGUAGE.sequences)) * losses
    return total.view(len(LANGUAGE.sequences), -1).sum(1)


def chain_rule(conditionals: torch.Tensor) -> torch.Tensor:
    """-log p of each sequence from left to right, with MASK behind the context."""
    nats = torch.zeros(len(LANGUAGE.sequences), dtype=torch.float64)
    for column in range(LENGTH):
        state = LANGUAGE.sequences.clone()
        state[:, column:] = LANGUAGE.size
        p = conditionals[LANGUAGE.index(state, LANGUAGE.size + 1), column]
        nats -= p.gather(1, LANGUAGE.sequences[:, column, None])[:, 0].log()
    return nats


def float64(network: str, **options) -> BlockDiffusion:
    """The method on a real network in float64."""
    kind = BACKBONES[network]
    shape = {"width": 16, "depth": 2, "heads": 2, "dropout": 0.0}
    vocabulary = Vocabulary.over(7)
    torch.manual_seed(0)
    backbone = kind(kind.Config(**shape), vocabulary)
    for parameter in backbone.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    parts = SCHEDULES.build("loglinear"), TIME_SAMPLERS.build("uniform")
    config = BlockDiffusion.Config(**options)
    return BlockDiffusion(config, backbone, vocabulary, *parts).double().eval()


def rows(count: int, length: int, seed: int = 0) -> Batch:
    x = torch.randint(0, 7, (count, length), generator=torch.Generator().manual_seed(seed))
    return Batch(x, torch.ones_like(x, dtype=torch.bool))


def drawn(method, batch: Batch, step: int = 0, **options) -> Noise:
    count = len(batch.x)
    return method.noise(RowStream(0, step, range(count), count), batch.scored, **options)


@pytest.mark.parametrize("block", [1, 2, 3, 8])
@pytest.mark.parametrize("network", ["dit", "causal", "modern_dit"])
@torch.no_grad()
def test_one_pass_equals_block_by_block_evaluation_with_and_without_a_cache(network, block):
    method = float64(network, blocks=(block,))
    batch, backbone = rows(2, 8), method.backbone
    noise = drawn(method, batch)
    everything = torch.ones_like(batch.valid)
    tensors = method.tensors_of(batch, replace(noise, masked=everything & noise.masked))
    tensors["at"] = torch.arange(batch.x.numel())
    tokens, about = method.network_inputs(tensors)
    trained = backbone.features(tokens, **about).view(2, 8, -1)
    state = backbone.new_state(2, 8)
    for start in range(0, 8, block):
        here = slice(start, min(start + block, 8))
        z_t = torch.cat([batch.x[:, :start], tensors["z_t"][:, here]], 1)
        whole = backbone.features(z_t, rule=BlockRule(block))[:, start:]
        torch.testing.assert_close(trained[:, here], whole, rtol=1e-12, atol=1e-12)
        cached = backbone.features(tensors["z_t"][:, here], rule=BlockRule(block), state=state)
        torch.testing.assert_close(trained[:, here], cached, rtol=1e-12, atol=1e-12)
        state.crop(start)
        backbone.features(batch.x[:, here], rule=BlockRule(block), state=state)


@pytest.mark.parametrize("weight", ["elbo", "uniform", "clipped"])
@torch.no_grad()
def test_a_block_of_the_whole_row_is_mdlm(weight):
    batch, stream = rows(3, 8), RowStream(0, 2, range(3), 3)
    ours = [float64("dit", blocks=(block,), loss_weight=weight) for block in (8, 0)]
    plain = MDLM(MDLM.Config(loss_weight=weight), ours[0].backbone, *parts_of(ours[0])).eval()
    for method in ours:
        noise = drawn(method, batch)
        for name, value in vars(drawn(plain, batch)).items():
            mine = getattr(noise, name)
            if isinstance(value, torch.Tensor):
                wide = value if value.ndim == 2 else value[:, None].expand(3, 8)
                assert torch.equal(mine, wide), name
            else:
                assert mine == value
        terms = [
            one.nll(batch, drawn(one, batch), full_bound=True).terms for one in (method, plain)
        ]
        assert terms[0].keys() == terms[1].keys()
        for name, values in terms[0].items():
            torch.testing.assert_close(values, terms[1][name], rtol=1e-12, atol=1e-12)
        losses = [one(batch, stream).total for one in (method, plain)]
        torch.testing.assert_close(*losses, rtol=1e-12, atol=1e-12)


def parts_of(method):
    return method.vocabulary, method.schedule, method.time_sampler


@torch.no_grad()
def test_blocks_of_one_token_are_a_chain_rule_without_noise():
    wrong = LANGUAGE.wrong_conditionals()
    method, exact = table_method(1, wrong), chain_rule(wrong)
    torch.testing.assert_close(expected_bounds(method), exact, rtol=1e-9, atol=1e-9)
    assert float((-exact).exp().sum()) == pytest.approx(1, abs=1e-9)  # a distribution
    batch = Batch(LANGUAGE.sequences, torch.ones_like(LANGUAGE.sequences, dtype=torch.bool))
    noise = drawn(method, batch, time_sampler=ESTIMATORS["fixed_count"])
    nats = method.nll(batch, noise, full_bound=True).per_token().double().sum(1)
    torch.testing.assert_close(nats, exact, rtol=1e-6, atol=1e-6)


def test_bounds_of_the_exact_denoiser_rise_with_the_block_size():
    entropy = LANGUAGE.entropy
    for steps in (0, 1, 3):
        bounds = [
            float(LANGUAGE.table @ expected_bounds(table_method(b, steps=steps))) for b in BLOCKS
        ]
        assert bounds[0] == pytest.approx(entropy, abs=1e-6)  # one token after the other
        if steps == 0:  # continuous time reveals one token at a time, in any order
            assert bounds == pytest.approx([entropy] * len(BLOCKS), abs=1e-6)
        else:
            assert bounds[0] + 1e-3 < bounds[1] and bounds[1] + 1e-3 < bounds[2]


@pytest.mark.parametrize("block", BLOCKS)
def test_bounds_of_a_wrong_denoiser_are_above_the_entropy(block):
    wrong = LANGUAGE.wrong_conditionals()
    assert float(LANGUAGE.table @ expected_bounds(table_method(block, wrong))) > LANGUAGE.entropy


@pytest.mark.parametrize("times", ["block", "row"])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@torch.no_grad()
def test_every_estimator_draws_the_bound_of_a_block_size(estimator, times):
    method = table_method(2, LANGUAGE.wrong_conditionals(), times=times)
    exact = expected_bounds(method)[5]
    batch = Batch(LANGUAGE.sequences[5].repeat(4000, 1), torch.ones(4000, LENGTH, dtype=torch.bool))
    noise = drawn(method, batch, time_sampler=ESTIMATORS[estimator])
    nats = method.nll(batch, noise, full_bound=True).per_token().double().sum(1)
    error = float(nats.std()) / 4000**0.5
    assert abs(float(nats.mean() - exact)) < 5 * error + 1e-6


def test_a_mixture_gives_each_block_size_its_own_noise_and_bound():
    batch, mixture = rows(3, 8), (2, 4, 0)
    for step, block in enumerate(mixture):
        stream = RowStream(0, step, range(3), 3)
        mixed, alone = (
            float64("dit", blocks=blocks, block=block) for blocks in (mixture, (block,))
        )
        for ours, theirs in (
            (mixed.loss_tensors(batch, stream), alone.loss_tensors(batch, stream)),
            *[(one.nll(batch, drawn(one, batch), True).terms for one in (mixed, alone))],
        ):
            assert ours.keys() == theirs.keys()
            assert all(torch.equal(ours[name], theirs[name]) for name in ours)
        assert ("block" in mixed.loss_tensors(batch, stream)) == bool(block)


@pytest.mark.parametrize("network", ["dit", "causal"])
@torch.no_grad()
def test_draws_that_share_a_pass_have_the_mean_of_their_losses(network):
    method = float64(network, blocks=(2, 0), draws=3)
    plain = rows(4, 8)
    valid = plain.valid.clone()
    valid[1, 5:] = False
    batch, stream = Batch(plain.x, valid), RowStream(0, 0, range(4), 4)
    several = RowStream(0, 0, range(12), 12)
    noise = method.training_noise(several, batch.part(torch.arange(12) // 3).scored)
    alone = [method.nll(batch, noise.rows(torch.arange(draw, 12, 3))).total for draw in range(3)]
    assert len({float(one) for one in alone}) == 3
    torch.testing.assert_close(method(batch, stream).total, sum(alone) / 3, rtol=1e-12, atol=0)
    assert "draws" not in method.loss_tensors(batch, RowStream(0, 1, range(4), 4))  # whole rows


@torch.no_grad()
def test_padding_and_given_tokens_cost_nothing_and_a_row_does_not_depend_on_its_batch():
    method = float64("causal", blocks=(3,))  # the last block is short
    whole = rows(4, 8)
    valid, given = whole.valid.clone(), torch.zeros_like(whole.valid)
    valid[1, 5:], given[2, :3] = False, True
    batch = Batch(whole.x, valid, given)
    noise = drawn(method, batch)
    terms = method.nll(batch, noise, full_bound=True).per_token()
    assert not terms[~batch.scored].any() and terms[batch.scored].any()
    changed = whole.x.masked_fill(~valid, 3)
    assert torch.equal(method.nll(Batch(changed, valid, given), noise, True).per_token(), terms)
    part = method.noise(RowStream(0, 0, range(1, 3), 4), batch.scored[1:3])
    for one in fields(BlockNoise):
        value = getattr(noise, one.name)
        if isinstance(value, torch.Tensor):
            assert torch.equal(getattr(part, one.name), value[1:3])
    few = method.nll(batch.part(slice(1, 3)), part, full_bound=True).per_token()
    torch.testing.assert_close(few, terms[1:3], rtol=1e-10, atol=1e-10)


def test_a_range_of_noise_keeps_the_weight_of_a_token():
    clipped = float64("dit", blocks=(4,), noise_range=(0.3, 0.8), loss_weight="elbo")
    ratio = BlockDiffusion.training_noise(
        clipped, RowStream(0, 0, range(2000), 2000), torch.ones(2000, 8, dtype=torch.bool)
    )
    share = 1 - clipped.schedule.alpha(ratio.t.flatten())
    assert 0.3 <= float(share.min()) < 0.31 and 0.79 < float(share.max()) <= 0.8
    mean = float((clipped._weights(ratio) * ratio.masked).mean())
    assert mean == pytest.approx(1, abs=0.05)


def test_a_block_that_does_not_fit_is_named():
    batch = rows(1, 8)
    for blocks, message in (((3,), "do not divide rows of 8"), ((16,), "do not divide rows of 8")):
        with pytest.raises(UnmaskError, match=message):
            float64("dit", blocks=blocks)(batch, RowStream(0, 0, range(1), 1))
    for wrong, message in (((), "block sizes such as"), ((-1,), "must be 0 or more, not -1")):
        with pytest.raises(UnmaskError, match=message):
            BlockDiffusion.Config(blocks=wrong)
    with pytest.raises(UnmaskError, match="time_conditioning false"):
        small_method("block_diffusion", time_conditioning=True)

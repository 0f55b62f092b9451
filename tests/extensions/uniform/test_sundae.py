"""SUNDAE: the loss of unrolled steps, and a sampler that draws a share of the tokens again."""

from dataclasses import replace

import pytest
import torch
from builders import small_method

from unmask.methods.compute.chunked_loss import drawn_tokens
from unmask.randomness import RowStream
from unmask.samplers.core.canvas import Canvas
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS
from unmask.shapes import Batch

X = torch.randint(1, 10, (4, 12), generator=torch.Generator().manual_seed(0))
VALID = torch.ones_like(X).bool()


def test_the_second_step_reads_tokens_drawn_in_the_first():
    method, first = small_method("sundae"), small_method("sundae", unrolled=1)
    noise = method.noise(RowStream(0, 0, range(4), 4), VALID)
    z = torch.where(noise.replaced, noise.other, X)
    h = method.backbone.features(z).detach()
    drawn = drawn_tokens(method.backbone, 10, h.flatten(0, 1), noise.draws[..., 0].flatten())
    once = first.noise(RowStream(0, 0, range(4), 4), VALID)
    again = replace(once, replaced=VALID, other=drawn.view(X.shape))
    wanted = sum(first.nll(Batch(X, VALID), each).per_token() for each in (once, again)) / 2
    torch.testing.assert_close(method.nll(Batch(X, VALID), noise).per_token(), wanted)


def test_draws_follow_the_networks_distribution():
    method = small_method("sundae")
    h = torch.randn(1, 16, generator=torch.Generator().manual_seed(0)).expand(20000, 16)
    uniforms = (torch.arange(20000).double() + 0.5) / 20000
    found = torch.bincount(drawn_tokens(method.backbone, 10, h, uniforms), minlength=11) / 20000
    logits = method.backbone.logits(h[:1])[0, :10].detach()
    torch.testing.assert_close(found[:10], logits.softmax(-1), atol=2e-4, rtol=0)
    assert found[10] == 0


@torch.no_grad()
def test_a_step_draws_a_share_of_the_open_positions_again():
    method = small_method("sundae")
    tokens = torch.full((40, 12), 10)
    tokens[:, 3] = 5
    canvas, task = Canvas(tokens, 10), SamplingTask(list(range(40)), method.schedule)
    sampler = SAMPLERS.build("unrolled", steps=6, share=0.3, sharpness=100.0)
    frames = list(sampler.generate(method.denoiser(), canvas, task))
    assert len(frames) == 6
    assert all((frame.tokens[:, 3] == 5).all() and (frame.tokens != 10).all() for frame in frames)
    changed = torch.stack([frame.changed.double() for frame in frames[1:-1]]).mean()
    assert float(changed) == pytest.approx(0.3 * 11 / 12 * 0.9, abs=0.03)


@torch.no_grad()
def test_the_first_step_leaves_noise_and_the_last_step_none():
    method = small_method("sundae")
    method.backbone.head.bias[7] = 1e3  # the network is certain of one token
    canvas = Canvas(torch.full((60, 20), 10), 10)
    task = SamplingTask(list(range(60)), method.schedule)
    sampler = SAMPLERS.build("unrolled", steps=3, share=0.3)
    shares = [
        float((frame.tokens == 7).double().mean())
        for frame in sampler.generate(method.denoiser(), canvas, task)
    ]
    still = [1 - 0.7, 1 - 0.7**2]  # drawn so far; a tenth of the others are the token by chance
    assert shares[:2] == [pytest.approx(drawn + (1 - drawn) / 10, abs=0.04) for drawn in still]
    assert shares[2] == 1

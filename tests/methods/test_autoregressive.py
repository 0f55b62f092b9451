"""The autoregressive likelihood is the product of its denoiser's conditionals, with and without a cache."""

import torch
from builders import small_method

from unmask.diffusion.schedule import SCHEDULES
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.left_to_right import LeftToRight
from unmask.shapes import Batch

SIZE, LENGTH, ROWS = 11, 7, 5
MASK = SIZE - 1


def text() -> torch.Tensor:
    return torch.randint(1, MASK, (ROWS, LENGTH), generator=torch.Generator().manual_seed(2))


def ask(denoiser, z: torch.Tensor, column: int) -> torch.Tensor:
    at = torch.arange(len(z)), torch.full((len(z),), column)
    return denoiser(z, torch.ones(len(z), dtype=torch.float64), at)


@torch.no_grad()
def test_likelihood_is_the_product_of_the_conditionals():
    method, x = small_method("autoregressive"), text()
    losses = method.nll(Batch(x, torch.ones_like(x).bool()), None).per_token()
    denoiser = method.denoiser()
    for column in range(LENGTH):
        z = x.clone()
        z[:, column:] = MASK
        log_p = ask(denoiser, z, column)
        expected = -log_p[torch.arange(ROWS), x[:, column]]
        torch.testing.assert_close(losses[:, column], expected, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_cache_has_the_results_of_a_fresh_network_in_any_order_of_calls():
    method, x = small_method("autoregressive"), text()
    cached = method.denoiser()
    other = x.flip(0)
    for z, column in [(x, 0), (x, 1), (x, 5), (other, 3), (other, 4), (x, 2), (x, 6), (x[:2], 6)]:
        fresh = ask(method.denoiser(), z, column)
        torch.testing.assert_close(ask(cached, z, column), fresh, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_cache_computes_only_what_is_new():
    method, x = small_method("autoregressive"), text()
    widths = []
    features = method.backbone.features

    def counted(tokens, *args, **kwargs):
        widths.append(tokens.shape[1])
        return features(tokens, *args, **kwargs)

    method.backbone.features = counted
    canvas = Canvas(torch.full_like(x, MASK), MASK)
    plan = SamplingTask(list(range(ROWS)), SCHEDULES.build("loglinear"))
    last_frame(LeftToRight().generate(method.denoiser(), canvas, plan), canvas)
    assert widths == [1] * LENGTH


@torch.no_grad()
def test_prompts_of_different_lengths_can_share_a_batch():
    method, x = small_method("autoregressive"), text()
    canvas = Canvas(
        torch.where(torch.arange(LENGTH) < torch.tensor([[0], [3], [5], [1], [6]]), x, MASK), MASK
    )
    noise = SCHEDULES.build("loglinear")
    seeds = list(range(ROWS))
    together = last_frame(
        LeftToRight().generate(method.denoiser(), canvas, SamplingTask(seeds, noise)), canvas
    )
    for row in seeds:
        one = Canvas(canvas.tokens[[row]], MASK)
        frames = LeftToRight().generate(method.denoiser(), one, SamplingTask([row], noise))
        assert torch.equal(last_frame(frames, one).tokens[0], together.tokens[row])

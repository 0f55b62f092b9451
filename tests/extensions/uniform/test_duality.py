"""Laws of Duo: the argmax of Gaussian latents by Monte Carlo, the curriculum's limits, and the distillation of a toy."""

from math import sqrt

import pytest
import torch
from bayes import Bayes
from builders import schedule, small_method
from kit import Language, distance, jointly, p_value
from torch import Tensor, nn

from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.extensions.uniform.diffusion.duality import (
    argmax_probability,
    diffusion_transform,
    distinct_numbers,
    largest_normals,
    signal_ratio,
)
from unmask.extensions.uniform.methods.duo import (
    CHOSEN,
    WARMEST,
    Duo,
    DuoDistilled,
    GaussianLatents,
)
from unmask.extensions.uniform.methods.uniform_diffusion import Replacements
from unmask.randomness import RowStream, keyed_integers, keyed_uniforms, stream_keys
from unmask.shapes import Batch

LARGE = (2, 27, 4096, 50257)


def ratios(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_of_two_tokens_the_true_one_wins_with_a_known_probability():
    """w_x - w_y is normal with mean a and variance 2 s^2."""
    ratio = ratios(0, 0.3, 1, 2.5, 6)
    torch.testing.assert_close(
        argmax_probability(ratio, 2), torch.special.ndtr(ratio / sqrt(2)), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(("states", "ratio"), [(3, 0.7), (5, 1.5), (40, 2.5)])
def test_the_argmax_of_a_gaussian_latent_is_a_uniform_state_latent(states, ratio):
    w = torch.randn(50_000, states, generator=generator(), dtype=torch.float64)
    w[:, 0] += ratio
    counts = torch.bincount(w.argmax(1), minlength=states).double()
    alpha = float(diffusion_transform(ratios(ratio), states))
    wanted = torch.full((states,), (1 - alpha) / states, dtype=torch.float64)
    wanted[0] += alpha
    assert p_value(counts, wanted) > 1e-3
    wrong = torch.full_like(wanted, (1.05 - alpha) / states)
    wrong[0] += alpha - 0.05
    assert p_value(counts, wrong) < 1e-3


@pytest.mark.parametrize("states", LARGE)
def test_the_ratio_is_the_inverse_of_the_transform(states):
    ratio = torch.linspace(0, 7, 60, dtype=torch.float64)
    alpha = diffusion_transform(ratio, states)
    assert float(alpha[0]) == pytest.approx(0, abs=1e-12) and bool((alpha.diff() > 0).all())
    torch.testing.assert_close(signal_ratio(alpha, states), ratio, rtol=0, atol=1e-7)
    ends = signal_ratio(ratios(0, 1), states)
    assert float(ends[0]) == pytest.approx(0, abs=1e-6) and float(ends[1]) > 8


def test_a_curriculum_of_the_paper_trains_alpha_between_a_twentieth_and_the_rest():
    """Gaussian log-SNRs of 1.75 to 3.5 with 30,522 tokens, and 1.85 to 3.55 with 50,257."""
    for states, least, most in ((30_522, 1.75, 3.5), (50_257, 1.85, 3.55)):
        found = diffusion_transform(ratios(least, most).div(2).exp(), states)
        torch.testing.assert_close(found, ratios(0.05, 0.945), rtol=0, atol=5e-3)


def test_the_largest_normals_are_those_of_all():
    many = torch.randn(20_000, 30, generator=generator(), dtype=torch.float64)
    dense = many.sort(-1, descending=True).values[:, :4]
    drawn = largest_normals(torch.rand(20_000, 4, generator=generator(1)).double(), 30)
    assert bool((drawn.diff(dim=1) < 0).all())
    error = (dense.var(0) / 20_000 + drawn.var(0) / 20_000).sqrt()
    assert bool(((dense.mean(0) - drawn.mean(0)).abs() < 4 * error).all())
    torch.testing.assert_close(torch.cov(dense.t()), torch.cov(drawn.t()), rtol=0, atol=0.02)
    assert (
        largest_normals(torch.ones(2, 3), 9).isfinite().all()
    )  # float32 rounds some uniforms to 1


def test_the_other_tokens_are_drawn_without_repetition():
    keys = stream_keys(RowStream(0, 0, range(200), 200), "others")
    drawn = distinct_numbers(keyed_integers(keys, 0, 100, 3), 4).flatten(0, 1)
    counts = torch.bincount((drawn * torch.tensor([16, 4, 1])).sum(1), minlength=64).double()
    allowed = torch.tensor([len({n // 16, n // 4 % 4, n % 4}) == 3 for n in range(64)])
    assert p_value(counts, allowed.double() / 24) > 1e-3
    assert float(keyed_uniforms(keys, 0, 100, 3, torch.float64).mean()) == pytest.approx(
        0.5, abs=0.01
    )


def latents(method: Duo, x: Tensor, t: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """z_t and the network's inputs in the curriculum, at one time."""
    rows = torch.full((len(x),), t, dtype=torch.float64)
    ratio = signal_ratio(method.schedule.alpha(rows), method.process.states)
    keys = stream_keys(RowStream(seed, 0, range(len(x)), len(x)), "latent")
    noise = GaussianLatents(rows, torch.ones_like(rows), ratio, keys, torch.ones_like(x).bool())
    return method.latents(x, noise.ratio, noise.keys, noise.open)


def wide(size: int = 12, mask_id: int = 4, **fields: object) -> Duo:
    """A method whose network embeds each token as a one-hot vector, in float64."""
    method = small_method("duo", size, **fields).double()
    method.process = type(method.process)(size, mask_id)
    method.backbone.embedding.weight = nn.Parameter(torch.eye(size, dtype=torch.float64))
    return method


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1e-3, 1e-2])
def test_the_curriculum_mixes_tokens_by_the_softmax_of_the_latent(temperature):
    size, true, t = 12, 7, 0.4
    method, x = wide(size, 4, temperature=temperature), torch.full((200, 100), true)
    z_t, mixed = latents(method, x, t)
    counts = torch.bincount(z_t.flatten(), minlength=size).double()
    alpha, states = float(method.schedule.alpha(ratios(t))), size - 1
    wanted = torch.full((size,), (1 - alpha) / states, dtype=torch.float64)
    wanted[true] += alpha
    wanted[4] = 0  # MASK
    assert p_value(counts, wanted) > 1e-3
    assert torch.equal(mixed.argmax(-1), z_t)
    torch.testing.assert_close(mixed.sum(-1), torch.ones_like(mixed[..., 0]))

    ratio = float(signal_ratio(ratios(alpha), states))
    w = torch.randn(20_000, states, generator=generator(), dtype=torch.float64)
    w[:, 0] += ratio
    dense = (w / temperature / sqrt(1 + ratio**2)).softmax(-1)
    for read in (lambda p: p.amax(-1), lambda p: p.square().sum(-1)):
        ours, theirs = read(mixed.flatten(0, 1)), read(dense)
        error = float((ours.var() / len(ours) + theirs.var() / len(theirs)).sqrt())
        assert float(ours.mean()) == pytest.approx(float(theirs.mean()), abs=4 * error)
        assert float(ours.mean()) < 1


@pytest.mark.parametrize(("temperature", "most"), [(1e-3, 1e-9), (WARMEST, 1e-4)])
def test_coordinates_that_are_not_drawn_have_almost_no_weight(temperature, most):
    for ratio in (2.0, 3.5, 5.1):  # alpha from 0.06 to 0.92
        w = torch.randn(1000, 4096, generator=generator())
        w[:, 0] += ratio
        weights = (w.double() / temperature / sqrt(1 + ratio**2)).softmax(-1)
        drawn = weights[:, 0] + weights[:, 1:].topk(CHOSEN, -1).values.sum(-1)
        assert float((1 - drawn).mean()) < most


BATCH = Batch(
    torch.arange(40).view(4, 10) % 9 + 1,
    torch.arange(10) < torch.tensor([[10], [10], [7], [10]]),
    torch.arange(10).expand(4, 10) < 2,
)


def with_gradient(method, step: int) -> list[Tensor]:
    """The loss of a step and its gradients."""
    method.zero_grad()
    total = method(BATCH, RowStream(0, step, range(4), 4)).total
    total.backward()
    return [total.detach(), *(p.grad for p in method.parameters() if p.grad is not None)]


def test_after_the_curriculum_the_loss_is_that_of_udlm():
    duo, udlm = small_method("duo", curriculum=3), small_method("udlm")
    for ours, theirs in zip(with_gradient(duo, 3), with_gradient(udlm, 3), strict=True):
        assert torch.equal(ours, theirs)
    never = small_method("duo", curriculum=0)
    assert torch.equal(with_gradient(never, 0)[0], with_gradient(udlm, 0)[0])
    assert not torch.equal(with_gradient(duo, 2)[0], with_gradient(udlm, 2)[0])


def test_without_temperature_the_loss_of_the_curriculum_is_that_of_udlm_at_the_argmax():
    x, valid, given = BATCH.x, BATCH.valid, BATCH.given
    cold = small_method("duo", temperature=1e-300).double()
    noise = cold.training_noise(RowStream(0, 0, range(4), 4), valid & ~given)
    assert isinstance(noise, GaussianLatents)
    z_t, _ = cold.latents(x, noise.ratio, noise.keys, noise.open)
    assert torch.equal(z_t[given], x[given]) and torch.equal(z_t[~valid], x[~valid])
    assert not torch.equal(z_t, x)
    same = Replacements(noise.t, noise.importance, torch.ones_like(valid), z_t)
    warm = small_method("duo", temperature=1e-2).double()
    ours, theirs, mixed = (
        method.nll(BATCH, one).total.detach()
        for method, one in ((cold, noise), (cold, same), (warm, noise))
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    assert abs(float(mixed - ours)) > 1e-6


def test_the_curriculum_trains_the_bound_between_its_ends():
    """The mean over its times is the integral of the loss over alpha from cut to 1 - cut."""
    method = small_method("duo", cut=0.2)
    noise = method.training_noise(RowStream(0, 0, range(64), 64), torch.ones(64, 3).bool())
    alpha = method.schedule.alpha(noise.t)
    assert 0.2 <= float(alpha.min()) < 0.22 and 0.78 < float(alpha.max()) <= 0.8
    assert float(noise.importance[0]) == pytest.approx(0.6, abs=1e-3)
    torch.testing.assert_close(diffusion_transform(noise.ratio, 10), alpha, rtol=0, atol=1e-10)


# distillation


def distilled(network: nn.Module | None = None, **fields: object) -> DuoDistilled:
    if network is None:
        method = small_method("duo_distilled", **fields).double()
    else:
        parts = schedule("loglinear", eps=0.0), TIME_SAMPLERS.build("uniform")
        config = DuoDistilled.Config(**fields)
        method = DuoDistilled(config, network, network.language.vocabulary, *parts)
    method.begin_training()
    return method


def test_the_pairs_of_the_distillation_are_those_of_one_gaussian_noise():
    true = 2
    method, x = distilled(step_size=0.4), torch.full((400, 50), 2)
    stream, valid = RowStream(0, 0, range(400), 400), torch.ones_like(x, dtype=torch.bool)
    tensors = method.loss_tensors(Batch(x, valid), stream)
    t, states = method.training_noise(stream, valid).t, method.process.states
    kinds = (tensors["z_t"] == true).long() + 2 * (tensors["z_s"] == true).long()
    moved = (tensors["z_t"] != tensors["z_s"]) & (kinds == 0)
    assert not moved.any()  # a token that is replaced at s is the same one at t
    noise = torch.randn(50, 400, states, generator=generator(), dtype=torch.float64)
    hot = nn.functional.one_hot(torch.tensor(true), states).double()
    found = []
    for time in (t, (t - 0.4).clamp(min=0)):
        ratio = signal_ratio(method.schedule.alpha(time), states)[:, None]
        found.append((ratio * hot + noise).argmax(-1))
    z_t, z_s = found
    dense = torch.bincount(((z_t == true).long() + 2 * (z_s == true).long()).flatten(), minlength=4)
    assert not ((z_t != z_s) & (z_t != true) & (z_s != true)).any()
    ours = torch.bincount(kinds.flatten(), minlength=4)
    assert ours[1] == dense[1] == 0  # the true token at t is the true one at s
    share = (ours + dense).double() / (ours + dense).sum()
    error = (2 * share * (1 - share) / kinds.numel()).sqrt()
    assert bool(((ours - dense).double().abs() / kinds.numel() <= 4 * error).all())


@pytest.mark.parametrize("divergence", ["reverse", "forward"])
def test_a_student_that_is_its_teacher_at_the_same_time_learns_nothing(divergence):
    fields = {"divergence": divergence}
    still = with_gradient(distilled(step_size=0.0, **fields), 0)
    assert max(float(part.abs().max()) for part in still) < 1e-12
    moving = with_gradient(distilled(step_size=0.3, **fields), 0)
    assert float(moving[0]) > 1e-3 and max(float(part.abs().max()) for part in moving[1:]) > 1e-4


@pytest.mark.parametrize("divergence", ["reverse", "forward"])
def test_the_loss_of_the_distillation_is_the_divergence_of_dense_distributions(divergence):
    method = distilled(step_size=0.3, divergence=divergence)
    valid = BATCH.valid
    found = with_gradient(method, 0)
    method.zero_grad()
    tensors = method.loss_tensors(BATCH, RowStream(0, 0, range(4), 4))
    scored = BATCH.scored

    def log_p(network, z, sigma):
        logits = network.logits(network.features(z, sigma, valid=valid))[scored]
        return logits.index_fill(-1, torch.tensor([method.vocabulary.mask_id]), -1e30).log_softmax(
            -1
        )

    p = log_p(method.backbone, tensors["z_t"], tensors["sigma"])
    q = log_p(method.teacher, tensors["z_s"], tensors["sigma_s"]).detach()
    first, second = (p, q) if divergence == "reverse" else (q, p)
    total = (first.exp() * (first - second)).sum()
    total.backward()
    dense = [total.detach(), *(p.grad for p in method.parameters() if p.grad is not None)]
    for ours, theirs in zip(found, dense, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


class Table(Bayes):
    """A network with free logits for each state in each of 16 intervals of time; at first those of Bayes' rule."""

    BINS = 16

    def __init__(self, language: Language) -> None:
        super().__init__(language, leave_one_out=True)
        ends = torch.arange(1, self.BINS + 1, dtype=torch.float64) / self.BINS
        z, bins = language.sequences, []
        for t in ends:
            sigma = -torch.log1p(-t.clamp(max=1 - 1e-9))
            bins.append(super().features(z, sigma.expand(len(z))))
        self.scores = nn.Parameter(torch.stack(bins))
        self.head.requires_grad_(False)

    def features(self, z, sigma=None, at=None, **rest):
        t = -torch.expm1(-sigma.double())
        bins = (torch.ceil(t * self.BINS).long() - 1).clamp(0, self.BINS - 1)
        h = self.scores[bins, self.language.index(z, self.language.size)]
        return h if at is None else h.flatten(0, 1)[at]


@torch.no_grad()
def sampled(method: DuoDistilled, language: Language, steps: int) -> float:
    """Total variation between the language and the sampler's distribution, exactly."""
    z, process = language.sequences, method.process
    mass = torch.full((len(z),), 1 / len(z), dtype=torch.float64)
    at = torch.ones_like(z).nonzero(as_tuple=True)
    for step in range(steps, 0, -1):
        t, s = ratios(step / steps, (step - 1) / steps)
        mu = method.log_x_theta(z, t.expand(len(z)), at).exp()
        log_p = process.log_posterior(mu, z.flatten(), 1 - s, (1 - t).clamp(min=1e-12))
        mass = mass @ jointly(log_p.exp().view(*z.shape, -1), z)
    return distance(mass, language.table)


def test_distillation_brings_texts_of_few_steps_closer_to_the_language():
    language = Language.random(4, 3)
    method = distilled(Table(language), rounds=4, round_steps=20, step_size=1 / 16)
    *before, many = (sampled(method, language, steps) for steps in (1, 2, 16))
    optimizer = torch.optim.Adam(method.parameters(), lr=0.1)
    rows, valid = 256, torch.ones(256, 3, dtype=torch.bool)
    draws = generator()
    for step in range(80):
        index = torch.multinomial(language.table, rows, replacement=True, generator=draws)
        optimizer.zero_grad()
        loss = method(
            Batch(language.sequences[index], valid), RowStream(0, step, range(rows), rows)
        ).total
        (loss / rows).backward()
        optimizer.step()
    after = [sampled(method, language, steps) for steps in (1, 2)]
    assert all(new < 0.85 * old for new, old in zip(after, before, strict=True)), (before, after)
    assert sampled(method, language, 16) > many  # a distilled model is for few steps


def test_a_round_begins_with_the_student_as_the_teacher():
    method = distilled(rounds=2, round_steps=3, step_size=0.1)
    start = {name: value.clone() for name, value in method.teacher.state_dict().items()}
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.add_(0.1)
    own = method.backbone.state_dict()
    for step, wanted in ((2, start), (3, own), (5, own)):
        method(BATCH, RowStream(0, step, range(4), 4))
        assert all(torch.equal(method.teacher.state_dict()[name], wanted[name]) for name in wanted)
    with torch.no_grad():
        next(method.parameters()).add_(1.0)
    method(BATCH, RowStream(0, 100, range(4), 4))  # the last round does not end
    name = next(iter(own))
    assert not torch.equal(method.teacher.state_dict()[name], method.backbone.state_dict()[name])
    assert not any("teacher" in name for name in method.state_dict())


def test_settings_out_of_range_are_refused():
    for config, fields in [
        *((Duo.Config, one) for one in ({"curriculum": -1}, {"temperature": 0.1}, {"cut": 0.5})),
        *((DuoDistilled.Config, one) for one in ({"rounds": 0}, {"round_steps": 0})),
        *((DuoDistilled.Config, one) for one in ({"step_size": 1.5}, {"divergence": "none"})),
    ]:
        with pytest.raises(UnmaskError, match=next(iter(fields))):
            config(**fields)

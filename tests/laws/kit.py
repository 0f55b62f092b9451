"""A toy language with every sequence listed: what methods, estimators and samplers are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import torch
from equations import mean_to_score, posterior
from torch import Tensor, nn

from unmask.backbones.backbone import Backbone
from unmask.diffusion.schedule import Schedule
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise, TimeSampler
from unmask.methods.method import METHODS, Method
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.vocabulary import Vocabulary

NEVER_LOGIT = (
    -1e4
)  # the logit of an impossible token: finite, so that an identity head can carry it


def listing(symbols: int, length: int) -> Tensor:
    """All sequences over `symbols` symbols, in counting order."""
    return torch.tensor(list(product(range(symbols), repeat=length)))


@dataclass(frozen=True, eq=False)
class Language:
    """`size` tokens, `length` places, and a probability for every sequence; MASK is the id `size`."""

    size: int
    length: int
    table: Tensor  # [size ** length], float64

    @classmethod
    def random(cls, size: int = 3, length: int = 3, seed: int = 0) -> Language:
        """Nothing in it factorises."""
        noise = torch.randn(size**length, generator=torch.Generator().manual_seed(seed))
        return cls(size, length, torch.softmax(1.5 * noise.double(), 0))

    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.over(self.size)

    @cached_property
    def sequences(self) -> Tensor:
        return listing(self.size, self.length)

    @cached_property
    def states(self) -> Tensor:
        """All partially masked sequences."""
        return listing(self.size + 1, self.length)

    @cached_property
    def masks(self) -> Tensor:
        return listing(2, self.length).bool()

    @property
    def entropy(self) -> float:
        return float(-(self.table * self.table.log()).sum())

    def index(self, z: Tensor, symbols: int) -> Tensor:
        """Where sequences stand in `listing(symbols, length)`."""
        digits = symbols ** torch.arange(self.length - 1, -1, -1, device=z.device)
        return (z * digits).sum(-1)

    def subset_entropy(self, chosen: Tensor) -> float:
        """Entropy of the tokens at some places."""
        index = self.index(self.sequences * chosen, self.size)
        mass = torch.zeros_like(self.table).index_add(0, index, self.table)
        return float(-torch.xlogy(mass, mass).sum())

    @cached_property
    def conditionals(self) -> Tensor:
        """The oracle, [state, place, size + 1]: p(x_l | visible tokens); what is visible is certain."""
        visible = self.states[:, None] == self.sequences[None]
        agrees = ((self.states == self.size)[:, None] | visible).all(-1).double()
        one_hot = nn.functional.one_hot(self.sequences, self.size + 1).double()
        mass = torch.einsum("zx,x,xlv->zlv", agrees, self.table, one_hot)
        return mass / mass.sum(-1, keepdim=True)

    def wrong_conditionals(self, leak: float = 0.0, seed: int = 1) -> Tensor:
        """A bad denoiser, with `leak` of its mass on MASK; it copies a text without MASK, nothing else."""
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(len(self.states), self.length, self.size, generator=generator)
        guess = torch.softmax(noise.double(), -1) * (1 - leak)
        guess = torch.cat([guess, torch.full_like(guess[..., :1], leak)], -1)
        copy = nn.functional.one_hot(self.states, self.size + 1).double()
        clean = (self.states != self.size).all(1)[:, None, None]
        return torch.where(clean, copy, guess)

    def denoiser(self, z: Tensor, t: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        """The oracle as a sampler asks for it."""
        return self.conditionals[self.index(z, self.size + 1)][at].log()

    @torch.no_grad()
    def every_loss(self, method: Method, t: Tensor, importance: Tensor) -> tuple[Tensor, Tensor]:
        """The diffusion term of `nll` for [sequence, mask, time], and the chance of each mask."""
        x, masked = _pairs(self.sequences, self.masks)
        pairs, times = len(x), len(t)
        x, masked = x.repeat_interleave(times, 0), masked.repeat_interleave(times, 0)
        method.few_shapes = True  # the tensors of a CUDA graph
        noise = Noise(
            t.repeat(pairs), masked, importance.repeat(pairs), 0.0, torch.zeros_like(masked)
        )
        losses = (
            method.nll(Batch(x, torch.ones_like(masked)), noise).terms["diffusion"].double().sum(1)
        )
        chance = mask_probability(self.masks, method.schedule.alpha(t))
        losses = losses.view(len(self.sequences), len(self.masks), times)
        return losses.where(chance > 0, 0.0), chance


class TableBackbone(Backbone):
    """A network that looks its probabilities up; `head` is the identity."""

    def __init__(self, language: Language, conditionals: Tensor, time_conditioning: bool) -> None:
        super().__init__(None, language.vocabulary)
        self.language = language
        self.time_conditioning = time_conditioning
        # SEDD's scale: exp(logits) sum to the number of real tokens
        scale = torch.tensor(language.size).double().log()
        self.register_buffer("scores", (conditionals.log() + scale).clamp(min=NEVER_LOGIT))
        self.head = nn.Linear(language.size + 1, language.size + 1).double()
        nn.init.eye_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def features(
        self,
        tokens: Tensor,
        condition: Tensor | None = None,
        at: Tensor | None = None,
        **rest: object,
    ) -> Tensor:
        h = self.scores[self.language.index(tokens, self.language.size + 1)]
        return h if at is None else h.flatten(0, 1)[at]


def table_method(
    name: str,
    language: Language,
    schedule: Schedule,
    conditionals: Tensor | None = None,
    times: str | TimeSampler = "uniform",
    **fields: float,
) -> Method:
    """A method on top of the oracle, or of other conditionals."""
    conditionals = language.conditionals if conditionals is None else conditionals
    backbone = TableBackbone(language, conditionals, time_conditioning=name == "sedd")
    kind = METHODS[name]
    config = kind.Config(**fields)
    sampler = TIME_SAMPLERS.build(times) if isinstance(times, str) else times
    return kind(config, backbone, language.vocabulary, schedule, sampler).eval()


def times_of(method: Method, nodes: int = 64) -> tuple[Tensor, Tensor]:
    """Times and weights of an exact average over the times that a method draws from uniformly."""
    if method.steps:
        t = torch.arange(1, method.steps + 1, dtype=torch.float64) / method.steps
        return t, torch.full_like(t, 1 / method.steps)
    t, w = gauss_legendre(nodes)
    t_min = method.time_sampler.t_min
    return t_min + (1 - t_min) * t, w


def gauss_legendre(nodes: int) -> tuple[Tensor, Tensor]:
    """Golub and Welsch, on [0, 1]."""
    k = torch.arange(1, nodes, dtype=torch.float64)
    off = k / (4 * k**2 - 1).sqrt()
    x, vectors = torch.linalg.eigh(torch.diag(off, 1) + torch.diag(off, -1))
    return (x + 1) / 2, vectors[0] ** 2


def mask_probability(masks: Tensor, alpha: Tensor) -> Tensor:
    """Chance of each set of masked tokens at each alpha, [masks, alphas]."""
    count = masks.sum(1).double()[:, None]
    return (1 - alpha) ** count * alpha ** (masks.shape[1] - count)


@torch.no_grad()
def expected_terms(method: Method, language: Language) -> dict[str, Tensor]:
    """Each term of the method's own `nll`, averaged exactly over (t, mask), for every sequence."""
    t, w = times_of(method)
    t_min = 0.0 if method.steps else method.time_sampler.t_min
    losses, chance = language.every_loss(method, t, torch.full_like(t, 1 - t_min))
    diffusion = (losses * chance).sum(1) @ w

    x, unfinished = _pairs(language.sequences, language.masks)
    valid = torch.ones_like(unfinished)
    probe = method.noise(RowStream(0, 0, range(1), 1), valid[:1])
    once = torch.ones(len(x), dtype=torch.float64)
    noise = Noise(once, ~valid, once, probe.unstarted, unfinished, t_min)
    last = method.schedule.alpha(torch.tensor([t_min], dtype=torch.float64))
    chance = mask_probability(language.masks, last)[:, 0]
    ends = {
        name: values.double().sum(1).view(-1, len(chance)) @ chance
        for name, values in method.nll(Batch(x, valid), noise, full_bound=True).terms.items()
        if name != "diffusion"
    }
    return {"diffusion": diffusion, **ends}


def _pairs(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Every row of one with every row of the other."""
    return first.repeat_interleave(len(second), 0), second.repeat(len(first), 1)


def expected_bound(method: Method, language: Language) -> float:
    """The whole bound, in nats a sequence, averaged over the language."""
    return float(
        language.table @ torch.stack(list(expected_terms(method, language).values())).sum(0)
    )


def ends_gap(language: Language, alpha_first: float, alpha_last: float) -> float:
    """The excess over the entropy at the two ends of time, where all tokens are predicted at once.

    Each token is part of the first guess with chance alpha_first (nothing else visible), of the last
    with 1 - alpha_last (all others visible).
    """
    entropy = language.subset_entropy
    first, last = [], []
    for chosen in language.masks:
        ones = [one for one in torch.eye(language.length).bool() if (one & chosen).any()]
        rest = entropy(~chosen)
        first.append(sum(entropy(one) for one in ones) - entropy(chosen))
        alone = sum(entropy(~chosen | one) - rest for one in ones)
        last.append(alone - (language.entropy - rest))
    chance = mask_probability(language.masks, torch.tensor([1 - alpha_first, alpha_last]).double())
    gaps = torch.tensor([first, last], dtype=torch.float64)
    return float((chance.t() * gaps).sum())


class Scores:
    """The oracle as a model of scores: exact for scale 1, all ratios off by a factor for another."""

    def __init__(self, language: Language, schedule: Schedule, scale: float = 1.0) -> None:
        self.language, self.schedule, self.scale = language, schedule, scale

    def __call__(self, z: Tensor, t: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        return self.language.denoiser(z, t, at)

    def log_score(self, z: Tensor, t: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        sigma = self.schedule.sigma(t).detach()[at[0]]
        log_score = mean_to_score(self(z, t, at), sigma, self.language.size)
        return log_score + torch.tensor(self.scale).log()


def alphas(schedule: Schedule, steps: int, times: Sequence[float] | None = None) -> Tensor:
    """alpha of evenly spaced times, or of given ones; a sampler's last step reveals the rest."""
    grid = torch.linspace(1, 0, steps + 1).double() if times is None else torch.tensor(times)
    alpha = schedule.alpha(grid.double()).detach()
    alpha[-1] = 1
    return alpha


def reverse_process(
    language: Language,
    schedule: Schedule,
    steps: int,
    start: Tensor | None = None,
    times: Sequence[float] | None = None,
) -> Tensor:
    """The distribution of T-step sampling with the oracle from all MASK; the last step reveals the rest."""
    mass = starting(language, start)
    alpha = alphas(schedule, steps, times)
    return finished(language, _steps_back(language, language.conditionals, alpha, mass))


def starting(language: Language, start: Tensor | None = None) -> Tensor:
    """All mass on one canvas, all MASK unless given; [state]."""
    start = torch.full((language.length,), language.size) if start is None else start
    mass = torch.zeros(len(language.states), dtype=torch.float64)
    mass[language.index(start, language.size + 1)] = 1
    return mass


def finished(language: Language, mass: Tensor) -> Tensor:
    """The chance of every sequence, of a distribution over states."""
    return mass[language.index(language.sequences, language.size + 1)]


def transition(language: Language, reveal: float, hide: float, free: Tensor) -> Tensor:
    """[z_t, z_s]: masked places are revealed and written free ones hidden, each with its chance."""
    masked = (language.states == language.size)[..., None]
    one_hot = nn.functional.one_hot(language.states, language.size + 1).double()
    mask = nn.functional.one_hot(torch.tensor(language.size), language.size + 1).double()
    hide_at = hide * free.double()[:, None]
    shown = reveal * language.conditionals + (1 - reveal) * mask
    tokens = torch.where(masked, shown, (1 - hide_at) * one_hot + hide_at * mask)
    return jointly(tokens, language.states)


def likelihood(
    language: Language, schedule: Schedule, steps: int, conditionals: Tensor, carry_over: bool
) -> Tensor:
    """p_theta of every sequence in the T-step model that the bounds are of, both ends included."""
    if carry_over:
        visible = nn.functional.one_hot(language.states, language.size + 1).double()
        is_mask = (language.states == language.size)[..., None]
        conditionals = torch.where(is_mask, conditionals, visible)
    alpha = schedule.alpha(torch.linspace(1, 0, steps + 1, dtype=torch.float64)).detach()
    # z_1: each token of an all-MASK text is revealed with chance alpha(1)
    from_all_masked = _one_step(language, conditionals, alpha[0], torch.zeros_like(alpha[0]))[-1]
    mass = _steps_back(language, conditionals, alpha, from_all_masked)
    return mass @ jointly(conditionals, language.sequences)


def _steps_back(language: Language, conditionals: Tensor, alpha: Tensor, mass: Tensor) -> Tensor:
    for alpha_t, alpha_s in pairwise(alpha):
        mass = mass @ _one_step(language, conditionals, alpha_s, alpha_t)
    return mass


def _one_step(language: Language, conditionals: Tensor, alpha_s: Tensor, alpha_t: Tensor) -> Tensor:
    """p(z_s | z_t) of all states, [z_t, z_s]."""
    z_t = language.states
    rates = [alpha.expand(z_t.shape) for alpha in (alpha_s, alpha_t)]
    return jointly(posterior(z_t, conditionals, *rates, language.size), z_t)


def jointly(tokens: Tensor, outcomes: Tensor) -> Tensor:
    """Probability of each outcome from each state, tokens being drawn independently: [state, outcome]."""
    places = range(outcomes.shape[1])
    return torch.stack([tokens[:, place, outcomes[:, place]] for place in places]).prod(0)


def p_value(observed: Tensor, expected: Tensor) -> float:
    """Pearson's chi-square of counts against a distribution; outcomes of chance 0 must not occur."""
    possible = expected > 0
    assert observed[~possible].sum() == 0
    counts = expected[possible] * observed.sum()
    statistic = ((observed[possible] - counts) ** 2 / counts).sum()
    return float(torch.special.gammaincc((possible.sum() - 1) / 2, statistic / 2))


def distance(first: Tensor, second: Tensor) -> float:
    """Total variation: half the sum of differences."""
    return float((first - second).abs().sum() / 2)

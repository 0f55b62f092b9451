"""Samplers with small settings, canvases and denoisers for them:
what the laws of sampling run over.
"""

import dataclasses
from collections.abc import Iterator

import torch
from builders import MASK_SAMPLERS, known, schedule
from equations import mean_to_score
from kit import Language, Scores
from torch import Tensor

from unmask.samplers.core.canvas import Canvas, Frame, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler

SIZE, MASK = 7, 6
VARIANTS: dict[str, list[dict]] = {
    "confidence": [{}, {"noise": 2.0}, {"drawn": True}, {"drawn": True, "noise": 2.0}],
    "margin": [{}, {"noise": 2.0}],
    "entropy": [{}, {"noise": 2.0}],
    "entropy_bound": [{}, {"gamma": 0.0}, {"gamma": 3.0, "noise": 2.0}],
    "threshold": [{}, {"threshold": 0.3}, {"noise": 2.0}],
    "predictor_corrector": [{}, {"spread": True}],
    "remask": [{"rule": rule, "eta": 0.3} for rule in ("cap", "rescale", "conf", "loop")],
}


def build(name: str, **fields: object) -> Sampler:
    """A sampler by name; fields that it does not have are left out."""
    return SAMPLERS.build(name, **known(SAMPLERS[name], fields))


def every_sampler() -> Iterator[tuple[str, dict]]:
    """Each registered sampler of tokens in each of its manners."""
    for name in MASK_SAMPLERS:
        for fields in VARIANTS.get(name, [{}]):
            yield name, fields


def title(value: object) -> str | None:
    """The name of a manner in a list of tests."""
    if isinstance(value, dict):
        return ",".join(f"{key}={setting}" for key, setting in value.items()) or "plain"
    return None


class Smooth:
    """Some distribution that depends on all tokens, never on MASK alone; a model of scores too."""

    def __call__(self, z: Tensor, t: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        level = (z * torch.arange(1, z.shape[1] + 1)).sum(1)[at[0]] + at[1]
        scores = torch.cos(level[:, None] * torch.arange(1, SIZE + 1)).double()
        scores[:, MASK] = -torch.inf
        return (2 * scores).log_softmax(-1)

    def log_score(self, z: Tensor, t: Tensor, at: tuple[Tensor, Tensor]) -> Tensor:
        sigma = schedule("loglinear").sigma(t)[at[0]]
        return mean_to_score(self(z, t, at), sigma, MASK)


smooth = Smooth()


def canvas_of(seed: int, rows: int, length: int, share: float = 0.3) -> Canvas:
    """Some tokens fixed, here and there."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, MASK, (rows, length), generator=generator)
    is_open = torch.rand(rows, length, generator=generator) >= share
    return Canvas(tokens.masked_fill(is_open, MASK), MASK)


def task(rows: int, name: str = "loglinear", **fields: object) -> SamplingTask:
    return dataclasses.replace(SamplingTask(list(range(rows)), schedule(name)), **fields)


def run(sampler: Sampler, canvas: Canvas, denoiser=smooth, **fields: object) -> Frame:
    """The last frame, each row with its own number as seed."""
    frames = sampler.generate(denoiser, canvas, task(len(canvas.tokens), **fields))
    return last_frame(frames, canvas)


def sample(
    language: Language,
    sampler: Sampler,
    seeds: list[int],
    start: Tensor | None = None,
    name: str = "loglinear",
    scale: float = 1.0,
) -> Tensor:
    """The number of draws of each sequence from the oracle,
    from one canvas (all MASK by default).
    """
    return counts(language, texts(language, sampler, seeds, start, name, scale))


def texts(
    language: Language,
    sampler: Sampler,
    seeds: list[int],
    start: Tensor | None = None,
    name: str = "loglinear",
    scale: float = 1.0,
) -> Tensor:
    """Draws from the oracle, one row for each seed."""
    start = torch.full((language.length,), language.size) if start is None else start
    canvas = Canvas(start.expand(len(seeds), -1).clone(), language.size)
    noise = schedule(name)
    frames = sampler.generate(Scores(language, noise, scale), canvas, SamplingTask(seeds, noise))
    return last_frame(frames, canvas).tokens


def counts(language: Language, tokens: Tensor) -> Tensor:
    index = language.index(tokens, language.size)
    return torch.bincount(index, minlength=len(language.table)).double()


def conditional(language: Language, start: Tensor) -> Tensor:
    """The language given what is fixed."""
    agrees = ((start == language.size) | (start == language.sequences)).all(1)
    return language.table * agrees / (language.table * agrees).sum()

"""Gibbs sampling redraws one position at a time: the language is its stationary distribution."""

import torch
from builders import schedule
from drafts import MASK, canvas_of, counts, run, sample, smooth, task
from kit import Language, p_value

from unmask.samplers.ancestral import Ancestral
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.gibbs import Gibbs
from unmask.samplers.left_to_right import LeftToRight

LANGUAGE = Language.random()
RARELY = 1e-4


def kernel() -> torch.Tensor:
    """The transition matrix of one update: a random position, drawn given the rest."""
    total = torch.zeros(27, 27).double()
    for place in range(3):
        hidden = LANGUAGE.sequences.index_fill(1, torch.tensor([place]), LANGUAGE.size)
        chances = LANGUAGE.conditionals[LANGUAGE.index(hidden, 4), place]
        for token in range(3):
            there = LANGUAGE.sequences.index_fill(1, torch.tensor([place]), token)
            index = LANGUAGE.index(there, 3)
            total[torch.arange(27), index] += chances[:, token] / 3
    return total


def revise(texts: torch.Tensor, steps: int) -> torch.Tensor:
    canvas = Canvas(texts, LANGUAGE.size, torch.ones_like(texts).bool())
    frames = Gibbs(steps).generate(
        LANGUAGE.denoiser, canvas, SamplingTask(list(range(len(texts))), schedule("loglinear"))
    )
    return last_frame(frames, canvas).tokens


def test_the_language_is_stationary_under_one_update():
    torch.testing.assert_close(LANGUAGE.table @ kernel(), LANGUAGE.table)
    start = LANGUAGE.sequences.repeat_interleave(300, 0)
    pairs = LANGUAGE.index(start, 3) * 27 + LANGUAGE.index(revise(start, 1), 3)
    found = torch.bincount(pairs, minlength=27 * 27).double()
    assert p_value(found, kernel().flatten() / 27) > RARELY


def test_wrong_texts_converge_to_the_language():
    wrong = torch.zeros(4000, 3, dtype=torch.long)
    assert p_value(counts(LANGUAGE, revise(wrong, 4)), LANGUAGE.table) < 1e-12
    assert p_value(counts(LANGUAGE, revise(wrong, 60)), LANGUAGE.table) > RARELY


def test_updates_improve_a_filling_in_one_step():
    rough = Gibbs(40, inner=Ancestral(1))
    assert p_value(sample(LANGUAGE, rough, list(range(3000))), LANGUAGE.table) > RARELY
    infill = torch.tensor([3, 1, 3])
    found = sample(LANGUAGE, rough, list(range(3000)), infill)
    agrees = LANGUAGE.sequences[:, 1] == 1
    assert p_value(found, LANGUAGE.table * agrees / LANGUAGE.table[agrees].sum()) > RARELY


def test_the_inner_sampler_fills_first_and_each_update_is_one_call():
    canvas = canvas_of(0, 4, 9)
    frames = list(Gibbs(5, inner=LeftToRight()).generate(smooth, canvas, task(4)))
    filled = run(LeftToRight(), canvas)
    assert torch.equal(frames[-6].tokens, filled.tokens)
    assert torch.equal(frames[-6].calls, filled.calls)
    for before, frame in zip(frames[-6:-1], frames[-5:], strict=True):
        assert torch.equal(frame.calls - before.calls, canvas.open.any(1).long())
        assert (frame.changed.sum(1) <= 1).all()
        assert (frame.tokens != MASK).all()
        assert torch.allclose(frame.t, torch.tensor(1 / 9).double(), atol=2e-3)

"""The sampler length_first draws the end of a text first: the same distribution in fewer calls.

At temperature 0 the end is its median.
"""

import pytest
import torch
from builders import schedule
from drafts import build, counts
from kit import Language, p_value

from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.samplers.length_first import LengthFirst

EOS = 2


def ending_language() -> Language:
    """Texts of 0 to 4 letters. After its end a row is EOS."""
    language = Language.random(3, 4, seed=3)
    over = language.sequences == EOS
    ends = (over[:, 1:] >= over[:, :-1]).all(1)
    table = language.table * ends * 2.0 ** over.sum(1)
    return Language(3, 4, table / table.sum())


LANGUAGE = ending_language()


def frames(inner: str, rows: int, start: torch.Tensor | None = None, **fields: object) -> list:
    start = torch.full((LANGUAGE.length,), LANGUAGE.size) if start is None else start
    canvas = Canvas(start.expand(rows, -1).clone(), LANGUAGE.size)
    task = SamplingTask(list(range(rows)), schedule("loglinear"), eos_id=EOS, **fields)
    return list(LengthFirst(build(inner)).generate(LANGUAGE.denoiser, canvas, task))


@pytest.mark.parametrize("given", [LANGUAGE.size, 0, 1])
@pytest.mark.parametrize("inner", ["first_hitting", "left_to_right", "confidence"])
def test_texts_have_the_distribution_of_the_model(inner, given):
    """One token at a time, in any order."""
    start = torch.tensor([given, *[LANGUAGE.size] * 3])
    found = counts(LANGUAGE, frames(inner, 4000, start)[-1].tokens)
    agrees = (LANGUAGE.sequences[:, 0] == given) | (given == LANGUAGE.size)
    expected = LANGUAGE.table * agrees / (LANGUAGE.table * agrees).sum()
    assert p_value(found, expected) > 1e-4


def test_without_the_last_token_the_distribution_is_another():
    """The network would still expect shorter texts, so the test above can fail."""

    class Unsettled(LengthFirst):
        def generate(self, denoiser, canvas, task):
            whole = super().generate(denoiser, canvas, task)
            first = next(whole)
            rest = Canvas(first.tokens.clone(), canvas.mask_id)
            words = SamplingTask(task.seeds, task.schedule, banned=(EOS,))
            yield from self.inner.generate(denoiser, rest, words)

    canvas = Canvas(torch.full((4000, 4), LANGUAGE.size), LANGUAGE.size)
    task = SamplingTask(list(range(4000)), schedule("loglinear"), eos_id=EOS)
    sampler = Unsettled(build("left_to_right"))
    tokens = last_frame(sampler.generate(LANGUAGE.denoiser, canvas, task), canvas).tokens
    assert p_value(counts(LANGUAGE, tokens), LANGUAGE.table) < 1e-6


def test_at_temperature_zero_the_end_is_its_median():
    *_, last = frames("confidence", 1, strategy="deterministic")
    over = (LANGUAGE.sequences == EOS).double()
    ended = (LANGUAGE.table @ over) >= 0.5  # at each position
    assert torch.equal(last.tokens[0] == EOS, ended)
    assert 0 < ended.sum() < 4


def test_frames_begin_with_the_end_and_count_every_call():
    seen = frames("first_hitting", 64)
    first, last = seen[0], seen[-1]
    ends = first.tokens == EOS
    assert torch.equal(first.changed, ends) and ends.any()
    assert set(first.tokens.unique().tolist()) == {EOS, LANGUAGE.size}
    assert torch.equal(last.tokens == EOS, ends)
    assert torch.equal(last.calls, 1 + (~ends).sum(1))  # one for the end, and one for each token
    assert (last.confidence[ends] == 1).all() and (last.confidence > 0).all()
    assert (last.confidence[seen[1].changed] < 1).any()  # of last tokens too


def test_a_row_depends_on_its_own_seed_alone():
    together = frames("first_hitting", 16)[-1].tokens
    assert torch.equal(frames("first_hitting", 5)[-1].tokens, together[:5])
    assert torch.equal(frames("first_hitting", 16, watched=False)[-1].tokens, together)

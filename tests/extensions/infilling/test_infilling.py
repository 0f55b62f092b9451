"""Gaps of held-out text: their choice and scores by hand,
and models that do or do not read the right side.
"""

import math
from dataclasses import replace

import pytest
import torch
from tiny_models import one_line

import unmask
from unmask.data.load import load_data
from unmask.errors import UnmaskError
from unmask.evaluation.judges.load_judge import causal_judge
from unmask.evaluation.metrics.bootstrap import Figure
from unmask.evaluation.suites.sample_rows import Setting
from unmask.extensions.infilling import infilling
from unmask.extensions.infilling.gap_quality import Gap, held_out_gaps, middle_gap, score
from unmask.extensions.infilling.infilling import FilledRow
from unmask.vocabulary import Vocabulary

V = Vocabulary(20, mask_id=19, pad_id=18, bos_id=17, eos_id=16)
LABEL = 15


@pytest.fixture(scope="module")
def baseline(reader) -> unmask.Model:
    return unmask.load(reader)


@pytest.fixture(scope="module")
def judge(judge_folder):
    return causal_judge(judge_folder, torch.device("cpu"))


def filled(
    model, baseline=None, judge=None, *, n=3, gap=2, data=None, samplers=None, steps=None,
    temperatures=(1.0,), batch=64, say=lambda line: None,
) -> list[FilledRow]:  # fmt: skip
    """The rows of the suite, with models in place of their names."""
    points = infilling.settings_of(model, baseline, samplers, steps, temperatures)
    gaps = held_out_gaps(model, n, gap, say, data)
    return list(infilling.filled(model, gaps, points, judge, 0, batch))


# Gaps and scores, by hand


def test_the_gap_lies_in_the_middle_of_the_first_text():
    assert middle_gap([17, 1, 2, 3, 4, 5, 6, 16, 17, 7], V, [], 2) == Gap(
        [17, 1, 2, 3, 4, 5, 6, 16], 3, 5
    )
    assert middle_gap([LABEL, 1, 2, 3], V, [LABEL], 1) == Gap([LABEL, 1, 2, 3], 2, 3)
    assert middle_gap([1, 2, 3, 4, 5], V, [], 1) == Gap([1, 2, 3, 4, 5], 2, 3)
    assert middle_gap([17, 1, 2, 3, 4, 5, 16], V, [], 2) is None  # too short
    assert middle_gap([], V, [], 1) is None
    assert Gap([1, 2, 3, 4], 1, 3).filled([8, 9]) == [1, 8, 9, 4]


def test_exact_is_all_tokens_of_a_gap():
    gaps = [Gap([1, 2, 3, 4], 1, 3), Gap([5, 6, 7, 8], 1, 3)]
    found = score(gaps, [[2, 3], [6, 1]], str, None)
    assert (found.exact.value, found.accuracy.value) == (0.5, 0.75)
    assert (found.gap, found.after) == (None, None)
    none = score(gaps, [[0, 0], [0, 0]], str, None)
    assert none.accuracy == Figure(0.0, math.inf)  # two wrong gaps do not prove a rate of 0
    assert 0.6 < none.exact.high < 0.7


def test_the_judge_counts_the_gap_and_the_right_side_separately(judge):
    words = {1: "the cat", 2: " sat on", 3: " a mat", 4: " by the sea", 5: " ran to"}

    def decode(ids: list[int]) -> str:
        return "".join(words[i] for i in ids)

    found = score([Gap([1, 2, 3, 4], 1, 2)], [[5]], decode, judge)
    read = judge.read_texts([decode([1, 5, 3, 4])])[0]
    ends = torch.tensor(read.ends)
    start, stop = len(words[1]), len(words[1] + words[5])
    inside, behind = (ends > start) & (ends <= stop), ends > stop
    assert 0 < inside.sum() < len(ends) - behind.sum()  # the left side is in neither
    assert found.gap.value == pytest.approx(float(read.nats[inside].mean()))
    assert found.after.value == pytest.approx(float(read.nats[behind].mean()))


# Models


def test_rows_are_real_text_the_model_and_the_baseline(model, baseline, judge):
    rows = filled(model, baseline=baseline, judge=judge, temperatures=[0.0, 1.0])
    assert [(str(row.setting), row.sees) for row in rows] == [
        ("real text", ""),
        ("ancestral, temperature 0", "both sides"),
        ("ancestral, temperature 1", "both sides"),
        ("left_to_right, temperature 0", "both sides"),
        ("left_to_right, temperature 1", "both sides"),
        ("left_to_right, temperature 0", "left side"),
        ("left_to_right, temperature 1", "left side"),
    ]
    real = rows[0].filling
    assert (real.exact.value, real.accuracy.value) == (1, 1)
    texts = [gap.ids for gap in held_out_gaps(model, 3, 2, print)]
    assert len(texts) == rows[0].n == 3
    again = filled(model, baseline=baseline, judge=judge, temperatures=[0.0, 1.0], batch=1)
    for one, other in zip(rows, again, strict=True):
        assert other.filling.exact == one.filling.exact
        assert other.filling.gap.value == pytest.approx(one.filling.gap.value)
    assert [row.to_dict()["baseline"] for row in rows] == [*[False] * 5, True, True]
    figures = rows[1].to_dict()
    assert figures["sees"] == "both sides" and figures["exact"] == rows[1].filling.exact.value
    assert figures["gap_low"] <= figures["gap"] <= figures["gap_high"]


def test_only_a_bidirectional_model_depends_on_the_right_side(model, baseline):
    """The gaps are the same, the right side differs."""
    gaps = held_out_gaps(model, 3, 2, print)
    others = [
        Gap(
            [*gap.ids[: gap.stop], *reversed(gap.ids[gap.stop : -1]), gap.ids[-1]],
            gap.start,
            gap.stop,
        )
        for gap in gaps
    ]
    canvases = []

    def watched(who, places):
        running = infilling._generator(who, places, Setting("left_to_right", None, 1.0), 0, 8)
        canvases.append(running.job.canvases)
        return [result.ids[: places[0].start + 2] for result in running.results()]

    assert watched(baseline, gaps) == watched(baseline, others)
    assert canvases[0] == canvases[1]
    watched(model, gaps)
    watched(model, others)
    assert canvases[2] != canvases[3]
    mask_id = model.tokenizer.vocabulary.mask_id
    assert all(row.count(mask_id) == 2 for rows in canvases for row in rows)


def test_the_number_of_steps_is_reported(model):
    samplers = ["ancestral", "ancestral:steps=1", "left_to_right"]
    rows = [row.to_dict() for row in filled(model, samplers=samplers)]
    assert [row["steps"] for row in rows] == [None, 2, 1, None]
    assert filled(model, samplers=["ancestral"], steps=[3])[1].to_dict()["steps"] == 3


def test_texts_can_be_given(model, tmp_path):
    texts = ["The king sat on the log.", "The king sat on the mat."]
    (tmp_path / "text.txt").write_text("\n".join(texts))
    notes: list[str] = []
    for data in (texts, str(tmp_path / "text.txt")):
        gaps = held_out_gaps(model, 2, 2, notes.append, data)
        assert [model.tokenizer.decode(gap.ids) for gap in gaps] == texts
        assert filled(model, data=data, say=notes.append)[0].n == 2
    assert notes == ["the given text has 2 texts of 6 tokens or more, not 3: using these"] * 2


def test_an_autoregressive_model_is_its_own_baseline(baseline):
    assert [row.sees for row in filled(baseline)] == ["", "left side"]


# Mistakes


def test_a_mistake_is_one_line(model, left_to_right):
    for options, message in [
        ({"baseline": left_to_right}, "another tokenizer"),
        ({"baseline": model}, "the baseline sees both sides of a gap"),
        ({"gap": 100}, "no validation text has the 300 tokens"),
        ({"samplers": ["ancestrall"]}, "did you mean 'ancestral'?"),
        ({"steps": [0]}, "steps must be 1 or more"),
    ]:
        with pytest.raises(UnmaskError) as caught:
            filled(model, **options)
        assert message in one_line(caught)


def test_a_corpus_of_one_byte_is_one_line(model, tmp_path):
    (tmp_path / "byte.txt").write_bytes(b"a")
    data = replace(
        model.config.data,
        valid=str(tmp_path / "byte.txt"),
        cache=str(tmp_path / "cache"),
        held_out_digest="",
    )
    tiny = unmask.Model(model.method, model.tokenizer, replace(model.config, data=data))
    with pytest.raises(UnmaskError) as caught:
        filled(tiny)
    one_line(caught)


def test_fewer_texts_than_requested_are_reported(model):
    notes: list[str] = []
    rows = filled(model, n=10_000, say=notes.append)
    assert len(notes) == 1 and notes[0].endswith("tokens or more, not 10000: using these")
    assert 0 < rows[0].n <= len(load_data(model.config.data, model.tokenizer).valid)
    assert not math.isnan(rows[1].filling.exact.value)

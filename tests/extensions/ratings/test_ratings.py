"""Human evaluation: blind comparisons, votes that survive a kill, win rates,
scores and agreement.
"""

import json
import math
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression

from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.evaluation.metrics.bootstrap import share
from unmask.extensions.ratings.comparisons import REAL, attention_checks, compare_texts
from unmask.extensions.ratings.preferences import bradley_terry, krippendorff_alpha
from unmask.extensions.ratings.rated_texts import texts_to_rate
from unmask.extensions.ratings.rating_file import RatingFile
from unmask.extensions.ratings.rating_report import rating_report
from unmask.files.lock import only_user


def made(path: Path, n: int = 6, models: str = "ab", checks: int = 2) -> RatingFile:
    prompts = [f"prompt {i}" for i in range(n)]
    texts = {name: [f"{prompt}, {name} writes" for prompt in prompts] for name in models}
    comparisons = [*compare_texts(texts, prompts), *attention_checks(checks)]
    return RatingFile.create(path, {"models": list(models)}, comparisons)


def vote_all(file: RatingFile, rater: str, prefer: str = "a", attentive: bool = True) -> None:
    """Votes for the texts of one model, and in a check for the real text or the nonsense.
    The rest are ties.
    """
    while shown := file.next(rater):
        one = file.comparisons[shown.id]
        wanted = one.texts[0 if attentive else 1] if one.check else f"{one.prompt}, {prefer} writes"
        file.vote(rater, shown.id, {shown.left: 1, shown.right: 2}.get(wanted, 0))


# Comparisons


def test_every_rater_sees_every_comparison_once_in_an_order_and_on_sides_of_their_own(tmp_path):
    file = made(tmp_path / "r.jsonl", n=40)
    seen = {}
    for rater in ("anna", "ben"):
        seen[rater] = []
        while shown := file.next(rater):
            seen[rater].append((shown.id, shown.left))
            file.vote(rater, shown.id, 0)
        assert Counter(id for id, _ in seen[rater]) == dict.fromkeys(file.comparisons, 1)
        first = sum(left == file.comparisons[id].texts[0] for id, left in seen[rater])
        assert 10 < first < 32  # of 42: either text may be left
    assert [id for id, _ in seen["anna"]] != [id for id, _ in seen["ben"]]
    assert dict(seen["anna"]) != dict(seen["ben"])


def test_what_a_rater_sees_names_no_model(tmp_path):
    prompts = ["x", "y"]
    texts = {"model-one": ["x 1", "y 1"], "model-two": ["x 2", "y 2"]}
    file = RatingFile.create(tmp_path / "r.jsonl", {}, compare_texts(texts, prompts))
    assert "model" not in repr(file.next("anna"))


def test_three_models_give_three_pairs_for_each_prompt(tmp_path):
    file = made(tmp_path / "r.jsonl", n=2, models="abc", checks=0)
    pairs = Counter(one.names for one in file.comparisons.values())
    assert pairs == {("a", "b"): 2, ("a", "c"): 2, ("b", "c"): 2}


def test_an_attention_check_has_the_same_words_in_another_order():
    for check in attention_checks(12, seed=3):
        real, nonsense = (text.split() for text in check.texts)
        assert sorted(real) == sorted(nonsense)
        assert real != nonsense
    with pytest.raises(UnmaskError, match="13 attention checks need 13 real texts"):
        attention_checks(13)


# The file


def test_votes_are_read_back_and_the_order_resumes(tmp_path):
    path = tmp_path / "r.jsonl"
    file = made(path)
    for _ in range(3):
        file.vote("anna", file.next("anna").id, 1, seconds=1.5)
    again = RatingFile.read(path)
    assert again.votes == file.votes
    assert again.next("anna") == file.next("anna")
    assert again.progress("anna") == (3, 8)
    assert again.progress("ben") == (0, 8)


def test_a_second_vote_on_a_comparison_changes_nothing(tmp_path):
    file = made(tmp_path / "r.jsonl")
    id = file.next("anna").id
    file.vote("anna", id, 1)
    before = file.path.read_bytes()
    file.vote("anna", id, 2)
    assert file.path.read_bytes() == before


@pytest.mark.parametrize("torn", [b'{"vote": {"compar', b"\x00\x00\x00", b'{"vote": null', b"[]"])
def test_a_line_that_was_cut_off_is_no_vote_and_the_next_vote_is_complete(torn, tmp_path):
    path = tmp_path / "r.jsonl"
    file = made(path)
    file.vote("anna", file.next("anna").id, 1)
    with path.open("ab") as end:
        end.write(torn)
    again = RatingFile.read(path)
    assert again.votes == file.votes
    again.vote("anna", again.next("anna").id, 2)
    assert RatingFile.read(path).votes == again.votes
    assert len(again.votes) == 2


def test_a_kill_loses_no_vote(tmp_path):
    """A process votes and reports each vote through a pipe; SIGKILL at random moments."""
    path, dice = tmp_path / "r.jsonl", random.Random(0)
    made(path, n=600, checks=0)
    acknowledged: list[str] = []
    for _ in range(10):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            file = RatingFile.read(path)
            while shown := file.next("anna"):
                file.vote("anna", shown.id, 1)
                os.write(write, shown.id.encode())
            os._exit(0)
        os.close(write)
        first = os.read(read, 16)
        time.sleep(dice.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        content = first
        while part := os.read(read, 65536):
            content += part
        os.close(read)
        acknowledged += [content[i : i + 16].decode() for i in range(0, len(content) - 15, 16)]
    votes = RatingFile.read(path).votes
    assert {("anna", id) for id in acknowledged} <= votes.keys()
    assert len(set(acknowledged)) == len(acknowledged) >= 10
    assert (
        len(votes) - len(acknowledged) <= 10
    )  # one that was saved and not acknowledged, at each kill


MISTAKES = [
    (lambda file: file.vote("", next(iter(file.comparisons)), 1), "the name of a rater"),
    (lambda file: file.vote("x" * 61, next(iter(file.comparisons)), 1), "the name of a rater"),
    (lambda file: file.vote("anna", "0" * 16, 1), "no comparison '0000000000000000'"),
    (lambda file: RatingFile.create(file.path, {}, []), "exists: name a new file"),
    (lambda file: rating_report([file]), "holds no votes: rate some texts first"),
    (lambda file: attention_checks(-1), "must be 0 or more, not -1"),
    (lambda file: RatingFile.read(file.path.parent), "name a file that 'unmask rate' made"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES)
def test_mistakes(mistake, message, tmp_path):
    with pytest.raises(UnmaskError, match=message):
        mistake(made(tmp_path / "r.jsonl"))


DAMAGE = [{"comparison": "0" * 16}, {"comparison": [1]}, {"rater": None}, {"winner": "c"}]


@pytest.mark.parametrize("changed", DAMAGE)
def test_a_vote_that_fits_no_comparison_is_one_line(changed, tmp_path):
    file = made(tmp_path / "r.jsonl")
    file.vote("anna", file.next("anna").id, 1)
    *lines, last = file.path.read_text().splitlines()
    vote = {"vote": {**json.loads(last)["vote"], **changed}}
    file.path.write_text("\n".join([*lines, json.dumps(vote)]) + "\n")
    with pytest.raises(UnmaskError, match=r"is damaged: the vote of .* fits none|holds no ratings"):
        RatingFile.read(file.path)


def test_a_vote_is_refused_if_the_file_is_gone(tmp_path):
    file = made(tmp_path / "r.jsonl")
    file.path.rename(tmp_path / "moved.jsonl")
    shown = file.next("anna")
    with pytest.raises(UnmaskError, match=r"r.jsonl is gone and the vote is not saved"):
        file.vote("anna", shown.id, 1)
    assert not file.path.exists()
    (tmp_path / "moved.jsonl").rename(file.path)
    file.vote("anna", shown.id, 1)
    assert len(RatingFile.read(file.path).votes) == 1


def test_one_process_serves_a_file(tmp_path):
    file = made(tmp_path / "r.jsonl")
    with only_user(file.path):
        with pytest.raises(UnmaskError, match="another process uses"), only_user(file.path):
            pass
        file.vote("anna", file.next("anna").id, 1)  # its own votes are written
    with only_user(file.path):
        assert len(RatingFile.read(file.path).votes) == 1


def test_texts_belong_to_their_prompts(tmp_path):
    """An empty text of a file is an error: without it, later texts would move to other prompts."""
    (tmp_path / "a.txt").write_text("A0\nA1\nA2\n")
    (tmp_path / "b.jsonl").write_text("".join(f'{{"text": "{t}"}}\n' for t in ("B0", "", "B2")))
    models = {"a": str(tmp_path / "a.txt"), "b": str(tmp_path / "b.jsonl")}
    assert texts_to_rate(models, ["p"]) == {"a": ["A0"], "b": ["B0"]}
    with pytest.raises(UnmaskError, match=r"text 2 of .*b\.jsonl is empty"):
        texts_to_rate(models, ["p", "q", "r"])


def test_models_in_another_order_are_the_same_comparison():
    one, other = (
        compare_texts({name: [f"{name} writes"] for name in names}, ["p"])
        for names in (("old", "new"), ("new", "old"))
    )
    assert one == other


# Statistics


@pytest.mark.parametrize(("hits", "n"), [(0, 5), (3, 10), (10, 10), (57, 80)])
def test_the_interval_of_a_win_rate_is_wilsons(hits, n):
    figure = share([1.0] * hits + [0.0] * (n - hits))
    interval = binomtest(hits, n).proportion_ci(0.95, "wilson")
    assert (figure.low, figure.high) == pytest.approx((interval.low, interval.high))


def test_the_interval_covers_the_true_win_rate_with_ties_and_three_raters():
    """Each comparison has its own chance of a win, so votes on one comparison are correlated."""
    dice, covered = np.random.default_rng(0), 0
    for _ in range(400):
        chances = dice.beta(0.6, 0.4, 30)  # mean 0.6
        scores = dice.binomial(6, chances) / 6  # three raters, ties allowed
        figure = share(scores.tolist())
        covered += figure.low <= 0.6 <= figure.high
    assert covered / 400 > 0.94


def test_bradley_terry_is_a_logistic_regression():
    wins = np.array([[0, 7, 12], [3, 0, 9], [1, 4, 0]], float)
    padded = wins + 0.5 * (1 - np.eye(3))  # the extra tie
    rows, weights = [], []
    for i in range(3):
        for j in range(3):
            if i != j:
                rows.append(np.eye(3)[i] - np.eye(3)[j])
                weights.append(padded[i, j])
    x = np.array([*rows, *(-np.array(rows))])
    y = np.array([1] * len(rows) + [0] * len(rows))
    fitted = LogisticRegression(C=1e9, fit_intercept=False, tol=1e-10, max_iter=1000)
    fitted.fit(x, y, np.array([*weights, *weights]))
    expected = fitted.coef_[0] - fitted.coef_[0].mean()
    assert bradley_terry(wins) == pytest.approx(expected, abs=1e-4)
    assert bradley_terry(np.stack([wins, wins.T]))[1] == pytest.approx(-expected, abs=1e-4)


def test_krippendorffs_own_example():
    """Reliability data with four observers,
    twelve units and missing labels (Krippendorff, 2011).
    """
    a = [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None]
    b = [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3]
    c = [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None]
    d = [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None]
    units = [[x for x in unit if x is not None] for unit in zip(a, b, c, d, strict=True)]
    assert krippendorff_alpha(units) == pytest.approx(0.743, abs=5e-4)


def test_no_agreement_is_measured_without_two_raters_or_two_kinds_of_votes():
    assert krippendorff_alpha([["a"], ["b"]]) is None
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None


# The report


def test_the_report_of_two_raters(tmp_path):
    file = made(tmp_path / "r.jsonl", n=20, models="abc")
    vote_all(file, "anna", prefer="a")
    vote_all(file, "ben", prefer="a")
    report = rating_report([RatingFile.read(file.path)])
    rates = {one.names: one for one in report.win_rates}
    assert rates["a", "b"].rate.value == 1
    assert rates["a", "b"].rate.low > 0.8
    assert (rates["a", "b"].wins, rates["a", "b"].ties, rates["a", "b"].losses) == (40, 0, 0)
    assert report.scores["a"].value > 2
    assert report.scores["b"].value == pytest.approx(report.scores["c"].value)
    assert [(one.name, one.checks, one.passed, one.used) for one in report.raters] == [
        ("anna", 2, 2, True),
        ("ben", 2, 2, True),
    ]
    assert report.agreement is not None
    assert report.agreement.value == 1
    assert report.shared == 60


def test_a_rater_without_attention_is_left_out(tmp_path):
    file = made(tmp_path / "r.jsonl", n=10)
    vote_all(file, "anna", prefer="a")
    vote_all(file, "clicks", prefer="b", attentive=False)
    report = rating_report([file])
    assert [one.used for one in report.raters] == [True, False]
    assert report.win_rates[0].rate.value == 1
    assert rating_report([file], least_checks=0).win_rates[0].rate.value == 0.5
    assert rating_report([file], least_checks=0).agreement.value < 0.2
    alone = made(tmp_path / "s.jsonl", n=10)
    vote_all(alone, "clicks", prefer="b", attentive=False)
    with pytest.raises(UnmaskError, match="no votes are left"):
        rating_report([alone])
    with pytest.raises(UnmaskError, match=r"least_checks must lie in \[0, 1\], not nan"):
        rating_report([file], least_checks=math.nan)


def test_files_of_several_raters_are_reported_together(tmp_path, capsys):
    one, two = made(tmp_path / "1.jsonl"), made(tmp_path / "2.jsonl")
    vote_all(one, "anna")
    vote_all(two, "ben")
    assert main(["rate", "--report", str(one.path), str(two.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["shared"] == 6
    assert report["win_rates"][0]["comparisons"] == 6
    assert main(["rate", "--report", str(one.path)]) == 0
    printed = capsys.readouterr().out
    assert "100%" in printed
    assert "2 of 2" in printed
    assert "Agreement: none" in printed


def test_the_real_text_is_the_right_answer_of_a_check(tmp_path):
    file = made(tmp_path / "r.jsonl", n=1)
    vote_all(file, "anna")
    winners = [
        vote.winner for vote in file.votes.values() if file.comparisons[vote.comparison].check
    ]
    assert winners == [REAL, REAL]

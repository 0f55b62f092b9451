"""The paper's tables in small: runs that differ only in the subject of a row,
and computed verdicts.
"""

import json
import math
import random
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev

import pytest
from tiny_models import TEXTS, one_line

import unmask
from unmask.cli import main
from unmask.config.run_config import RunConfig, flatten
from unmask.data.load import load_data
from unmask.data.rows.first_rows import FirstRows
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.errors import UnmaskError
from unmask.extensions.report.agreement import (
    Compared,
    combined,
    difference_error,
    half_width,
    order,
    ratios,
)
from unmask.extensions.report.measurements import Budget, Measuring, Point
from unmask.extensions.report.published_tables import PUBLISHED
from unmask.extensions.report.reproduced_tables import (
    RESULTS,
    Line,
    _with_seeds,
    reproduce,
    seed_deviation,
)
from unmask.extensions.report.scaled_runs import RUNS, SCALES, Request
from unmask.likelihood.estimate import likelihood
from unmask.methods.method import METHODS
from unmask.runs.run_folder import count_parameters, read_run
from unmask.vocabulary import Vocabulary

SHAPE = {"width": "32", "depth": "1", "heads": "2", "condition_width": "8"}
OVERRIDES = [
    *((f"backbone.{name}", value) for name, value in SHAPE.items()),
    ("data.separator", "line"),
    ("data.packing", "wrap"),
    ("data.length", "24"),
    ("data.holdout", "0.2"),
    ("data.tokenizer.size", "300"),
    ("training.steps", "6"),
    ("training.batch", "8"),
    ("training.warmup", "2"),
    ("training.save_every", "3"),
]
MDLM = ["mdlm", "mdlm-seed-1"]  # Table 1 trains two seeds


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> dict:
    """The fields of a request that trains in moments, without the table."""
    folder = tmp_path_factory.mktemp("reproduce")
    (folder / "corpus.txt").write_text("\n".join(TEXTS * 3), encoding="utf-8")
    return {
        "runs": folder / "runs",
        "data": str(folder / "corpus.txt"),
        "overrides": [*OVERRIDES, ("data.cache", str(folder / "cache"))],
        "budget": {"rows": 4, "draws": 2},
        "device": "cpu",
        "say": lambda line: None,
    }


@pytest.fixture(scope="module")
def table1(asked):
    """Table 1. Its five runs share one tokenizer."""
    learned = []

    def learn(*args):
        learned.append(args)
        return build_tokenizer(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.data.load.build_tokenizer", learn)
        found = reproduce(Request("table1", **asked))
    assert len(learned) == 1
    return found


def as_trained(request: Request, run: str) -> RunConfig | None:
    """The configuration of a trained run, in place of the recipe's."""
    folder = request.folder / run
    return read_run(folder).config if folder.is_dir() else None


def measured(asked: dict, name: str) -> Point:
    """The stored bound of a run."""
    folder = asked["runs"] / name
    return Measuring(folder, read_run(folder).config, None).bound()


# Runs


def request(scale: str = "small", table: str = "table1", **options) -> Request:
    return Request(table, scale, data="train.txt", **options)


@pytest.mark.parametrize("scale", SCALES)
def test_rows_differ_only_in_their_subject(scale):
    base = flatten(request(scale).config("mdlm"))
    for name, changes in RUNS.items():
        own = flatten(request(scale).config(name))
        if name != "ar":
            assert own["backbone.gate"] == 0, name  # a gate has a larger effect than a part of MDLM
        differing = {key for key in base.keys() | own.keys() if base.get(key) != own.get(key)}
        sections = {key.partition(".")[0] for key in changes}
        assert {key.partition(".")[0] for key in differing} <= sections, name
        for key in ("backbone.width", "backbone.depth", "backbone.heads", "backbone.dropout"):
            assert own[key] == base[key], (name, key)


@pytest.mark.parametrize("scale", SCALES)
def test_every_row_has_the_parameters_of_the_others(scale):
    sizes = {}
    for name in RUNS:
        config = request(scale).config(name)
        vocabulary = Vocabulary.over(config.data.tokenizer.size)
        sizes[name] = count_parameters(config, vocabulary).non_embedding
    assert max(sizes.values()) < 1.06 * min(sizes.values()), sizes


def test_the_small_scale_has_its_stated_size():
    config = request().config("mdlm")
    training = config.training
    assert training.steps * training.batch * config.data.length >= 200e6
    assert 24e6 < count_parameters(config, Vocabulary.over(16384)).non_embedding < 27e6
    assert config.data.tokenizer.size == 16384
    assert (training.precision, training.compile) == ("auto", True)
    assert training.steps % training.validate_every == 0


def test_the_rows_of_table_8_take_away_one_part_after_the_other():
    parts = []
    for row in PUBLISHED["table8"].figures:
        method = request(table="table8").config(row).method
        steps = method.config.steps
        subs = METHODS[method.name] is METHODS["mdlm"]
        switches = [subs or method.config.zero_masking, subs or method.config.carry_over]
        parts.append((steps, *switches))
    assert parts == [(0, True, True), (1000, True, True), (1000, True, False), (1000, False, False)]


def test_a_row_has_the_figures_of_its_runs(table1, asked):
    assert [line.row for line in table1.lines] == ["ar", "mdlm", "sedd", "d3pm"]
    for line in table1.lines:
        assert line.paper == PUBLISHED["table1"].figures[line.row]
        names = MDLM if line.row == "mdlm" else [line.row]
        assert line.runs == tuple(str(asked["runs"] / name) for name in names)
        kept = [measured(asked, name) for name in names]
        assert all(point.draws == (1 if line.row == "ar" else 2) for point in kept)
        assert math.log(line.ours) == pytest.approx(sum(p.nats for p in kept) / len(kept))
        assert line.certificate == ("exact" if line.row == "ar" else "upper")
    runs = {run.name: run for run in table1.runs}
    assert set(runs) == {"ar", "mdlm", "mdlm-seed-1", "sedd", "d3pm"}
    assert len({run.tokens for run in runs.values()}) == 1
    assert {run.config.seed for run in runs.values()} == {0, 1}
    fingerprints = {unmask.load(run.folder, "cpu").tokenizer.fingerprint for run in table1.runs}
    assert len(fingerprints) == 1


def test_a_test_text_is_measured_and_nothing_is_trained_for_it(
    table1, asked, tmp_path, monkeypatch
):
    test = tmp_path / "test.txt"
    test.write_text("\n".join(reversed(TEXTS)), encoding="utf-8")
    monkeypatch.setattr("unmask.extensions.report.scaled_runs.train", None)
    mine = copied(asked, tmp_path, "mdlm", "mdlm-seed-1")
    (line,) = reproduce(Request("table1", only=["mdlm"], test=str(test), **mine)).lines
    model = unmask.load(asked["runs"] / "mdlm")
    held = replace(model.config.data, valid=str(test))
    rows = FirstRows(load_data(held, model.tokenizer).valid, asked["budget"]["rows"])
    by_run = [
        likelihood(unmask.load(asked["runs"] / name).method, rows, draws=2).nats
        for name in ("mdlm", "mdlm-seed-1")
    ]
    assert math.log(line.ours) == pytest.approx(fmean(by_run), rel=1e-6)
    assert line.ours != next(kept.ours for kept in table1.lines if kept.row == "mdlm")


def test_training_and_measurements_are_not_repeated(table1, asked, monkeypatch):
    for name in ("extensions.report.scaled_runs.train", "extensions.report.measurements.load"):
        monkeypatch.setattr(f"unmask.{name}", None)
    said: list[str] = []
    again = reproduce(Request("table1", **asked | {"say": said.append}))
    assert said == []
    assert again.to_dict() == table1.to_dict()
    lines = (asked["runs"] / RESULTS).read_text().splitlines()
    assert [json.loads(line)["row"] for line in lines] == ["ar", "mdlm", "sedd", "d3pm"]


def test_an_unfinished_run_resumes(table1, asked, tmp_path, monkeypatch):
    """The run is stopped after three of six steps."""
    said: list[str] = []
    runs = tmp_path / "runs"
    mine = asked | {"runs": runs, "only": ["mdlm"], "say": said.append}

    class Killed(Exception):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("unmask.training.trainer.Trainer._log", kill)
        overrides = [*asked["overrides"], ("training.log_every", "5")]
        with pytest.raises(Killed):
            reproduce(Request("table8", **mine | {"overrides": overrides}))
    assert (runs / "mdlm" / "checkpoints" / "step-00000003").is_dir()
    assert not (runs / "mdlm" / "model").exists()
    (line,) = reproduce(Request("table8", **mine)).lines
    assert any("resuming" in line and "at step 3" in line for line in said)
    mdlm = next(run for run in table1.runs if run.name == "mdlm")
    straight = Measuring(mdlm.folder, mdlm.config, Budget(4, 2), "cpu").bound()
    assert line.facts["nats"] == straight.nats


def test_a_runs_folder_of_other_settings_is_refused(table1, asked):
    overrides = [*asked["overrides"], ("training.lr", "0.5")]
    with pytest.raises(UnmaskError, match="belongs to another configuration: training") as caught:
        reproduce(Request("table11", **asked | {"overrides": overrides}))
    assert one_line(caught).endswith("choose another folder of runs (--runs)")


def test_table_11_and_the_schedules_come_from_one_run(table1, asked):
    steps = reproduce(Request("table11", **asked))
    assert [line.row for line in steps.lines] == list(PUBLISHED["table11"].figures)
    assert [run.name for run in steps.runs] == ["mdlm"]
    assert steps.lines[-1].facts["nats"] == pytest.approx(table1.lines[1].facts["nats_mdlm"])
    assert len({line.ours for line in steps.lines}) == 8
    assert sum(len(part) for part in vars(steps.agreement[0]).values()) == 7
    schedules = reproduce(Request("schedules", **asked))
    variances = {line.row: line.ours for line in schedules.lines}
    assert list(variances) == ["loglinear", "cosine", "cosine_squared", "linear"]
    assert variances["loglinear"] < variances["linear"]
    claims = [claim for part in vars(schedules.agreement[0]).values() for claim in part]
    assert claims[0].startswith("bound under loglinear = bound under cosine")


# Verdicts


def compared(*figures: tuple[float, float, float]) -> list[Compared]:
    return [Compared("abc"[i], *each) for i, each in enumerate(figures)]


def test_an_order_counts_if_it_is_beyond_its_error():
    a, b, c = compared((10, 0.36, 1), (11, 0.48, 2), (11.01, 0.001, 2))
    assert order([(a, b)]).open == ["a < b"]  # 1 against an error of 0.6
    assert order([(a, c)]).agrees == ["a < c"]
    assert order([(b, c)]).agrees == ["b = c"]
    assert order([(c, a)]).agrees == ["c > a"]
    x, y = compared((10, 0, 2), (9, 0, 2.5))
    assert order([(x, y)]).differs == ["a < b (ours >)"]
    assert (
        str(order([(a, c), (x, y), (a, b)]))
        == "agrees: a < c; differs: a < b (ours >); open: a < b"
    )


def test_an_equality_agrees_only_if_a_difference_would_have_shown():
    a, sharp, vague = compared((10, 0.1, 3), (10.1, 0.5, 3), (10.1, 3.0, 3))
    assert order([(a, sharp)]).agrees == ["a = b"]
    assert order([(a, vague)]).open == ["a = c"]
    assert order([(a, replace(sharp, freedom=1))]).open == ["a = b"]
    assert ratios([replace(sharp, freedom=1)], a).open


@pytest.mark.parametrize("draws", [2, 8])
def test_equal_figures_rarely_give_a_verdict(draws):
    """At 95% confidence one in twenty, for any number of draws, shared or not."""
    chance, wrong = random.Random(0), {"apart": 0, "shared": 0}
    for _ in range(200):
        values = [[chance.gauss(10, 1) for _ in range(draws)] for _ in "ab"]
        a, b = (
            Compared(name, fmean(each), stdev(each) / math.sqrt(draws), paper, each, draws - 1.0)
            for name, each, paper in zip("ab", values, (1, 2), strict=True)
        )
        wrong["shared"] += not order([(a, b)]).open
        alone = order([(replace(a, by_draw=()), replace(b, by_draw=()))])
        wrong["apart"] += not alone.open
    assert max(wrong.values()) < 0.085 * 200  # a rate of 12% fails in 95 of 100 cases


def test_degrees_of_freedom_combine_by_welchs_formula():
    assert combined((3.0, 5.0), (4.0, 5.0)) == pytest.approx((5.0, 625 * 5 / (81 + 256)))
    assert combined((0.0, 1.0), (2.0, 7.0)) == (2.0, 7.0)
    assert combined((0.0, math.inf), (0.0, 1.0)) == (0.0, math.inf)
    assert half_width((1.0, 1.0)) == pytest.approx(12.706, abs=1e-3)
    assert half_width((2.0, math.inf)) == pytest.approx(3.92, abs=1e-3)
    assert half_width((math.inf, 1.0)) == math.inf


def test_infinite_figures_give_no_verdict():
    a, b = compared((math.inf, math.inf, 1), (math.inf, 0.0, 2))
    c = Compared("c", 10, 0.1, 0.5)
    for pair in [(a, b), (c, a)]:
        (claim,) = order([pair]).open
        assert claim.endswith("(error unknown)")
    assert len(ratios([a, b], c).open) == 2
    shared = replace(a, by_draw=[math.inf, math.inf])
    assert order([(shared, shared)]).open


def test_figures_of_the_same_draws_are_compared_draw_by_draw():
    a = Compared("a", 10, 5, 1, by_draw=[5, 10, 15])
    b = Compared("b", 11, 5, 2, by_draw=[6.1, 11, 15.9])
    assert difference_error(a, b) == pytest.approx((0.1 / math.sqrt(3), 2))
    assert order([(a, b)]).agrees == ["a < b"]
    assert difference_error(a, Compared("c", 11, 12, 2)) == (13, math.inf)


def test_a_ratio_is_the_papers_within_its_error():
    base, near, far = compared((10, 0.1, 100), (20, 1.0, 210), (20, 0.1, 230))
    assert ratios([near], base).agrees == ["b is 2.10 × a (ours 2.00 ± 0.10)"]
    wide = Compared("c", 20, 3.0, 210)
    assert ratios([wide], base).open == ["c is 2.10 × a (ours 2.00 ± 0.30)"]
    assert ratios([far], base).differs == ["c is 2.30 × a (ours 2.00 ± 0.02)"]
    base, close = compared((1000, 0.1, 1000), (1002, 0.1, 1000))
    assert ratios([close], base).differs == ["b is 1.0000 × a (ours 1.0020 ± 0.0001)"]
    vague = replace(close, freedom=2)
    assert ratios([vague], base).open == ["b is 1.00 × a (ours 1.00 ± ?)"]


def test_another_seed_would_have_trained_another_model():
    lines = [
        Line("one", 10.0, 0.1, 1, "upper", ("r",), {}),
        Line("two", 20.0, 0.1, 2, "upper", ("r", "s"), {"seed_deviation": 0.05}),
    ]
    one, two = _with_seeds(lines, (0.05, 1.0))
    assert one.seeds == pytest.approx((10 * 0.05, 1))
    assert two.seeds == pytest.approx((20 * 0.05 / math.sqrt(2), 1))
    # the seeds of both are one estimate, so its degrees of freedom count once
    error, freedom = difference_error(one, two)
    assert error == pytest.approx(math.hypot(0.1, 0.1, one.seeds[0], two.seeds[0]))
    assert 1 <= freedom < 1.1


def copied(asked: dict, tmp_path: Path, *names: str) -> dict:
    """A request whose folder holds only some of the runs."""
    for name in names:
        shutil.copytree(asked["runs"] / name, tmp_path / name)
    return asked | {"runs": tmp_path}


@pytest.mark.parametrize(
    ("table", "rows"), [("table1", ["ar", "sedd"]), ("table8", ["mdlm", "d3pm"])]
)
def test_without_a_second_seed_methods_are_not_compared(table1, asked, tmp_path, table, rows):
    found = reproduce(Request(table, only=rows, **copied(asked, tmp_path, *rows)))
    (agreement,) = found.agreement
    assert (
        str(agreement)
        == f"open: {' < '.join(rows)} (deviation between seeds unknown: no row has two seeds)"
    )


def test_table_8_counts_the_seeds_of_table_1(table1, asked, monkeypatch):
    request = Request("table8", only=["mdlm", "d3pm"], **asked)
    found = reproduce(request)
    assert [line.runs for line in found.lines] == [
        tuple(str(asked["runs"] / name) for name in names) for names in (MDLM, ["d3pm"])
    ]
    assert seed_deviation(request) == (table1.lines[1].facts["seed_deviation"], 1.0)
    nats = {"mdlm": 3.0, "d3pm": 3.02, "mdlm-seed-1": 3.001}
    point = measured(asked, "ar")
    monkeypatch.setattr(Measuring, "bound", lambda self: replace(point, nats=nats[self.run.name]))
    assert reproduce(request).agreement[0].agrees == ["mdlm < d3pm"]
    nats["mdlm-seed-1"] = 3.01  # the difference of seeds is as large
    assert reproduce(request).agreement[0].open == ["mdlm < d3pm"]


def test_more_seeds_are_trained_if_asked_for(table1, asked, tmp_path):
    mine = copied(asked, tmp_path, "mdlm", "mdlm-seed-1", "d3pm")
    rows = {"only": ["mdlm", "d3pm"], **mine}
    first = reproduce(Request("table8", **rows))
    found = reproduce(Request("table8", seeds=2, **rows))
    assert [run.name for run in found.runs] == [*MDLM, "d3pm", "d3pm-seed-1"]
    assert [run.config.seed for run in found.runs] == [0, 1, 0, 1]
    assert found.lines[0] == first.lines[0]
    one, two = (found.lines[1].facts[f"nats_{name}"] for name in ("d3pm", "d3pm-seed-1"))
    assert first.lines[1].facts["nats"] == one != two
    assert found.lines[1].facts["nats"] == pytest.approx((one + two) / 2)
    assert reproduce(Request("table8", **rows)).lines == found.lines  # they exist now


def test_the_seeds_of_all_rows_estimate_the_deviation_between_seeds(asked, tmp_path, monkeypatch):
    nats = {"mdlm": [3.0, 3.2], "d3pm": [3.0, 3.0, 3.3], "sedd": [9.0]}
    runs = {
        f"{row}-seed-{n}" if n else row: each for row in nats for n, each in enumerate(nats[row])
    }
    for run in runs:
        (tmp_path / run).mkdir()
    monkeypatch.setattr(
        "unmask.extensions.report.scaled_runs._trained", lambda folder, _: folder.name in runs
    )
    monkeypatch.setattr(
        "unmask.extensions.report.reproduced_tables._bound",
        lambda _, run: Point(0, runs[run], 0.0, "upper", 1.0, tokens=1, draws=2),
    )
    pooled = math.sqrt((0.02 + 0.06) / 3)
    request = Request("table8", **asked | {"runs": tmp_path})
    assert seed_deviation(request) == pytest.approx((pooled, 3.0))


def test_a_seed_is_counted_if_it_is_trained(table1, asked, tmp_path):
    mine = copied(asked, tmp_path, "mdlm")
    second = asked["runs"] / "mdlm-seed-1"
    # names that do not agree with the seed
    for name in ("mdlm-seed-7", "mdlm-seed-01", "mdlm-seed-1-old"):
        shutil.copytree(second, tmp_path / name)
    (tmp_path / "mdlm-seed-2").mkdir()  # not begun
    request = Request("table8", **mine)
    assert request.seeds_of("mdlm") == ["mdlm"]
    config = tmp_path / "mdlm-seed-7" / "config.yaml"
    config.write_text(config.read_text().replace("seed: 1", "seed: 7"))
    assert request.seeds_of("mdlm") == ["mdlm", "mdlm-seed-7"]
    shutil.copytree(second, tmp_path / "mdlm-seed-1")
    assert request.trained_seeds("mdlm") == [*MDLM, "mdlm-seed-7"]
    assert replace(request, seeds=3).seeds_of("mdlm") == [*MDLM, "mdlm-seed-2", "mdlm-seed-7"]


def test_seeds_count_from_the_first():
    seeds = [request(overrides=[("seed", "5")]).config(run).seed for run in MDLM]
    assert seeds == [5, 6]


def test_figures_keep_their_degrees_of_freedom(table1, asked):
    by_row = {line.row: line for line in table1.lines}
    assert by_row["ar"].freedom == math.inf
    assert 1 <= by_row["sedd"].freedom < 2  # two draws of one block
    assert measured(asked, "ar").freedom == math.inf
    steps = reproduce(Request("table11", **asked)).lines
    assert steps[-2].freedom == 1


def test_the_spread_of_seeds_is_their_standard_deviation(table1):
    facts = table1.lines[1].facts
    apart = facts["nats_mdlm"] - facts["nats_mdlm-seed-1"]
    assert facts["seed_deviation"] == pytest.approx(abs(apart) / math.sqrt(2))
    assert facts["seed_deviation"] > 0


def test_seeds_with_the_same_noise_have_correlated_errors(table1, asked):
    """A second seed with the same draws of the same rows does not reduce the noise of the mean."""
    bounds = [measured(asked, name) for name in MDLM]
    line = table1.lines[1]
    assert line.facts["nats_error"] == pytest.approx(fmean(bound.error for bound in bounds))
    assert line.error == pytest.approx(line.ours * line.facts["nats_error"])
    assert line.freedom == min(bound.freedom for bound in bounds)


def test_the_papers_figures_are_consistent():
    """Figures that occur in several tables are equal, and agree with the text of the paper."""
    one, eight = PUBLISHED["table1"].figures, PUBLISHED["table8"].figures
    assert one["mdlm"] == eight["mdlm"]
    falling = list(PUBLISHED["table11"].figures.values())
    assert all(a > b for a, b in pairwise(falling))
    assert math.log(one["mdlm"]) == pytest.approx(3.30, abs=0.005)


# The command


@pytest.fixture
def command(table1, asked, capsys, monkeypatch):
    """Prints Table 1 of some rows, from the finished runs."""
    monkeypatch.setattr(Request, "config", as_trained)
    argv = ["reproduce", "table1", "--runs", str(asked["runs"]), "--data", asked["data"]]
    argv += ["--rows", "4", "--draws", "2", "--device", "cpu"]

    def run(*options: str) -> str:
        assert main([*argv, *options]) == 0
        return capsys.readouterr().out

    return run


def test_the_command_prints_the_papers_figures_too(command, table1):
    out = command("--only", "ar", "sedd")
    assert "22.32" in out
    assert "≤ 32.79" in out
    assert "27.04" not in out
    assert f"{table1.lines[0].ours:.4f}" in out
    assert "backbone.time_conditioning" in out
    assert any(line.startswith(("agrees: ", "differs: ", "open: ")) for line in out.splitlines())
    found = json.loads(command("--only", "ar", "sedd", "--json"))
    assert [line["row"] for line in found["lines"]] == ["ar", "sedd"]
    assert found["lines"][0]["ours"] == table1.lines[0].ours
    assert len(found["agreement"]) == 1


def test_the_command_prints_each_seed_and_signs_bounds(command, table1):
    out = command("--only", "ar", "mdlm")
    exact, mean = table1.lines[:2]
    assert f"≤ {mean.facts['nats']:.4f} ± ?" in out  # two draws do not determine the error
    assert f"≤ {exact.facts['nats']:.4f}" not in out
    for name in MDLM:
        assert f"{mean.facts[f'nats_{name}']:.4f}" in out


def test_an_infinite_bound_is_printed(command, monkeypatch):
    kept = Measuring.bound

    def far(self: Measuring):
        return replace(kept(self), nats=1e4)

    monkeypatch.setattr(Measuring, "bound", far)
    out = command("--only", "ar", "sedd")
    assert "≤ ∞" in out
    assert "open: ar < sedd (error unknown)" in out
    out = command("--only", "ar", "sedd", "--json")
    found = json.loads(out, parse_constant=pytest.fail)
    assert [line["ours"] for line in found["lines"]] == [None, None]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["tabel1"], "unknown table 'tabel1'; did you mean 'table1'?"),
        (["table1", "--scale", "smal"], "unknown scale 'smal'; did you mean 'small'?"),
        (["table1", "--scale", "small"], "scale small ships no text: give --data"),
        (["table1", "--only", "mdml"], "unknown row of table1 'mdml'; did you mean 'mdlm'?"),
        (["schedules", "--draws", "1"], "draws must be 2 or more"),
        (["table8", "--seeds", "0"], "--seeds must be 1 or more, not 0"),
        (
            ["table11", "--seeds", "2"],
            "table11 measures a single run: --seeds is for table1 and table8",
        ),
        (["table1", "--data", "nothing.txt"], "no file or folder nothing.txt"),
    ],
)
def test_mistakes_are_one_line_and_nothing_is_trained(argv, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err.splitlines()[-1]
    assert "Traceback" not in err
    assert list(Path().iterdir()) == []

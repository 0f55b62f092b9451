"""A report shows measured figures, measures each once, and its page needs no other files."""

import base64
import json
import math
import re
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tiny_models import TEXTS, one_line, train_tiny

import unmask
from unmask.cli import main
from unmask.config.run_config import resolve
from unmask.data.load import load_data
from unmask.data.rows.first_rows import FirstRows
from unmask.diffusion.schedule import SCHEDULES
from unmask.errors import UnmaskError
from unmask.evaluation.suites.sample_rows import Row
from unmask.extensions.report import plots as pictures
from unmask.extensions.report.bound_by_steps import nats_by_steps
from unmask.extensions.report.measurements import COMPARED, STEPS, Budget, Measuring, Point
from unmask.extensions.report.parts import perplexity
from unmask.extensions.report.run_report import report_run
from unmask.extensions.report.schedule_variance import variance_by_schedule
from unmask.extensions.report.sections import sections
from unmask.likelihood.estimate import likelihood
from unmask.likelihood.figure_text import with_error
from unmask.runs.run_folder import differences, read_run, read_runs

ROWS, DRAWS = 2, 4
OPTIONS = ["--rows", str(ROWS), "--draws", str(DRAWS), "--device", "cpu"]
VOID = {"meta", "img", "br", "hr", "link", "input"}


@pytest.fixture(scope="module")
def runs(run, tmp_path_factory) -> list[Path]:
    """An MDLM and an autoregressive run, side by side."""
    folder = tmp_path_factory.mktemp("report")
    other = train_tiny(tmp_path_factory.mktemp("other"), "bpe", "autoregressive", "causal")
    found = [folder / "<b>mdlm & co", folder / "ar"]
    for source, target in zip((run, other), found, strict=True):
        shutil.copytree(source, target)
    return found


@pytest.fixture(scope="module")
def measured(runs) -> list[Path]:
    """The same runs with everything measured, also a frontier."""
    assert main(["report", *map(str, runs), *OPTIONS]) == 0
    rows = str(runs[0] / "frontier.jsonl")
    how = ["--samplers", "ancestral", "--steps", "2,4", "--samples", "2", "--judge", "self"]
    assert main(["evaluate", "generation", str(runs[0]), *how, "--out", rows]) == 0
    return runs


class Page(HTMLParser):
    """The parsed page: elements, tables, pictures and texts. Every element must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict]] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.text: list[str] = []
        self.caption = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.tables[self.caption].append([])
        if tag in ("td", "th"):
            self.tables[self.caption][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1] == "caption":
            self.caption = data
            self.tables[data] = []
        elif self.open and self.open[-1] in ("td", "th"):
            self.tables[self.caption][-1][-1] += data

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(measured, tmp_path_factory) -> Page:
    file = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", *map(str, measured), *OPTIONS, "--html", str(file)]) == 0
    return Page(file.read_text(encoding="utf-8"))


# The page


def test_nothing_is_fetched_and_nothing_runs(page):
    assert page.all("script") == page.all("link") == page.all("iframe") == []
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "srcset", "action", "data"):
                assert value.startswith(("#", "data:image/svg+xml;base64,")), (tag, value)
    style = "".join(page.text[: page.text.index("Training")])
    assert "@import" not in style
    assert "url(" not in style


def test_every_link_of_the_page_leads_to_a_section(page):
    sections = {attributes["id"] for attributes in page.all("section")}
    links = [attributes["href"].removeprefix("#") for attributes in page.all("a")]
    assert set(links) == sections
    assert len(sections) == 7


def test_every_picture_is_an_svg_with_words_for_it(page):
    pictures = page.all("img")
    assert len(pictures) == len(page.all("figure")) == 4
    for picture in pictures:
        assert len(picture["alt"]) > 40
        svg = base64.b64decode(picture["src"].partition(",")[2]).decode()
        root = ElementTree.fromstring(svg)
        words = {element.text for element in root.iter() if element.tag.endswith("}text")}
        assert len(words) > 5
        assert "prefers-color-scheme: dark" in svg
        named = re.findall(r"#[0-9a-f]{6}", svg.partition("</style>")[2])
        assert set(named) <= {"#000000"}, "a colour that does not follow the page"
        for link in re.findall(r'(?:href|src)="([^"]*)"', svg):
            assert link.startswith("#")


def test_every_table_has_headers_for_its_columns_and_rows(page):
    scopes = [attributes.get("scope") for attributes in page.all("th")]
    assert set(scopes) == {"col", "row"}
    assert len(page.tables) == len(page.all("table"))
    for caption, rows in page.tables.items():
        assert len({len(row) for row in rows}) == 1, caption
        assert len(rows) > 1, caption


def test_names_from_a_run_are_text_and_not_markup(page, measured):
    assert page.all("b") == []
    assert measured[0].name in page.tables["Final bound"][1]
    assert {"lang": "en"} in page.all("html")


# Its numbers


def test_the_numbers_of_the_page_are_those_measured(page, measured):
    model = unmask.load(measured[0], "cpu")
    rows = FirstRows(load_data(model.config.data, model.tokenizer).valid, ROWS)
    own = likelihood(model.method, rows, draws=DRAWS)
    byte = with_error(own.bits_per_byte, own.bits_per_byte_error)
    assert page.tables["Final bound"][1][1:4] == [
        f"≈ {byte}" if own.text_estimated else f"≤ {byte}",
        f"≤ {with_error(own.perplexity, own.perplexity_error)}",
        f"≤ {with_error(own.nats, own.error)}",
    ]
    assert "±" in byte
    by_steps = {row[0]: row[1] for row in page.tables["Perplexity by T"][1:]}
    assert list(by_steps) == ["10", "20", "50", "100", "200", "500", "1000", "∞"]
    few = likelihood(model.method, rows, draws=DRAWS, steps=10)
    assert by_steps["10"] == f"≤ {with_error(few.perplexity, few.perplexity_error)}"
    nats = nats_by_steps(model.method, rows, [500], draws=DRAWS)[500]
    value, error = math.exp(nats.mean()), float(nats.std()) / math.sqrt(DRAWS)
    assert by_steps["500"] == f"≤ {with_error(value, value * error)}"
    assert by_steps["∞"] == page.tables["Final bound"][1][2]
    schedules = {name: SCHEDULES.build(name) for name in COMPARED}
    spreads = variance_by_schedule(model.method, rows, schedules, draws=DRAWS)
    table = page.tables[f"{measured[0].name}, by schedule"][1:]
    assert [row[:3] for row in table] == [
        [
            name,
            f"≤ {with_error(spread.nats, spread.error, spread.freedom)}",
            with_error(spread.variance, spread.variance_error, spread.variance_freedom),
        ]
        for name, spread in spreads.items()
    ]
    best = {row[0]: row[2] for row in page.tables["Loss"][1:]}
    assert {name: told.startswith("≤ ") for name, told in best.items()} == {
        measured[0].name: True,
        measured[1].name: False,  # exact
    }


def test_an_error_of_few_draws_is_shown_as_unknown(measured, tmp_path):
    run = read_run(shutil.copytree(measured[0], tmp_path / "run"))
    found = sections([report_run(run, Budget(ROWS, 2), "cpu")])
    bound, by_steps = (part for part in found if part.title in ("Bound", "Bound by T"))
    assert all(told.endswith(" ± ?") for told in bound.tables[0].rows[0][1:4])
    assert all(row[1].endswith(" ± ?") for row in by_steps.tables[0].rows)


def test_an_exact_likelihood_has_no_sign_and_no_error(page):
    exact = page.tables["Final bound"][2]
    assert exact[0] == "ar"
    assert not set("≤±") & set("".join(exact))


def test_settings_that_differ_are_shown_side_by_side(page, measured):
    table = {row[0]: row[1:] for row in page.tables["Settings that differ"][1:]}
    assert table["method.name"] == ["mdlm", "autoregressive"]
    assert table["backbone.gate"] == ["0.0", "–"]
    assert "training.lr" not in table
    assert set(table) == set(differences(read_runs(measured)))
    facts = {row[0]: row[1:] for row in page.tables["Runs"][1:]}
    method = unmask.load(measured[0], "cpu").method
    embedding = sum(p.numel() for p in method.backbone.embedding.parameters())
    head = sum(p.numel() for p in method.backbone.head.parameters())
    total = sum(p.numel() for p in method.parameters())
    assert facts["network"] == ["dit", "causal"]
    assert facts["parameters"][0] == f"{total:,}"
    assert facts["of them non-embedding"][0] == f"{total - embedding - head:,}"
    assert facts["steps"] == ["40", "40"]


def test_the_log_and_the_frontier_are_shown(page, measured):
    loss = page.tables["Loss"][1]
    records = [json.loads(line) for line in (measured[0] / "log.jsonl").read_text().splitlines()]
    last = [record["loss"] for record in records if "loss" in record][-1]
    assert loss[1] == f"{last:.4f}"
    frontier = page.tables[f"{measured[0].name}, frontier.jsonl"]
    assert [row[0] for row in frontier[1:]] == [
        "real text",
        "ancestral, 2 steps, temperature 1",
        "ancestral, 4 steps, temperature 1",
    ]
    judged = [frontier[0].index(name) for name in ("nats / token", "bits / byte")]  # by a bound
    assert all(row[column].startswith("≤ ") for row in frontier[1:] for column in judged)
    entropy = frontier[0].index("entropy")
    assert not any("≤" in row[entropy] for row in frontier[1:])


def test_frontiers_by_one_judge_share_a_picture_whose_marks_grow(measured):
    first, second = (report_run(run, None, "cpu") for run in read_runs(measured))
    real, *steps = first.frontiers["frontier.jsonl"]
    warmer = [
        replace(row, sampler="left_to_right", steps=None, temperature=temperature)
        for row, temperature in zip(steps, (1.0, 0.5), strict=True)
    ]

    def drawn(rows: list[Row]) -> list[str]:
        both = [first, replace(second, frontiers={"frontier.jsonl": rows})]
        section = next(each for each in sections(both) if each.title == "Frontier")
        return [picture.draw() for picture in section.pictures]

    (together,) = drawn([real, *warmer])
    words = list(ElementTree.fromstring(together).itertext())
    assert words.count("real text") == 1
    assert "judge's nats per token, upper bound" in words
    assert {f"{first.run.name}: ancestral", "ar: left_to_right"} <= set(words)
    for number, order in [(1, [0, 1]), (2, [1, 0])]:  # by steps, by temperature
        marks = together.partition(f'id="PathCollection_{number}"')[2].partition("</g>")[0]
        across = [
            [float(x) for x in re.findall(r"[\d.]+", path)[::2]]
            for path in re.findall(r' d="(.*?)"', marks, re.DOTALL)
        ]
        small, large = (max(xs) - min(xs) for xs in across)
        assert small < large
        left, right = (max(xs) + min(xs) for xs in across)
        entropies = [steps[place].entropy for place in order]
        assert (left < right) == (entropies[0] < entropies[1])
    other = [replace(row, judge_digest="another", judge="another") for row in (real, *warmer)]
    assert len(drawn(other)) == 2
    assert len(drawn([replace(row, length=7) for row in warmer])) == 2


# Measuring once


def test_a_second_report_measures_nothing(measured, monkeypatch, capsys):
    monkeypatch.setattr("unmask.extensions.report.measurements.load", None)
    assert main(["report", *map(str, measured), *OPTIONS, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    first, second = map(json.loads, out.splitlines())
    assert [point["steps"] for point in first["by_steps"]] == list(STEPS)
    assert list(first["schedules"]) == list(COMPARED)
    for name in ("nats", "error", "tokens", "certificate"):
        assert first["bound"][name] == pytest.approx(first["by_steps"][-1][name])
    bound = first["bound"]
    relative = bound["bits_per_byte_error"] / bound["bits_per_byte"]
    assert relative == pytest.approx(bound["error"] / bound["nats"])
    assert second["bound"]["bits_per_byte_error"] == 0
    assert second["by_steps"] == []
    assert second["schedules"] == {}
    assert second["bound"]["certificate"] == "exact"


def test_other_settings_and_other_weights_are_measured_anew(measured, tmp_path):
    run = Path(shutil.copytree(measured[0], tmp_path / "run"))
    said: list[str] = []

    def bound(budget: Budget | None):
        return Measuring(run, read_run(run).config, budget, "cpu", said.append).bound()

    same = bound(Budget(ROWS, DRAWS))
    assert said == []
    assert bound(None) == same
    other = bound(Budget(ROWS, DRAWS, seed=1))
    assert said == [f"measuring {run}: bound"]
    assert other.nats != same.nats
    assert bound(None) == other  # the newest one, with any settings
    manifest = json.loads((run / "model" / "manifest.json").read_text())
    manifest["model.safetensors"] = "0" * 64
    (run / "model" / "manifest.json").write_text(json.dumps(manifest))
    assert bound(None) is None


def test_without_measuring_only_existing_figures_are_shown(run, tmp_path, monkeypatch, capsys):
    fresh = Path(shutil.copytree(run, tmp_path / "fresh"))
    (fresh / "measurements.jsonl").unlink(missing_ok=True)
    monkeypatch.setattr("unmask.extensions.report.measurements.load", None)
    assert main(["report", str(fresh), "--no-measure"]) == 0
    out = capsys.readouterr().out
    assert "None: it needs an MDLM in continuous time, and a measurement" in out
    assert "Final bound" not in out
    assert "best validation" in out
    assert not (fresh / "measurements.jsonl").exists()


def own_text(run: Path, folder: Path):
    """A copy of a run, with its text in the same folder."""
    copy = read_run(shutil.copytree(run, folder / "run"))
    (copy.folder / "measurements.jsonl").unlink(missing_ok=True)
    file = folder / "corpus.txt"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    data = replace(copy.config.data, train=str(file), cache=str(folder / "cache"))
    return replace(copy, config=replace(copy.config, data=data)), file


def test_a_text_that_has_changed_is_measured_anew(run, tmp_path):
    copy, file = own_text(run, tmp_path)
    said: list[str] = []

    def bound():
        return Measuring(copy.folder, copy.config, Budget(ROWS, DRAWS), "cpu", said.append).bound()

    first = bound()
    assert bound() == first
    assert len(said) == 1
    file.write_text(file.read_text().replace("sat on", "no sat"), encoding="utf-8")
    second = bound()
    assert len(said) == 2
    assert second.nats != first.nats
    assert bound() == second


def test_a_run_without_its_text_shows_existing_figures(run, tmp_path):
    copy, file = own_text(run, tmp_path)
    said: list[str] = []
    asked = Budget(ROWS, DRAWS)
    whole = report_run(copy, asked, "cpu", said.append)
    assert not any("cached" in line for line in said)
    file.unlink()
    assert report_run(copy, asked, "cpu", said.append) == whole
    assert said[-1].endswith("corpus.txt; cached measurements are assumed to be of this text")
    other = report_run(copy, Budget(ROWS, DRAWS, seed=7), "cpu", said.append)
    assert (
        sum(line.endswith("the report shows only cached measurements of this run") for line in said)
        == 1
    )
    # figures of another budget are not shown; samples need no text
    assert (other.bound, other.by_steps, other.schedules) == (None, [], {})
    assert len(other.samples) == 2
    assert report_run(copy, None, "cpu", said.append).bound == whole.bound


def test_a_model_of_pairs_is_reported_by_its_targets(tmp_path):
    pairs = [{"de": text.lower(), "en": text.upper()} for text in TEXTS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    settings = {
        "data.train": tmp_path / "pairs.jsonl",
        "data.cache": tmp_path / "cache",
        "data.source_field": "de",
        "data.target_field": "en",
        "data.packing": "pad",
        "data.length": 90,
        "data.holdout": 0.3,
        "data.tokenizer.kind": "characters",
        "backbone.width": 32,
        "backbone.depth": 1,
        "backbone.heads": 2,
        "training.steps": 2,
        "training.batch": 4,
        "training.device": "cpu",
    }
    config = resolve({}, [(name, str(value)) for name, value in settings.items()])
    unmask.train(config, tmp_path / "run", say=lambda line: None)
    said: list[str] = []
    report = report_run(read_run(tmp_path / "run"), Budget(0, 2), "cpu", said.append)
    assert all(line.startswith("measuring ") for line in said)
    sources = [sample.partition(" → ")[0] for sample in report.samples]
    assert len(sources) == 2
    assert set(sources) <= {pair["de"] for pair in pairs}
    own = unmask.load(tmp_path / "run", "cpu").perplexity(draws=2)
    assert report.bound.nats == pytest.approx(own.nats)
    by_T = {point.steps: point for point in report.by_steps}
    assert by_T[0].nats == pytest.approx(own.nats)
    assert by_T[1000].nats == pytest.approx(own.nats, rel=0.05)
    assert {point.tokens for point in report.by_steps} == {own.tokens}
    spread = report.schedules["loglinear"]
    assert abs(spread.nats - own.nats) < 5 * spread.error < own.nats


def test_an_infinite_bound_is_shown():
    points = [Point(steps, nats, 0.5, "upper", 1, 1, 2) for steps, nats in [(10, 9e3), (0, 2)]]
    assert [perplexity(point) for point in points] == ["≤ ∞", "≤ 7.4 ± 3.7"]
    assert "svg" in pictures.bound_by_steps({"run": points})
    assert perplexity(replace(points[0], certificate="exact", error=0)) == "∞"


def test_an_unfinished_run_is_reported(run, tmp_path, capsys):
    """The run has no export and no best checkpoint yet, and a kill cut the last line of its log."""
    folder = Path(shutil.copytree(run, tmp_path / "begun"))
    shutil.rmtree(folder / "model")
    shutil.rmtree(folder / "checkpoints")
    (folder / "measurements.jsonl").unlink(missing_ok=True)
    log = (folder / "log.jsonl").read_text().splitlines()[0]
    (folder / "log.jsonl").write_text(f'{log}\n{{"step": 2')
    assert main(["report", str(folder)]) == 0
    assert "10 of 40" in capsys.readouterr().out


def test_runs_of_one_name_are_distinguished_by_their_paths(run, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(run, tmp_path / name / "run")
    found = read_runs([tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "a" / "run"])
    assert [each.name for each in found] == [
        str(tmp_path / "a" / "run"),
        str(tmp_path / "b" / "run"),
    ]
    assert differences(found) == {}
    assert math.isclose(found[0].seconds, found[1].seconds)


# Mistakes


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ([], "no run "),
        (["x.txt"], "is no run: it has no config.yaml"),
        (["config.yaml"], "has no log: train some steps there with 'unmask train'"),
    ],
)
def test_a_folder_that_is_no_run_is_refused_in_one_line(tmp_path, run, made, message):
    folder = tmp_path / "folder"
    for name in made:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text((run / "config.yaml").read_text())
    with pytest.raises(UnmaskError, match=re.escape(message)) as caught:
        read_run(folder)
    assert str(folder) in one_line(caught)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draws", "1"], "draws must be 2 or more"),
        (["--rows", "1"], "rows must be 0 (all), or 2 or more, not 1"),
        (["--html", "nowhere/report.html"], "there is no folder nowhere"),
        (["--html", "."], "is a folder: give the name of a file"),
    ],
)
def test_mistakes_are_reported_before_anything_is_measured(run, options, message, capsys):
    assert main(["report", str(run), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert message in err


def test_a_page_needs_matplotlib(run, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["report", str(run), "--html", str(tmp_path / "page.html")]) == 2
    assert "--html needs matplotlib: pip install -e '.[log]'" in capsys.readouterr().err
    assert main(["report", str(run), "--no-measure"]) == 0

"""The documentation site builds without a broken link,
with a page for each command and each public name.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import unmask
from unmask.cli import build_parser

ROOT = Path(__file__).parents[1]


def build(target: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", str(config), "--site-dir", str(target)]
    settings = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(target)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_every_command_has_a_page_with_its_options(site):
    parsers = dict(build_parser()[1].choices)
    (suites,) = (a for a in parsers["evaluate"]._actions if isinstance(a.choices, dict))
    parsers |= {f"evaluate-{name}": parser for name, parser in suites.choices.items()}
    for name, parser in parsers.items():
        page = (site / "reference" / "commands" / f"{name}.html").read_text(encoding="utf-8")
        for action in parser._actions:
            for option in action.option_strings:
                assert f"<code>{option}" in page, f"{name} {option}"


def test_every_public_name_is_in_the_reference(site):
    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    for name in unmask.__all__:
        assert name.startswith("_") or re.search(rf'id="unmask\.[\w.]*\b{name}"', page), name
    assert 'id="unmask.model.Model.generate"' in page


def test_equations_link_to_their_functions(site):
    page = (site / "explanation" / "equations.html").read_text(encoding="utf-8")
    links = re.findall(r'href="\.\./reference/mathematics\.html#([\w.]+)"', page)
    assert "unmask.diffusion.process.unmask_probability" in links
    reference = (site / "reference" / "mathematics.html").read_text(encoding="utf-8")
    assert [link for link in links if f'id="{link}"' not in reference] == []


def test_nothing_is_fetched_from_elsewhere(site):
    fetched = (
        r'<(?:script|img|iframe|source)[^>]+src="(https?:)?//|<link[^>]+stylesheet[^>]+"https?:'
    )
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    assert [page for page in pages if re.search(fetched, page.read_text(encoding="utf-8"))] == []


def test_the_search_works_from_the_disk(site):
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("no chromium on this machine")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto((site / "index.html").as_uri())
        page.fill("input.md-search__input", "remasking")
        page.wait_for_selector(".md-search-result__link")
        links = [
            link.get_attribute("href")
            for link in page.query_selector_all(".md-search-result__link")
        ]
        browser.close()
    assert any("glossary.html" in link for link in links)


def test_the_reference_lists_parameters(site):
    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    generate = page.partition('id="unmask.model.Model.generate"')[2].partition(
        'id="unmask.model.Model.fill"'
    )[0]
    assert all(part in generate for part in ("Parameters:", "prompts", "Returns:", "Example"))


def test_a_broken_link_ends_the_build(tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(
        "# Home\n\n[a](other.md) [b](nowhere.md) [c](other.md#no-such)\n"
    )
    (pages / "other.md").write_text("# Other\n\n[d](#nor-this) ![e](missing.png)\n")
    config = tmp_path / "mkdocs.yml"
    plain = ["docs_dir: pages", "hooks: []", "plugins: []", "nav: [index.md, other.md]"]
    config.write_text("\n".join([f"INHERIT: {ROOT / 'mkdocs.yml'}", *plain]) + "\n")
    done = build(tmp_path / "site", config)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Aborted with 4 warnings in strict mode" in said
    assert all(link in said for link in ("nowhere.md", "no-such", "nor-this", "missing.png"))

"""A tiny trained model behind the page, and a browser to look at it."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from local_server import LocalServer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def server(model, left_to_right) -> Iterator[LocalServer]:
    with LocalServer({"tiny": model, "backwards": left_to_right}) as server:
        yield server


@pytest.fixture(scope="module")  # while it runs, this thread can have no other event loop
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium refuses root otherwise
        browser = started.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()

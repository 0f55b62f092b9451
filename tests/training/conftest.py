"""Lets the tests of this folder import their stand-in."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def no_picture(monkeypatch) -> None:
    """Runs that draw no loss curve, which takes longer than their steps."""
    monkeypatch.setattr("unmask.training.trainer.draw_curve", lambda run: run)

"""Wherever tensors are the subject, tests run with the shapes of all signatures checked."""

import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

if (
    not torch.cuda.is_available()
):  # Triton reads it when it is first imported, by whatever test that is
    os.environ["TRITON_INTERPRET"] = "1"
if torch.backends.cpu.get_cpu_capability() != "AVX512":  # as `unmask serve` does
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

CHECKED = ["randomness", "diffusion", "backbones", "constraints", "methods", "samplers"]

install_import_hook([f"unmask.{name}" for name in CHECKED], "beartype.beartype")
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("laws")


@pytest.fixture(scope="session", autouse=True)
def _no_pictures() -> Iterator[None]:
    """Runs draw no loss curve, which takes longer than their steps: a test of pictures asks for them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.training.trainer.draw_curve", lambda run: run)
        yield


@pytest.fixture
def unchecked(monkeypatch) -> None:
    """Without the checks of shapes, where they take longer than what is tested and others have them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture
def pictures(monkeypatch) -> None:
    """Runs draw their loss curve, as they do outside tests."""
    from unmask.training.curve import draw_curve

    monkeypatch.setattr("unmask.training.trainer.draw_curve", draw_curve)


@pytest.fixture
def put_datasets(monkeypatch) -> Callable[[Callable[..., Any]], None]:
    """Puts a function in the place of the hub's `load_dataset`, as if nothing else could be reached."""

    def put(load_dataset: Callable[..., Any]) -> None:
        offline = SimpleNamespace(HF_HUB_OFFLINE=True)
        module = SimpleNamespace(load_dataset=load_dataset, config=offline)
        monkeypatch.setitem(sys.modules, "datasets", module)

    return put

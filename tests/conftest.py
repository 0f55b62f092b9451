"""Fixtures that all tests share. Where tensors are the subject, the shapes of all signatures are checked."""

import os
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jaxtyping
import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

import unmask

if not torch.cuda.is_available():  # Triton reads it at its first import, which may be in any test
    os.environ["TRITON_INTERPRET"] = "1"
if torch.backends.cpu.get_cpu_capability() != "AVX512":  # as `unmask serve` does
    os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

CHECKED = ["randomness", "diffusion", "backbones", "constraints", "methods", "samplers"]
FIRST = pytest.StashKey[bool]()
SHAPES = {
    *CHECKED,
    "laws",
    "kernels",
    "training",
    "representation",
}  # folders of tests that check shapes

EXTENSIONS = Path(unmask.__file__).parent / "extensions"
ROOMS = [f"unmask.{name}" for name in CHECKED]
for room in EXTENSIONS.glob("*/*/__init__.py"):
    if room.parent.name in (*CHECKED, "layers"):
        ROOMS.append(f"unmask.extensions.{room.parent.parent.name}.{room.parent.name}")
install_import_hook(ROOMS, "beartype.beartype")
jaxtyping.config.update("jaxtyping_disable", True)
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("laws")


@pytest.fixture(scope="session", autouse=True)
def _no_pictures() -> Iterator[None]:
    """Runs draw no loss curve, which takes longer than their steps. Tests of pictures use the fixture `pictures`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.training.trainer.draw_curve", lambda run: run)
        yield


@pytest.fixture(scope="session", autouse=True)
def _on_the_cpu() -> Iterator[None]:
    """The device `auto` is the CPU, also on a machine with a GPU. Tests of a GPU name it."""
    from unmask.runtime import device

    devices = ["cpu", *(name for name in device._devices() if name != "cpu")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "_devices", lambda: devices)
        yield


@pytest.fixture(scope="session", autouse=True)
def native_bf16() -> Iterator[bool]:
    """True if this CPU computes bf16. UNMASK_TEST_BF16 (native or emulated) overrides it for the package."""
    from unmask.runtime import device

    kind = os.environ.get("UNMASK_TEST_BF16")
    native = device._cpu_computes_bf16()
    with pytest.MonkeyPatch.context() as patch:
        if kind:
            patch.setattr(device, "_cpu_computes_bf16", lambda: kind == "native")
        yield native


@pytest.fixture
def bf16(native_bf16) -> Iterator[None]:
    """bf16 for a test of its numbers. A CPU that emulates it prints no warning."""
    from unmask.errors import UnmaskWarning
    from unmask.runtime import device

    products = nullcontext() if native_bf16 else device._without_onednn
    with warnings.catch_warnings(), products:
        warnings.simplefilter("ignore", UnmaskWarning)
        yield


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """The run of a tiny MDLM, trained once."""
    from tiny_models import train_tiny

    return train_tiny(tmp_path_factory.mktemp("mdlm"), "bpe", "mdlm", "dit")


@pytest.fixture(scope="session")
def model(run) -> Any:
    """The tiny MDLM."""
    return unmask.load(run, device="cpu")


@pytest.fixture(scope="session")
def left_to_right(tmp_path_factory) -> Any:
    """A tiny autoregressive model, trained once."""
    from tiny_models import train_tiny

    folder = tmp_path_factory.mktemp("autoregressive")
    run = train_tiny(folder, "characters", "autoregressive", "causal")
    return unmask.load(run, device="cpu")


@pytest.fixture(scope="session")
def labelled(tmp_path_factory) -> Any:
    """A tiny MDLM of texts of two classes, trained once."""
    from labelled_models import train_labelled

    return train_labelled(tmp_path_factory.mktemp("classes"), {})


@pytest.fixture(scope="session")
def pair_runs(tmp_path_factory) -> dict[str, Path]:
    """The runs of tiny models of pairs by method, trained once."""
    from pair_runs import OWN, train_pairs

    return {method: train_pairs(tmp_path_factory.mktemp(method), method) for method in OWN}


@pytest.fixture(scope="session")
def pair_models(pair_runs) -> dict[str, Any]:
    """The models of these runs."""
    return {method: unmask.load(run) for method, run in pair_runs.items()}


@pytest.fixture(scope="session")
def pair_mdlm(pair_models) -> Any:
    """The tiny MDLM of pairs."""
    return pair_models["mdlm"]


@pytest.fixture(scope="session")
def judge_folder(tmp_path_factory) -> Path:
    """A causal model of transformers with its own tokenizer."""
    from tiny_judge import save_judge

    return save_judge(tmp_path_factory.mktemp("judges") / "tiny")


@pytest.fixture(scope="session")
def reader(tmp_path_factory) -> Path:
    """An autoregressive run with the tokenizer of the tiny MDLM."""
    from tiny_models import train_tiny

    return train_tiny(tmp_path_factory.mktemp("reader"), "bpe", "autoregressive", "causal")


@pytest.fixture(params=["mdlm", "autoregressive"])
def either(request, model, left_to_right) -> Any:
    """Both tiny models, one after the other."""
    return model if request.param == "mdlm" else left_to_right


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the first test of each file, which checks shapes."""
    firsts = {item.path: item for item in reversed(items)}
    for item in firsts.values():
        item.stash[FIRST] = True


@pytest.fixture(autouse=True)
def _shapes(request, monkeypatch) -> None:
    """Checks shapes in the first test of each file, and in the long form in all tests.

    Checks double the time of a test. A wrong shape fails most tests that call the function.
    """
    chosen = request.node.stash.get(FIRST, False)
    folder = request.path.parent
    checked = folder.name in SHAPES or folder.parent.name == "extensions"
    if checked and (chosen or request.config.option.markexpr == ""):
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", False)


@pytest.fixture
def pictures(monkeypatch) -> None:
    """Runs draw their loss curve, as they do outside tests."""
    from unmask.training.logs.loss_curve import draw_curve

    monkeypatch.setattr("unmask.training.trainer.draw_curve", draw_curve)


@pytest.fixture
def put_datasets(monkeypatch) -> Callable[[Callable[..., Any]], None]:
    """Replaces the hub's `load_dataset` by a function. Nothing else of the hub can be reached."""

    def put(load_dataset: Callable[..., Any]) -> None:
        offline = SimpleNamespace(HF_HUB_OFFLINE=True)
        module = SimpleNamespace(load_dataset=load_dataset, config=offline)
        monkeypatch.setitem(sys.modules, "datasets", module)

    return put


@pytest.fixture(scope="module")  # while it runs, this thread can have no other event loop
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as started:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []  # chromium refuses root otherwise
        browser = started.chromium.launch(executable_path=chromium, args=options)
        yield browser
        browser.close()

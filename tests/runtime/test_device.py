"""Devices and precisions: native ones are chosen, and emulated ones print one line."""

import platform
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import unmask
from unmask.cli import main
from unmask.errors import UnmaskError
from unmask.runtime import device as module
from unmask.runtime.device import native_precisions, resolve_device, resolve_precision

CPU = torch.device("cpu")
LINE = "this CPU emulates bf16, which is slow: precision auto takes fp32"


@pytest.fixture(params=["native", "emulated"])
def cpu(request, monkeypatch) -> str:
    """A CPU with or without bf16 instructions, on any machine."""
    monkeypatch.setattr(module, "_cpu_computes_bf16", lambda: request.param == "native")
    return request.param


@pytest.fixture
def products(monkeypatch) -> set[bool]:
    """Replaces products in bf16 by fp32. The set records if oneDNN was on for them."""
    product, seen = F.linear, set()

    def linear(x, weight, bias=None):
        half = torch.is_autocast_enabled("cpu")
        if half:
            seen.add(torch.backends.mkldnn.enabled)
        with torch.autocast("cpu", enabled=False):
            y = product(x.float(), weight.float(), None if bias is None else bias.float())
        return y.bfloat16() if half else y

    monkeypatch.setattr(F, "linear", linear)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    return seen


@pytest.mark.parametrize("warn_only", [True, False])
def test_deterministic_kernels_leave_the_mode_of_the_user(warn_only):
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        for wanted in (False, True):
            with module.deterministic(wanted):
                during = torch.is_deterministic_algorithms_warn_only_enabled()
                assert during == (warn_only and not wanted)
            assert torch.is_deterministic_algorithms_warn_only_enabled() == warn_only
            assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_missing_device_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnmaskError, match="cuda"):
        resolve_device("cuda")
    assert resolve_device("cpu").type == "cpu"


def test_auto_is_the_fastest_native_precision(cpu):
    assert resolve_precision("auto", CPU) == {"native": "bf16", "emulated": "fp32"}[cpu]
    assert resolve_precision("fp32", CPU) == "fp32"
    with pytest.raises(UnmaskError, match="unknown precision 'fp17'; did you mean 'fp32'"):
        resolve_precision("fp17", CPU)


@pytest.mark.parametrize("native", [True, False])
def test_bf16_on_a_gpu_needs_native_hardware(native, monkeypatch):
    emulation = {True: True, False: native}
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: emulation[including_emulation]
    )
    assert ("bf16" in native_precisions(torch.device("cuda"))) == native


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="Linux lists a CPU's instructions")
def test_bf16_of_this_cpu_follows_its_instructions(native_bf16):
    flags = set(Path("/proc/cpuinfo").read_text().split())
    assert native_bf16 == (("bf16" if platform.machine() == "aarch64" else "avx512_bf16") in flags)


def test_a_command_in_bf16_prints_one_line_where_it_is_emulated(cpu, run, products, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["generate", str(run), "--precision", "bf16", "--seed", "3"]) == 0
    assert capsys.readouterr().err == (f"unmask: warning: {LINE}\n" if cpu == "emulated" else "")
    assert products == {cpu == "native"}


def test_emulated_bf16_leaves_later_fp32_products_as_they_were(cpu, run, products, tmp_path):
    """Torch switches oneDNN off permanently at the first bf16 product that the
    CPU cannot compute.
    """
    config = unmask.load(run).config
    training = replace(config.training, precision="bf16", steps=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        unmask.train(replace(config, training=training), tmp_path / "run", say=lambda line: None)
    assert [str(each.message) for each in seen] == ([LINE] if cpu == "emulated" else [])
    assert products == {cpu == "native"}
    assert torch.backends.mkldnn.enabled

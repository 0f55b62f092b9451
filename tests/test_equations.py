"""docs/equations.md names what exists, and leaves no equation of `unmask.diffusion` out."""

import inspect
import pkgutil
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import unmask.diffusion
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS

PAGE = (Path(__file__).parents[1] / "docs" / "equations.md").read_text(encoding="utf-8")
SYMBOLS = sorted(set(re.findall(r"`(unmask(?:\.\w+)+)`", PAGE)))
MODULES = [
    f"unmask.diffusion.{module.name}" for module in pkgutil.iter_modules(unmask.diffusion.__path__)
]


def resolve(symbol: str) -> object:
    """What a dotted name stands for: a module, or something in one."""
    parts = symbol.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        return found
    raise ModuleNotFoundError(symbol)


def equations(module: str) -> set[str]:
    """What must have a line: a module's public functions, and the components it registers."""
    members = vars(import_module(module)).items()
    registered = {registry[name] for registry in (SCHEDULES, TIME_SAMPLERS) for name in registry}
    return {
        f"{module}.{name}"
        for name, member in members
        if getattr(member, "__module__", "") == module
        if (inspect.isfunction(member) and not name.startswith("_"))
        or (inspect.isclass(member) and member in registered)
    }


def lines(module: str) -> list[str]:
    """The symbols in the tables of a module's sections."""
    sections = re.findall(rf"^## [^\n]*`{re.escape(module)}`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    return re.findall(r"`([\w.]+)` \|$", "".join(sections), re.MULTILINE)


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_every_symbol_on_the_page_exists(symbol):
    assert resolve(symbol) is not None


@pytest.mark.parametrize("module", MODULES)
def test_every_equation_has_one_line_in_its_section(module):
    found = Counter(lines(module))
    assert set(found) >= equations(module)
    assert all(symbol.startswith(f"{module}.") for symbol in found)
    assert set(found.values()) <= {1}


def test_a_name_that_does_not_exist_is_noticed():
    with pytest.raises(AttributeError):
        resolve("unmask.diffusion.nelbo.no_such_weight")
    assert "unmask.diffusion.nelbo.continuous_weight" in equations("unmask.diffusion.nelbo")

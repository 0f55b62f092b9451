"""The public names are exactly these, and importing them is quick."""

import inspect
import os
import subprocess
import sys

import pytest

import unmask
import unmask.training

PUBLIC = [
    "Bound",
    "Frame",
    "Model",
    "Result",
    "RunConfig",
    "SamplingParams",
    "UnmaskError",
    "Vocabulary",
    "__version__",
    "compare",
    "evaluate",
    "load",
    "train",
]


def test_the_public_names_are_exactly_these():
    assert unmask.__all__ == PUBLIC
    assert dir(unmask) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_resolves_and_is_documented(name):
    value = getattr(unmask, name)
    written = inspect.getdoc(value) or ""
    # Python itself writes the signature of a dataclass as its docstring
    assert isinstance(value, str) or (written and not written.startswith(f"{name}("))


@pytest.mark.parametrize("package", [unmask, unmask.training])
def test_a_package_lists_its_public_names_and_fetches_each_once(package):
    assert dir(package) == sorted(package.__all__)
    assert [name for name, _ in inspect.getmembers(package)] == sorted(package.__all__)
    assert set(package.__all__) <= vars(package).keys()


def test_other_names_do_not_exist():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = unmask.nothing


def import_of(code: str) -> tuple[float, list[str]]:
    """The seconds of some code, and which of torch, numpy and an import hook it loads."""
    code = (
        "import sys, time; start = time.process_time(); finders = [*sys.meta_path]; "
        f"{code}; print(time.process_time() - start, "
        "*({'torch', 'numpy'} & sys.modules.keys()), *['hook'] * (finders != sys.meta_path))"
    )
    seconds, *brought = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    return float(seconds), brought


def test_importing_is_quick_imports_no_torch_and_hooks_no_imports():
    seconds, brought = import_of("import unmask")
    assert seconds < 0.3 and brought == []
    waits = "import os, unmask; print(1, os.environ['OMP_WAIT_POLICY'])"
    given = {name: text for name, text in os.environ.items() if name != "OMP_WAIT_POLICY"}
    assert subprocess.check_output([sys.executable, "-c", waits], env=given) == b"1 PASSIVE\n"
    assert import_of("import unmask, numpy; sys.meta_path.append(None)")[1] == ["numpy", "hook"]


def test_loading_imports_no_training_evaluation_or_compiler_and_collects_no_garbage():
    code = (
        "import gc, sys, torch, unmask; rounds = []; "
        "gc.callbacks.append(lambda phase, info: rounds.append(info)); unmask.load; "
        "print(len(rounds), gc.isenabled(), *(name for name in sys.argv[1:] if name in sys.modules))"
    )
    unneeded = ["evaluation", "training.trainer", "data.load", "data.loader", "runs.train"]
    names = [f"unmask.{name}" for name in [*unneeded, "generation.generator"]] + ["torch._dynamo"]
    printed = subprocess.check_output([sys.executable, "-c", code, *names], text=True)
    rounds, enabled, *brought = printed.split()
    assert int(rounds) <= 2  # one collection begins and ends when everything is loaded
    assert enabled == "True"
    assert brought == ["unmask.generation.generator"]

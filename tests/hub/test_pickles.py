"""Pickles that would run something: refused by every reader, and nothing has run."""

import functools
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hub_models import FIXTURE, authors_settings, lightning, omegaconf, refused

import unmask
from unmask.errors import UnmaskError
from unmask.hub.pickles import Inert, plain, read_pickle
from unmask.hub.reading import read

MARK = "executed"


class Bomb:
    """Calls what it is given when it is unpickled."""

    def __init__(self, call: Callable, *given: Any) -> None:
        self.call = call, given

    def __reduce__(self) -> tuple:
        return self.call


def bombs(target: Path) -> dict[str, Bomb]:
    code = f"open({str(target)!r}, 'w').close()"
    return {
        "system": Bomb(os.system, f"touch {target}"),
        "eval": Bomb(eval, code),
        "exec": Bomb(exec, code),
        "open": Bomb(open, str(target), "w"),
        "getattr": Bomb(getattr, "x", "upper"),
        "import": Bomb(__import__, "antigravity"),
        "mkdir": Bomb(os.mkdir, str(target)),
        "partial": Bomb(functools.partial, os.system, "true"),
        "torch": Bomb(torch.hub.load, "a", "b"),
        "load": Bomb(pickle.loads, pickle.dumps(1)),
    }


NAMES = list(bombs(Path("x")))
HIDDEN = {
    "alone": lambda bomb: bomb,
    "weights": lambda bomb: {"state_dict": {"backbone.x": bomb}},
    "settings": lambda bomb: {"state_dict": {}, "hyper_parameters": {"config": bomb}},
    "averages": lambda bomb: {"state_dict": {}, "ema": {"shadow_params": [bomb]}},
    "somewhere": lambda bomb: {"state_dict": {}, "callbacks": {"a": [{"b": (bomb,)}]}},
}


@pytest.mark.parametrize("place", HIDDEN)
@pytest.mark.parametrize("name", NAMES)
def test_a_bomb_in_a_lightning_checkpoint(tmp_path, name, place):
    target = tmp_path / MARK
    torch.save(HIDDEN[place](bombs(target)[name]), tmp_path / "a.ckpt")
    assert "refused" in refused(lambda: read(tmp_path / "a.ckpt"))
    assert not target.exists()
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", NAMES)
def test_a_bomb_in_the_weights_of_a_folder(tmp_path, name):
    target = tmp_path / MARK
    shutil.copy(FIXTURE / "config.json", tmp_path)
    torch.save({"backbone.x": bombs(target)[name]}, tmp_path / "pytorch_model.bin")
    assert "refused" in refused(lambda: unmask.load(tmp_path))
    # a plain pickle, and one under the name of a safe format
    for file in ("pytorch_model.bin", "model.safetensors"):
        (tmp_path / file).write_bytes(pickle.dumps(bombs(target)[name]))
        refused(lambda: unmask.load(tmp_path))
    assert not target.exists()


def test_plain_pickles_and_torn_archives_are_refused(tmp_path):
    file, target = tmp_path / "a.ckpt", tmp_path / MARK
    for protocol in (0, 2, 5):
        file.write_bytes(pickle.dumps(bombs(target)["system"], protocol))
        assert "no checkpoint" in refused(lambda: read(file))
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(bombs(target)["system"]))
    refused(lambda: read(file))
    whole = lightning(tmp_path / "whole.ckpt", authors_settings()).read_bytes()
    for cut in (100, len(whole) // 2, len(whole) - 10):
        file.write_bytes(whole[:cut])
        refused(lambda: read(file))
    assert not target.exists()


def test_an_object_of_a_known_library_does_nothing(tmp_path):
    ran = []
    module = ModuleType("transformers.hostile")
    module.Hostile = type(
        "Hostile",
        (),
        {
            "__module__": module.__name__,
            "__reduce__": lambda self: (module.call, ("x",)),
            "__setstate__": lambda self, state: ran.append(state),
        },
    )

    def call(word: str) -> str:
        ran.append(word)
        return word

    call.__module__, call.__qualname__ = module.__name__, "call"
    module.call = call
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)
        torch.save({"a": module.Hostile()}, tmp_path / "a.ckpt")
        found = read_pickle(tmp_path / "a.ckpt", objects=True)["a"]
    assert isinstance(found, Inert) and found.given == ("x",) and ran == []
    with pytest.raises(UnmaskError, match=r"names transformers\.hostile"):
        read_pickle(tmp_path / "a.ckpt")  # where nothing but weights belongs


def test_settings_come_out_plain(tmp_path):
    settings = authors_settings()
    with omegaconf() as wrap:
        torch.save({"config": wrap(settings)}, tmp_path / "a.ckpt")
    found = read_pickle(tmp_path / "a.ckpt", objects=True)
    assert plain(found["config"]) == settings

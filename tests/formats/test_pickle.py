"""Every reader refuses pickles that would run code, and runs nothing of them."""

import codecs
import functools
import os
import pickle
import shutil
import sys
import zipfile
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from pickletools import genops
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from hub_models import FIXTURE, authors_settings, lightning, omegaconf, refused
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

import unmask
from unmask.errors import UnmaskError
from unmask.formats.pickle import Inert, plain, read_pickle
from unmask.formats.read import read

MARK = "executed"


class Bomb:
    """An object whose unpickling calls a given function."""

    def __init__(self, call: Callable, *given: Any, state: Any = None, pairs: Any = None) -> None:
        self.call = call, given, state, None, pairs

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
        read_pickle(tmp_path / "a.ckpt")  # this file may hold only weights


def test_settings_are_read_as_plain_values(tmp_path):
    settings = authors_settings()
    backend = Backend(WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="b")
    with omegaconf() as wrap:
        content = {"config": wrap(settings), "tokenizer": tokenizer, "seen": defaultdict(int, a=1)}
        torch.save(content, tmp_path / "a.ckpt")
    with zipfile.ZipFile(tmp_path / "a.ckpt") as archive:
        written = {
            name for op, name, _ in genops(archive.read("a/data.pkl")) if op.name == "GLOBAL"
        }
    assert {"omegaconf.base ContainerMetadata", "omegaconf.listconfig ListConfig"} <= written
    assert {"collections defaultdict", "typing Any", "_codecs encode"} <= written
    found = read_pickle(tmp_path / "a.ckpt", objects=True)
    assert plain(found["config"], "a") == settings
    assert found["seen"] == {"a": 1} and isinstance(found["tokenizer"], Inert)


# Small files with large content


def doubled(thing: Any, times: int, kind: Callable = list) -> Any:
    """A value that contains `thing` 2 ** times times, by references."""
    for _ in range(times):
        thing = kind((thing, thing))
    return thing


def test_settings_that_grow_are_refused(tmp_path):
    shapes = {"list": doubled(1, 60), "tuple": doubled(1, 60, tuple)}
    shapes["table"] = doubled(1, 60, lambda pair: dict(zip("ab", pair, strict=True)))
    for name, laughs in shapes.items():
        with omegaconf() as wrap:
            config = wrap(authors_settings())
            vars(config)["_content"]["more"] = laughs
            torch.save({"state_dict": {}, "hyper_parameters": {"config": config}}, tmp_path / name)
        message = refused(lambda name=name: read(tmp_path / name))
        assert "its settings grow to more than 10,000 values" in message
    endless: list = []
    endless.append(endless)
    assert "grow to more" in refused(lambda: plain(endless, "a"))


LETTERS = "x" * 100_000
TABLE = {f"{i}": i for i in range(30_000)}
PAIRS = [(i, i) for i in TABLE]
COLLIDING = [i * (2**61 - 1) for i in range(1, 2000)]  # all have the same hash
ODD = range(1, 200_000, 2)  # numbers that an attacker might choose to collide
GROWS = "grows to more than"
HEAVY = {
    "keys": (lambda: Bomb(OrderedDict, pairs=iter([(doubled((), 60, tuple), 1)])), "other things"),
    "members": (lambda: Bomb(set, [doubled((), 60, tuple)]), GROWS),
    "pairs": (lambda: Bomb(OrderedDict, PAIRS), "in another way than pickles do"),
    "counts": (lambda: Bomb(Counter, PAIRS), "in another way than pickles do"),
    "states": (lambda: Bomb(OrderedDict, state=PAIRS), "a state that is no dict"),
    "tables": (lambda: [Bomb(Counter, TABLE) for _ in range(2000)], GROWS),
    "large states": (lambda: [Bomb(OrderedDict, state=TABLE) for _ in range(2000)], GROWS),
    "letters": (lambda: [Bomb(codecs.encode, LETTERS, "latin1") for _ in range(2000)], GROWS),
    "one hash": (lambda: dict.fromkeys(COLLIDING), "a number of more than 64 bits"),
    "members of one hash": (lambda: set(COLLIDING), "a number of more than 64 bits"),
    "numbers": (lambda: dict.fromkeys(ODD), GROWS),
    "fractions": (lambda: dict.fromkeys(i / 2 for i in ODD), GROWS),
    "members that are numbers": (lambda: Bomb(set, list(ODD)), GROWS),
    "pairs of numbers": (lambda: {(1, 2)}, "other things than strings"),
    "objects": (lambda: {torch.Size([1]): 1}, "no string and no number"),
}


@pytest.mark.parametrize("name", HEAVY)
def test_pickles_that_would_take_long_are_refused(tmp_path, name):
    content, message = HEAVY[name]
    torch.save({"state_dict": {}, "callbacks": content()}, tmp_path / "a.ckpt")
    assert (tmp_path / "a.ckpt").stat().st_size < 2**21
    assert message in refused(lambda: read(tmp_path / "a.ckpt"))


def test_tables_of_a_tokenizer_are_read(tmp_path):
    shuffled = torch.randperm(50_000, generator=torch.Generator().manual_seed(0)).tolist()
    tables = {
        "decoder": dict.fromkeys(range(60_000), "x"),  # by id
        "vocabulary": dict.fromkeys(shuffled, "x"),
        "merges": {(f"a{i}", "b"): i for i in range(5000)},
        "milestones": Counter({30: 1, 80: 1}),
        "seed": {None: 2**64 - 1, True: 2**100, 0.5: 1, 2**64 - 1: 1, "a": {"b", "c", 3}},
    }
    torch.save(tables, tmp_path / "a.ckpt")
    assert read_pickle(tmp_path / "a.ckpt") == tables


def test_pickles_that_would_take_memory_are_refused(tmp_path):
    file = tmp_path / "a.ckpt"
    for call in (bytearray, torch.FloatTensor, torch.Tensor):
        torch.save({"state_dict": Bomb(call, 2**31)}, file)
        assert f"names {call.__module__}.{call.__name__}, which" in refused(lambda: read(file))
    torch.save({"state_dict": {}, "callbacks": "x" * 2**24}, file)
    assert "more than 16,777,216 bytes of instructions" in refused(lambda: read(file))
    torch.save({"state_dict": {}, "callbacks": Bomb(codecs.encode, "x", "punycode")}, file)
    assert "bytes in another encoding" in refused(lambda: read(file))
    # tensors that share data: the file is small, and they are large
    wide = torch.zeros(1, dtype=torch.float16).expand(2**36, 64)
    same = torch.zeros(64, 64, dtype=torch.float16)
    for tensors in (
        {"vocab_embed.embedding": wide},
        {f"blocks.{i}.norm1.weight": same for i in range(99)},
    ):
        tensors = {f"backbone.{name}": tensor for name, tensor in tensors.items()}
        with omegaconf() as wrap:
            given = {"config": wrap(authors_settings())}
            torch.save({"state_dict": tensors, "hyper_parameters": given}, file)
        assert "claim more data than it holds" in refused(lambda: read(file))
        shutil.copy(FIXTURE / "config.json", tmp_path)
        torch.save(tensors, tmp_path / "pytorch_model.bin")
        assert "claim more data than it holds" in refused(lambda: unmask.load(tmp_path))


def repacked(
    file: Path, how: Callable[[bytes], bytes], compression: int = zipfile.ZIP_STORED
) -> None:
    """The same archive with other pickle instructions."""
    with zipfile.ZipFile(file) as archive:
        content = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in content.items():
            archive.writestr(name, how(data) if name.endswith("data.pkl") else data)


def test_instructions_that_no_checkpoint_has_are_refused(tmp_path, monkeypatch):
    def changed(how: Callable[[bytes], bytes], compression: int = zipfile.ZIP_STORED) -> str:
        lightning(tmp_path / "a.ckpt", authors_settings())
        repacked(tmp_path / "a.ckpt", how, compression)
        return refused(lambda: read(tmp_path / "a.ckpt"))

    start = pickle.PROTO + b"\x02"
    # an error that would show the called function, a list of lists of lists
    twice = b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(60))
    assert "calls an object without a name" in changed(lambda _: start + b"]q\0" + twice + b")R.")
    assert "nested too deeply" in changed(lambda _: start + b")" + pickle.TUPLE1 * 100_000 + b".")
    assert "torch.save does not write" in changed(lambda _: pickle.dumps(os.system, 4))
    for torn in (b".", b"", pickle.TUPLE3 + b".", b"h\x05.", b"e.", b"X\xff"):
        assert "is refused" in changed(lambda _, torn=torn: start + torn)
    assert "it is compressed" in changed(lambda data: data, zipfile.ZIP_DEFLATED)
    lightning(tmp_path / "a.ckpt", authors_settings())
    with zipfile.ZipFile(tmp_path / "a.ckpt", "a") as archive:
        archive.writestr("b/data.pkl", b".")
    assert "holds 2 files data.pkl" in refused(lambda: read(tmp_path / "a.ckpt"))
    lightning(tmp_path / "a.ckpt", authors_settings())
    monkeypatch.setattr("unmask.formats.pickle_limits.INSTRUCTIONS", 1000)
    assert "more than 1,000 instructions" in refused(lambda: read(tmp_path / "a.ckpt"))

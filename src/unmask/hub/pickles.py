"""Checkpoints that are pickles, read without running what is in them.

torch's own reader of weights knows tensors and plain values and refuses every other name. What a
Lightning checkpoint holds beside them (its settings, its tokenizer) are objects of a few libraries:
their names stand here for things without behaviour, whether the library is installed or not. A
name of any other module is refused, and nothing is looked up, let alone called.
"""

import zipfile
from pathlib import Path
from typing import Any

import torch

from unmask.errors import UnmaskError

# of which objects may lie in a checkpoint: as things that remember what was put into them
_LIBRARIES = {
    *("omegaconf", "lightning", "lightning_fabric", "pytorch_lightning"),
    *("transformers", "tokenizers", "torchmetrics"),
}
# names of the standard library that those objects refer to, as types of their values
_NAMES = {
    *("typing.Any", "typing.Union", "typing.Dict", "typing.List", "typing.Tuple"),
    *("builtins.dict", "builtins.list", "builtins.int", "builtins.float", "builtins.str"),
    *("builtins.bool", "builtins.tuple", "collections.defaultdict", "pathlib.PosixPath"),
    *("pathlib._local.PosixPath", "enum.Enum"),
}


class Inert:
    """Stands for an object of a library: it holds what it was given, and does nothing."""

    def __new__(cls, *given: Any) -> "Inert":
        self = super().__new__(cls)
        vars(self)["given"] = given
        return self

    def __init__(self, *given: Any) -> None:
        """Takes whatever the object was made from."""

    def __setstate__(self, state: Any) -> None:
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                vars(self).update({str(name): value for name, value in part.items()})


def read_pickle(file: Path, objects: bool = False) -> Any:
    """What torch.save wrote: tensors and plain values; `objects` of known libraries come as inert ones."""
    if not zipfile.is_zipfile(file):
        raise UnmaskError(f"{file} is no checkpoint that torch.save has written since version 1.6")
    stand_ins: list[Any] = [_stand_in(name, file, objects) for name in _foreign(file)]
    with torch.serialization.safe_globals(stand_ins):
        try:
            return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except (
            Exception
        ) as error:  # torch's own kinds, and whatever a broken file makes it stumble on
            raise UnmaskError(f"{file} is refused: {_reason(error)}") from None


def plain(value: Any) -> Any:
    """Settings as plain values: what omegaconf's containers and nodes hold."""
    if isinstance(value, Inert):
        held = vars(value)
        return plain(held["_content"] if "_content" in held else held.get("_val"))
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


def _foreign(file: Path) -> list[str]:
    """The names in a checkpoint that torch does not take for harmless; nothing is loaded."""
    try:
        return torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception as error:
        raise UnmaskError(f"{file} is refused: {_reason(error)}") from None


def _stand_in(name: str, file: Path, objects: bool) -> tuple[Any, str]:
    """A class without behaviour under a name of a known library."""
    known = name.partition(".")[0] in _LIBRARIES or name in _NAMES
    if not (objects and known):
        raise UnmaskError(f"{file} is refused: it names {name}, which no weights need")
    return type(name.rpartition(".")[2], (Inert,), {}), name


def _reason(error: Exception) -> str:
    """The end of torch's long message, in one line: what was wrong with the file."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0].strip()[:200]

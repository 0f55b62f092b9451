"""Reads pickled checkpoints without running the code in them.

torch's `weights_only` reader accepts tensors and plain values and refuses every other name. A
Lightning checkpoint also holds settings and a tokenizer, objects of a few libraries. Here their
names map to classes without behaviour, even if the library is installed. Any other name is refused
and never looked up. Work and memory are bounded before torch reads the file.
"""

import re
import zipfile
from collections.abc import Mapping
from os import SEEK_END
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, TypeVar

import torch
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.formats.pickle_limits import LARGEST, TOO_LONG, names_within_bounds

Tensors = TypeVar("Tensors", bound=Mapping[Any, Any])

VALUES = (
    10_000  # most values of settings, with aliases expanded; those of the authors have some hundred
)
_DEPTH = 100  # most levels of nested settings
# the names that weights need; torch accepts more, which can claim tensors of any size
_HARMLESS = re.compile(
    r"torch\.\w+Storage|torch\.b?float\d*|torch\.u?int\d+|torch\.(half|double|long|bool|Size|device)"
    r"|torch\._utils\._rebuild_(tensor_v2|parameter)|collections\.(OrderedDict|Counter)"
    r"|_codecs\.encode|builtins\.(set|complex)"
)
# libraries whose objects a checkpoint may hold; they are read as inert objects
_LIBRARIES = {
    *("omegaconf", "lightning", "lightning_fabric", "pytorch_lightning"),
    *("transformers", "tokenizers", "torchmetrics"),
}
# names that those objects refer to as types of values, and the MDLM authors' tokenizer
_NAMES = {
    *("typing.Any", "typing.Union", "typing.Dict", "typing.List", "typing.Tuple"),
    *("builtins.dict", "builtins.list", "builtins.int", "builtins.float", "builtins.str"),
    *("builtins.bool", "builtins.tuple", "builtins.bytes", "pathlib.PosixPath"),
    *("pathlib._local.PosixPath", "enum.Enum", "dataloader.Text8Tokenizer"),
}
_TABLE = "collections.defaultdict"
# records at the end of a zip archive; the first two only in a large one
_LARGE_END, _LOCATOR, _END = Struct("<4sQ2H2I4Q"), Struct("<4sIQI"), Struct("<4s4H2IH")


class Inert:
    """An object without behaviour in place of a library's object. It keeps arguments and state."""

    def __new__(cls, *given: Any) -> "Inert":
        self = super().__new__(cls)
        vars(self)["given"] = given
        return self

    def __init__(self, *given: Any) -> None:
        """Accepts any arguments."""

    def __setstate__(self, state: Any) -> None:
        vars(self)["state"] = state

    def attribute(self, name: str) -> Any:
        """An attribute of the saved state; None if it is missing."""
        state = vars(self).get("state")
        return state.get(name) if isinstance(state, dict) else None


def _table(*_: Any) -> dict[Any, Any]:
    """A plain dict in place of a defaultdict, which would call its factory."""
    return {}


def read_pickle(file: Path, objects: bool = False) -> Any:
    """The tensors and plain values of a checkpoint that torch.save wrote.

    With `objects`, objects of known libraries are read as inert objects.
    Otherwise they are refused.
    """
    if not zipfile.is_zipfile(file):
        raise UnmaskError(f"{file} is no checkpoint of torch.save, version 1.6 or newer")
    try:
        names = names_within_bounds(_instructions(file))
    except Exception as error:  # a broken archive or broken instructions
        raise UnmaskError(f"{file} is refused: {_reason(error)}") from None
    foreign = _foreign(file)
    stand_ins: list[Any] = [_stand_in(name, file, objects) for name in foreign]
    for name in sorted(names.difference(foreign)):
        if not _HARMLESS.fullmatch(name):
            raise UnmaskError(f"{file} is refused: it names {name}, which weights do not need")
    with torch.serialization.safe_globals(stand_ins):
        try:
            return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # torch's own, and any that a broken file causes
            raise UnmaskError(f"{file} is refused: {_reason(error)}") from None


def plain(value: Any, where: str) -> Any:
    """Settings as plain values, without omegaconf's containers; an error if there are too many."""
    left = VALUES

    def walk(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if left < 0 or depth > _DEPTH:
            raise UnmaskError(
                f"{where} is refused: its settings grow to more than {VALUES:,} values"
            )
        if isinstance(value, Inert):
            content = value.attribute("_content")
            return walk(value.attribute("_val") if content is None else content, depth + 1)
        if isinstance(value, dict):
            return {
                str(name): walk(part, depth + 1)
                for name, part in value.items()
                if isinstance(name, str | int | float)
            }
        if isinstance(value, list | tuple):
            return [walk(part, depth + 1) for part in value]
        return value

    return walk(value, 0)


def checked_memory(tensors: Tensors, where: str) -> Tensors:
    """The tensors; an error if they would take more than twice the memory of their data.

    Views of shared data can claim any size. Twice the data allows for tied weights.
    """
    found = [tensor for tensor in tensors.values() if isinstance(tensor, Tensor)]
    storages = [tensor.untyped_storage() for tensor in found]
    spans = sorted((storage.data_ptr(), storage.nbytes()) for storage in storages)
    stored = end = 0
    for start, size in spans:  # storages may overlap in the file
        stored += max(0, start + size - max(start, end))
        end = max(end, start + size)
    if sum(tensor.nbytes for tensor in found) > 2 * stored:
        raise UnmaskError(f"{where} is refused: its tensors claim more data than it holds")
    return tensors


def _instructions(file: Path) -> bytes:
    """The pickle inside a checkpoint's archive, located as torch locates it."""
    with file.open("rb") as opened:
        _check_end(opened)
        with zipfile.ZipFile(opened) as archive:
            entries = archive.infolist()
        # torch compares names of records without regard to case
        found = [entry for entry in entries if entry.filename.lower().endswith("data.pkl")]
        if len(found) != 1:
            raise UnmaskError(f"it holds {len(found)} files data.pkl instead of one")
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise UnmaskError("it is compressed, which torch.save does not do")
        if found[0].file_size > LARGEST:
            raise UnmaskError(TOO_LONG)
        opened.seek(0)
        return torch._C.PyTorchFileReader(opened).get_record("data.pkl")


def _check_end(opened: BinaryIO) -> None:
    """Raises an error unless the archive has one directory, directly before its end.

    Otherwise torch and zipfile could read different directories.
    """
    start = opened.seek(-_END.size, SEEK_END)
    mark, *_, size, offset, comment = _END.unpack(opened.read())
    opened.seek(max(0, start - _LOCATOR.size - _LARGE_END.size))
    before = opened.read(start - opened.tell())
    if before[-_LOCATOR.size :].startswith(b"PK\6\7"):
        start -= len(before)
        large, *_, size, offset = _LARGE_END.unpack_from(before)
        *_, there, _ = _LOCATOR.unpack_from(before, _LARGE_END.size)
        comment = comment or large != b"PK\6\6" or there != start
    if mark != b"PK\5\6" or comment or offset + size != start:
        raise UnmaskError("its archive has another end than torch.save writes")


def _foreign(file: Path) -> list[str]:
    """The names in a checkpoint that torch refuses by default. Nothing is loaded."""
    try:
        return torch.serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception as error:
        raise UnmaskError(f"{file} is refused: {_reason(error)}") from None


def _stand_in(name: str, file: Path, objects: bool) -> tuple[Any, str]:
    """An inert class and the name of the class that it replaces; an error for an unknown name."""
    known = name.partition(".")[0] in _LIBRARIES or name in _NAMES or name == _TABLE
    if not (objects and known):
        raise UnmaskError(f"{file} is refused: it names {name}, which weights do not need")
    if name == _TABLE:
        return _table, name
    return type(name.rpartition(".")[2], (Inert,), {}), name


def _reason(error: Exception) -> str:
    """The reason at the end of torch's long message, in one line."""
    text = str(error).partition("WeightsUnpickler error:")[2] or str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0].strip()[:200]

"""Reads and writes weights as safetensors, and checks that they fit a network."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.files.storage import Damaged, verify


def write_weights(folder: Path, tensors: Mapping[str, Tensor], name: str = "model") -> None:
    """Writes tensors to `name`.safetensors. Tensors that share memory are written separately."""
    seen: set[int] = set()
    separate = {}
    for key, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        separate[key] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    path = folder / f"{name}.safetensors"
    with system_errors(path):
        safetensors.torch.save_file(separate, path)
        path.chmod(folder.stat().st_mode & 0o666)  # the library lets only the owner read the file


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """Raises system errors of the safetensors library, such as a full disk, as OSError.

    Args:
        path: The file or folder that is written.
    """
    try:
        yield
    except SafetensorError as error:
        if found := re.search(r"os error (\d+)", str(error)):
            code = int(found[1])
            raise OSError(code, os.strerror(code), str(path)) from None
        raise


def read_weights(folder: Path, name: str = "model") -> dict[str, Tensor]:
    """The tensors of `name`.safetensors after a check against the folder's manifest."""
    verify(folder, f"{name}.safetensors")
    return read_tensors(folder, name)


def read_tensors(folder: Path, name: str = "model") -> dict[str, Tensor]:
    """The tensors of `name`.safetensors in a folder that is already verified."""
    try:
        return safetensors.torch.load_file(folder / f"{name}.safetensors")
    except Exception as error:  # from the library, or from torch for a wrong type or size
        raise Damaged(f"{folder} is damaged: {name}.safetensors cannot be read: {error}") from None


def check_fit(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: Path | str
) -> None:
    """Raises an error unless names, shapes and dtypes of the tensors are as expected."""
    wrong = [f"{name} is missing" for name in expected if name not in found]
    wrong += [f"{name} is not expected" for name in found if name not in expected]
    for name in expected.keys() & found.keys():
        ours, theirs = expected[name], found[name]
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            wrong.append(f"{name} is {_kind(theirs)} instead of {_kind(ours)}")
    if wrong:
        more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UnmaskError(f"{where} does not fit: {'; '.join(sorted(wrong)[:3])}{more}")


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: Path | str) -> None:
    """Loads tensors into a model; an error if they do not fit or are not finite."""
    check_fit(tensors, model.state_dict(), where)
    check_finite(tensors, where)
    model.load_state_dict(tensors)


def check_finite(tensors: Mapping[str, Tensor], where: Path | str) -> None:
    """Raises an error if a tensor holds NaN or infinity."""
    for name, tensor in tensors.items():
        # minimum and maximum of a tensor with a NaN are NaN; ten times faster than a full check
        if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
            raise UnmaskError(f"{where} holds NaN or infinity in {name}: use another checkpoint")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def hash_tensors(state: Any, network: torch.nn.Module) -> None:
    """Updates the hash `state` with name, dtype, shape and bytes of every tensor of a network."""
    for name, tensor in network.state_dict().items():
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        state.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())

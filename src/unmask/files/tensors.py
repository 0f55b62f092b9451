"""Named tensors as safetensors, checked against the network that takes them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.files.storage import Damaged, verify


def write_weights(folder: Path, tensors: Mapping[str, Tensor], name: str = "model") -> None:
    """Named tensors as `name`.safetensors; tensors that share memory are written each in full."""
    seen: set[int] = set()
    whole = {}
    for key, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        memory = tensor.untyped_storage().data_ptr()
        whole[key] = tensor.clone() if memory in seen else tensor
        seen.add(memory)
    path = folder / f"{name}.safetensors"
    try:
        safetensors.torch.save_file(whole, path)
        path.chmod(folder.stat().st_mode & 0o666)  # the library's is for its owner alone
    except SafetensorError as error:  # hides a full disk behind an error of its own
        if number := re.search(r"os error (\d+)", str(error)):
            code = int(number[1])
            raise OSError(code, os.strerror(code), str(path)) from None
        raise


def read_weights(folder: Path, name: str = "model") -> dict[str, Tensor]:
    """The tensors of `name`.safetensors, held against the folder's manifest."""
    verify(folder, f"{name}.safetensors")
    return read_tensors(folder, name)


def read_tensors(folder: Path, name: str = "model") -> dict[str, Tensor]:
    """The tensors of `name`.safetensors in a folder that was verified."""
    try:
        return safetensors.torch.load_file(folder / f"{name}.safetensors")
    except Exception as error:  # the library's own, or what torch makes of a claimed type or size
        raise Damaged(f"{folder} is damaged: {name}.safetensors cannot be read: {error}") from None


def check_fit(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], where: Path | str
) -> None:
    """Same names, shapes and dtypes, or an error that says what does not fit."""
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
    """Put tensors into a model that they fit exactly."""
    check_fit(tensors, model.state_dict(), where)
    check_finite(tensors, where)
    model.load_state_dict(tensors)


def check_finite(tensors: Mapping[str, Tensor], where: Path | str) -> None:
    """Weights that a training has blown up are of no use."""
    for name, tensor in tensors.items():
        # the extremes of what holds a NaN are NaN; found in a tenth of the time that all would take
        if tensor.numel() and not torch.stack(tensor.aminmax()).isfinite().all():
            raise UnmaskError(f"{where} holds NaN or infinity, in {name}: it is of no use")


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def hash_tensors(state: Any, network: torch.nn.Module) -> None:
    """Adds every tensor of a network to a hash."""
    for name, tensor in network.state_dict().items():
        state.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        state.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())

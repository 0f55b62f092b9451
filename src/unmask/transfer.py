"""Tensors on their way to a device."""

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device, dtype: torch.dtype | None = None) -> Tensor:
    """To the device; to a GPU without making the CPU wait."""
    if tensor.device == device:
        return tensor if dtype is None else tensor.to(dtype)
    tensor = tensor if dtype is None else tensor.to(dtype)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)

"""Muon for the matrices of a network's blocks, AdamW for all other parameters.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by the nearest
matrix whose singular values are all alike. Five steps of a quintic Newton-Schulz iteration find it roughly.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.runtime.device import PRECISIONS, native_precisions
from unmask.training.ema import local
from unmask.training.optimizer import NamedAdamW
from unmask.training.training_config import TrainingConfig

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's: the steepest slope at 0 that stays near 1
STEPS = 5
TOGETHER = 1 << 27  # numbers in one batch of matrices: more would only take memory

Matrices = Float[Tensor, "matrices rows columns"]


def orthogonalize(x: Matrices) -> Matrices:
    """Brings the singular values of each matrix near 1, in the precision of `x`.

    Args:
        x: matrices of one shape; few rows and many columns are the cheapest form.

    Returns:
        U S V' for each x = U T V', with S between 0.68 and 1.21 where T is above 0.003 of x's norm.

    Example:
        >>> orthogonalize(torch.tensor([[[3.0, 0.0], [0.0, -2.0]]])).round().tolist()
        [[[1.0, 0.0], [0.0, -1.0]]]
    """
    a, b, c = COEFFICIENTS
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        gram = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, gram, x, beta=a)
    return x


class _Stack:
    """Parameters of one shape, each made of `parts` matrices, with their momentum in one tensor.

    Of parameters in shards, this process holds the momentum of its own shards.
    """

    def __init__(self, named: Mapping[str, Tensor], parts: int) -> None:
        self.named = dict(named)
        self.first: Any = next(iter(named.values()))
        self.sharded = hasattr(self.first, "to_local")
        self.own = [local(parameter) for parameter in named.values()]
        self.momentum = torch.stack([torch.zeros_like(own) for own in self.own])
        rows, columns = self.first.shape
        self.whole = (len(named), rows, columns)
        self.shape = (len(named) * parts, rows // parts, columns)
        self.wide = tuple(sorted(self.shape[1:]))  # stacks of one such shape share a batch
        # A step of length 1 changes the output of a matrix by as much as its input is long, whatever
        # the width (arXiv 2310.17813): one learning rate serves all shapes and all widths.
        self.scale = math.sqrt(max(1.0, self.shape[1] / self.shape[2]))

    def direction(self, momentum: float, keep: Tensor, dtype: torch.dtype) -> Matrices:
        """Nesterov's momentum as whole, wide matrices; a step that is not kept leaves it alone."""
        pairs = zip(self.named.values(), self.own, strict=True)
        gradient = torch.stack(
            [torch.zeros_like(own) if p.grad is None else local(p.grad) for p, own in pairs]
        )
        gradient = torch.where(keep > 0, gradient, 0.0)  # 0 times infinity is no number
        self.momentum.lerp_(gradient, (1 - momentum) * keep)
        found = self._gathered(gradient.lerp_(self.momentum, momentum).to(dtype)).view(self.shape)
        return found if self.shape[1] <= self.shape[2] else found.mT

    def move(self, direction: Matrices, lr: float | Tensor, decay: float, keep: Tensor) -> None:
        """Shrinks the parameters and takes a step, or none where `keep` is 0."""
        if self.shape[1] > self.shape[2]:
            direction = direction.mT
        step = self._shared(direction.reshape(self.whole)).float() * (keep * (-lr * self.scale))
        if decay:
            torch._foreach_mul_(self.own, 1 - keep * (lr * decay))
        torch._foreach_add_(self.own, list(step.unbind()))

    def tensors(self) -> dict[str, Tensor]:
        """The momentum of each parameter, in shards if the parameter is."""
        if not self.sharded:
            return dict(zip(self.named, self.momentum.unbind(), strict=True))
        from torch.distributed.tensor import DTensor

        mesh, at = self.first.device_mesh, self.first.placements
        size = {"shape": self.first.shape, "stride": self.first.stride()}
        return {
            name: DTensor.from_local(part, mesh, at, run_check=False, **size)
            for name, part in zip(self.named, self.momentum.unbind(), strict=True)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes up what `tensors` gave."""
        for name, own in zip(self.named, self.momentum.unbind(), strict=True):
            own.copy_(local(tensors[name]))

    def _gathered(self, stacked: Tensor) -> Tensor:
        """Whole matrices of the shards of all processes."""
        if not self.sharded:
            return stacked
        from torch.distributed.tensor import DTensor

        size = torch.Size(self.whole)
        stride = (size[1] * size[2], size[2], 1)
        shards = DTensor.from_local(
            stacked, self.first.device_mesh, self._stacked(), run_check=False, shape=size, stride=stride
        )  # fmt: skip
        return shards.full_tensor()

    def _shared(self, whole: Tensor) -> Tensor:
        """This process's shards of whole matrices, which all processes have."""
        if not self.sharded:
            return whole
        from torch.distributed.tensor import DTensor, Replicate

        mesh = self.first.device_mesh
        everywhere = DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return everywhere.redistribute(placements=self._stacked()).to_local()

    def _stacked(self) -> list[Any]:
        """The placements of a parameter, with one more dimension before its own."""
        from torch.distributed.tensor import Shard

        at = self.first.placements
        return [Shard(one.dim + 1) if isinstance(one, Shard) else one for one in at]


class NamedMuon(NamedAdamW):
    """Muon over the matrices that a network's blocks name, AdamW over all other parameters.

    A method's own parameter groups stay with AdamW. Both learning rates follow the schedule in proportion.
    """

    def __init__(self, model: nn.Module, config: TrainingConfig) -> None:
        parts = block_matrices(model)
        super().__init__(model, config, without=parts)
        named = dict(model.named_parameters())
        self.ratio = config.muon_lr / config.lr
        self.momentum, self.decay = config.muon_momentum, config.weight_decay
        device = next(iter(named.values())).device
        self.dtype = PRECISIONS[native_precisions(device)[0]]
        self.batches = _batches({name: named[name] for name in parts}, parts)

    @torch.no_grad()
    def step(self, lr: float | Tensor, skip: Tensor) -> None:
        """One update, or none where `skip` is 1, which the device itself reads; the gradients are spent."""
        keep = 1 - skip
        for batch in self.batches:
            wide = [stack.direction(self.momentum, keep, self.dtype) for stack in batch]
            found = orthogonalize(wide[0] if len(wide) == 1 else torch.cat(wide))
            for stack, part in zip(batch, found.split([len(one) for one in wide]), strict=True):
                stack.move(part, lr * self.ratio, self.decay, keep)
        super().step(lr, skip)

    def forget(self) -> None:
        super().forget()
        for stack in self._stacks():
            for parameter in stack.named.values():
                parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """AdamW's state, and the momentum of Muon's matrices as `parameter.momentum`."""
        own = {f"{name}.momentum": x for s in self._stacks() for name, x in s.tensors().items()}
        return super().tensors() | own

    def load(self, tensors: dict[str, Tensor]) -> None:
        super().load(tensors)
        for stack in self._stacks():
            stack.load({name: tensors[f"{name}.momentum"] for name in stack.named})

    def _stacks(self) -> list[_Stack]:
        return [stack for batch in self.batches for stack in batch]


OPTIMIZERS: dict[str, type[NamedAdamW]] = {"adamw": NamedAdamW, "muon": NamedMuon}


def block_matrices(model: nn.Module) -> dict[str, int]:
    """The trained matrices that Muon takes, each with the number of matrices that are stacked in it.

    A block names them in `matrices`: `{"qkv": 3, "out": 1}` are the weights of its layers qkv and out.
    """
    groups = [own.prefix for own in getattr(model, "parameter_groups", ())]
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    found = {
        f"{place}.{layer}.weight": parts
        for place, module in model.named_modules()
        for layer, parts in getattr(module, "matrices", {}).items()
    }
    found = {
        name: parts
        for name, parts in found.items()
        if name in trained and not any(name.startswith(prefix) for prefix in groups)
    }
    if not found:
        raise UnmaskError(
            "training.optimizer muon needs a network whose blocks name their matrices: set adamw"
        )
    return found


def _batches(named: Mapping[str, Tensor], parts: Mapping[str, int]) -> list[list[_Stack]]:
    """Stacks of equal parameters, and batches of stacks whose matrices have one shape."""
    alike: dict[tuple[int, ...], list[str]] = {}
    for name, parameter in named.items():
        alike.setdefault((*parameter.shape, parts[name]), []).append(name)
    batches: dict[tuple[object, int], list[_Stack]] = {}
    for names in alike.values():
        size = max(1, TOGETHER // named[names[0]].numel())
        for start in range(0, len(names), size):
            some = names[start : start + size]
            stack = _Stack({name: named[name] for name in some}, parts[some[0]])
            batches.setdefault((stack.wide, start), []).append(stack)
    return list(batches.values())

"""Muon for the matrices of a network's blocks, AdamW for all other parameters.

Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by
the nearest semi-orthogonal matrix, whose singular values are all 1. Five steps of a quintic
Newton-Schulz iteration approximate it.
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
from unmask.training.training_config import OPTIMIZER_NAMES, TrainingConfig

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # Jordan's: a steep slope at 0 with results near 1
STEPS = 5
STACK_SIZE = 1 << 27  # numbers in a stack at most: larger ones take memory and are not faster

Matrices = Float[Tensor, "matrices rows columns"]


def orthogonalize(x: Matrices) -> Matrices:
    """Brings the singular values of each matrix near 1, in the precision of `x`.

    Args:
        x: matrices of one shape; fewer rows than columns are cheaper.

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

    If the parameters are sharded, the momentum is that of this process's shards.
    """

    def __init__(self, named: Mapping[str, Tensor], parts: int) -> None:
        self.named = dict(named)
        self.first: Any = next(iter(named.values()))
        self.sharded = hasattr(self.first, "to_local")
        self.shards = [local(parameter) for parameter in named.values()]
        self.momentum = torch.stack([torch.zeros_like(shard) for shard in self.shards])
        rows, columns = self.first.shape
        self.full_shape = (len(named), rows, columns)
        self.shape = (len(named) * parts, rows // parts, columns)
        self.wide = tuple(sorted(self.shape[1:]))  # stacks of one such shape share a batch
        # With this scale a step changes the output of a matrix by an amount that does not depend on
        # the width (arXiv 2310.17813): one learning rate fits all shapes.
        self.scale = math.sqrt(max(1.0, self.shape[1] / self.shape[2]))

    def direction(self, momentum: float, keep: Tensor, dtype: torch.dtype) -> Matrices:
        """Nesterov momentum as unsharded, wide matrices;
        the momentum is unchanged if `keep` is 0.
        """
        pairs = zip(self.named.values(), self.shards, strict=True)
        gradient = torch.stack(
            [torch.zeros_like(shard) if p.grad is None else local(p.grad) for p, shard in pairs]
        )
        gradient = torch.where(keep > 0, gradient, 0.0)  # 0 times infinity is NaN
        self.momentum.lerp_(gradient, (1 - momentum) * keep)
        found = self._unsharded(gradient.lerp_(self.momentum, momentum).to(dtype)).view(self.shape)
        return found if self.shape[1] <= self.shape[2] else found.mT

    def move(self, direction: Matrices, lr: float | Tensor, decay: float, keep: Tensor) -> None:
        """Applies weight decay and a step to the parameters, or nothing if `keep` is 0."""
        if self.shape[1] > self.shape[2]:
            direction = direction.mT
        step = self._to_shards(direction.reshape(self.full_shape)).float() * (
            keep * (-lr * self.scale)
        )
        if decay:
            torch._foreach_mul_(self.shards, 1 - keep * (lr * decay))
        torch._foreach_add_(self.shards, list(step.unbind()))

    def tensors(self) -> dict[str, Tensor]:
        """The momentum of each parameter, sharded like the parameter."""
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
        """Restores a state that `tensors` returned."""
        for name, shard in zip(self.named, self.momentum.unbind(), strict=True):
            shard.copy_(local(tensors[name]))

    def _unsharded(self, stacked: Tensor) -> Tensor:
        """Unsharded matrices, gathered from all processes."""
        if not self.sharded:
            return stacked
        from torch.distributed.tensor import DTensor

        size = torch.Size(self.full_shape)
        stride = (size[1] * size[2], size[2], 1)
        shards = DTensor.from_local(
            stacked,
            self.first.device_mesh,
            self._stack_placements(),
            run_check=False,
            shape=size,
            stride=stride,
        )
        return shards.full_tensor()

    def _to_shards(self, full: Tensor) -> Tensor:
        """This process's shards of unsharded matrices, which all processes hold."""
        if not self.sharded:
            return full
        from torch.distributed.tensor import DTensor, Replicate

        mesh = self.first.device_mesh
        replicated = DTensor.from_local(full, mesh, [Replicate()] * mesh.ndim, run_check=False)
        return replicated.redistribute(placements=self._stack_placements()).to_local()

    def _stack_placements(self) -> list[Any]:
        """The placements of a parameter, with one more dimension at the front."""
        from torch.distributed.tensor import Shard

        at = self.first.placements
        return [Shard(one.dim + 1) if isinstance(one, Shard) else one for one in at]


class NamedMuon(NamedAdamW):
    """Muon over the matrices that a network's blocks name, AdamW over all other parameters.

    The parameter groups of a method stay with AdamW.
    Warm-up and decay scale both learning rates alike.
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
        """Makes one update, or none if `skip` is 1, and clears the gradients."""
        keep = 1 - skip
        for batch in self.batches:
            wide = [stack.direction(self.momentum, keep, self.dtype) for stack in batch]
            found = orthogonalize(wide[0] if len(wide) == 1 else torch.cat(wide))
            for stack, part in zip(batch, found.split([len(one) for one in wide]), strict=True):
                stack.move(part, lr * self.ratio, self.decay, keep)
        super().step(lr, skip)

    def zero_grad(self) -> None:
        super().zero_grad()
        for stack in self._stacks():
            for parameter in stack.named.values():
                parameter.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """AdamW's state, and the momentum of Muon's matrices as `parameter.momentum`."""
        momenta = {f"{name}.momentum": x for s in self._stacks() for name, x in s.tensors().items()}
        return super().tensors() | momenta

    def load(self, tensors: dict[str, Tensor]) -> None:
        super().load(tensors)
        for stack in self._stacks():
            stack.load({name: tensors[f"{name}.momentum"] for name in stack.named})

    def _stacks(self) -> list[_Stack]:
        return [stack for batch in self.batches for stack in batch]


OPTIMIZERS: dict[str, type[NamedAdamW]] = dict(
    zip(OPTIMIZER_NAMES, (NamedAdamW, NamedMuon), strict=True)
)


def block_matrices(model: nn.Module) -> dict[str, int]:
    """The names of the weights that Muon updates, with the number of matrices stacked in each.

    A block lists them in `matrices`: `{"qkv": 3, "out":
    1}` are the weights of its layers qkv and out.
    """
    groups = [group.prefix for group in getattr(model, "parameter_groups", ())]
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    found = {
        f"{path}.{layer}.weight": parts
        for path, module in model.named_modules()
        for layer, parts in getattr(module, "matrices", {}).items()
    }
    found = {
        name: parts
        for name, parts in found.items()
        if name in trained and not any(name.startswith(prefix) for prefix in groups)
    }
    if not found:
        raise UnmaskError(
            "training.optimizer muon needs a network whose blocks list their matrices: "
            "set training.optimizer adamw"
        )
    return found


def _batches(named: Mapping[str, Tensor], parts: Mapping[str, int]) -> list[list[_Stack]]:
    """Stacks of parameters of one shape, in batches whose wide matrices have one shape."""
    by_shape: dict[tuple[int, ...], list[str]] = {}
    for name, parameter in named.items():
        by_shape.setdefault((*parameter.shape, parts[name]), []).append(name)
    batches: dict[tuple[object, int], list[_Stack]] = {}
    for names in by_shape.values():
        size = max(1, STACK_SIZE // named[names[0]].numel())
        for start in range(0, len(names), size):
            some = names[start : start + size]
            stack = _Stack({name: named[name] for name in some}, parts[some[0]])
            batches.setdefault((stack.wide, start), []).append(stack)
    return list(batches.values())

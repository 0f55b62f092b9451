"""AdamW with named state, the learning rate of each step, and gradient clipping."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unmask.errors import UnmaskError
from unmask.training.training_config import TrainingConfig

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def learning_rate(step: int, config: TrainingConfig, spent: float = 0.0) -> float:
    """The learning rate of a step: linear warm-up to `lr`, then constant, or a decay to `min_lr`.

    With `training.seconds`, the decay follows the share of the seconds that are `spent`, if it is
    larger than the share of the steps.

    `cosine` and `linear` decay from the end of the warm-up. `wsd` (warm-up, stable, decay: arXiv
    2404.06395) stays at `lr` and decays linearly over the last `decay_share` of all steps.
    """
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.decay == "constant":
        return config.lr
    if config.seconds:
        step = max(step, round(config.steps * min(1.0, spent / config.seconds)))
    first = config.warmup
    if config.decay == "wsd":
        first = max(first, round((1 - config.decay_share) * config.steps))
    done = min(1.0, max(0, step - first) / max(1, config.steps - first))
    left = 0.5 * (1 + math.cos(math.pi * done)) if config.decay == "cosine" else 1 - done
    return config.min_lr + (config.lr - config.min_lr) * left


class NamedAdamW:
    """AdamW over the trainable parameters of a model, except those named in `without`."""

    def __init__(
        self, model: nn.Module, config: TrainingConfig, without: Collection[str] = ()
    ) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        named = {name: p for name, p in trained.items() if name not in without}
        kinds = {p.device.type for p in named.values()}
        self.fused = kinds <= {"cuda", "cpu"}  # one kernel for all moments: 3 times faster on a CPU
        self._undecayed = {
            f"{path}.{name}"
            for path, module in model.named_modules()
            for name in getattr(module, "undecayed", ())
        }
        self.named: dict[str, Tensor] = {}  # in the order of torch's parameter indices
        groups: list[dict[str, Any]] = []
        for own in getattr(model, "parameter_groups", ()):
            chosen = {name: p for name, p in named.items() if name.startswith(own.prefix)}
            if not chosen:
                raise UnmaskError(f"the parameter group {own.prefix!r} names no parameter")
            groups += self._groups(chosen, own.lr, own.weight_decay, config)
        rest = {name: p for name, p in named.items() if name not in self.named}
        groups += self._groups(rest, 1.0, None, config)
        self.adamw = torch.optim.AdamW(
            groups,
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            fused=self.fused or None,
            capturable=kinds == {"cuda"},  # by a CUDA graph
            foreach=None if self.fused else True,
        )

    def _groups(
        self, named: Mapping[str, Tensor], lr: float, decay: float | None, config: TrainingConfig
    ) -> list[dict[str, Any]]:
        """Groups of AdamW: matrices with weight decay, and other parameters without.

        Decay towards 0 makes no sense for gains, biases and the scalars of a schedule, nor for
        matrices that a module names in `undecayed`.
        The names are added to `self.named` in the order of the groups.
        """
        decayed = {name for name, p in named.items() if p.ndim >= 2} - self._undecayed
        matrices = {name: p for name, p in named.items() if name in decayed}
        others = {name: p for name, p in named.items() if name not in decayed}
        self.named |= matrices | others
        decay = config.weight_decay if decay is None else decay
        return [
            {"params": list(matrices.values()), "weight_decay": decay, "scale": lr},
            {"params": list(others.values()), "weight_decay": 0.0, "scale": lr},
        ]

    def step(self, lr: float | Tensor, skip: Tensor) -> None:
        """Makes one update, or none if `skip` is 1, and clears the gradients.

        Args:
            lr: the learning rate; a CUDA graph reads it from a tensor.
            skip: 1 or 0, on the device.
        """
        for group in self.adamw.param_groups:
            group["lr"] = (lr if self.fused else float(lr)) * group["scale"]
        if self.fused:
            # the kernel reads it; the host does not wait
            vars(self.adamw)["found_inf"] = skip.float()
            self.adamw.step()
        elif not skip:
            self.adamw.step()
        self.zero_grad()

    def zero_grad(self) -> None:
        """Clears the gradients."""
        self.adamw.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """The state as `parameter.moment`; zeros for parameters without a gradient so far."""
        flat: dict[str, Tensor] = {}
        for name, parameter in self.named.items():
            state = self.adamw.state.get(parameter) or {
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
                "step": torch.tensor(0.0),
            }
            flat |= {f"{name}.{moment}": state[moment].detach() for moment in _MOMENTS}
        return flat

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Restores a state that `tensors` returned."""
        state: dict[str, Any] = self.adamw.state_dict()
        state["state"] = {
            index: {moment: _like(parameter, tensors[f"{name}.{moment}"]) for moment in _MOMENTS}
            for index, (name, parameter) in enumerate(self.named.items())
        }
        self.adamw.load_state_dict(state)


def _like(parameter: Tensor, moment: Tensor) -> Tensor:
    """The moment in the memory layout of its parameter, which the fused kernel assumes."""
    return torch.empty_like(parameter).copy_(moment) if moment.ndim else moment


def clip_gradients(model: nn.Module, limit: float) -> Tensor:
    """Scales the gradients to a global norm of at most `limit` (0: off);
    returns the norm before.
    """
    parameters = [p for p in model.parameters() if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if hasattr(norm, "full_tensor"):  # sharded gradients
        norm = norm.full_tensor()
    if limit:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm

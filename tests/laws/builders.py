"""Components from the registries, small and with no weight at zero."""

import dataclasses

import torch

from unmask.backbones.backbone import BACKBONES
from unmask.diffusion.schedule import SCHEDULES, Schedule
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.methods.method import METHODS, Method
from unmask.samplers.sampler import SAMPLERS
from unmask.vocabulary import Vocabulary

# methods that write text; a classifier has laws of its own
WRITERS = [name for name in METHODS if METHODS[name].capabilities.generate]
# samplers of masked diffusion; others have laws of their own
MASK_SAMPLERS = [
    name
    for name, kind in ((name, SAMPLERS[name]) for name in SAMPLERS)
    if kind.states == "masks" and not (kind.token_schedule or kind.blocks)
]


def schedule(name: str, **fields: float) -> Schedule:
    """A schedule by name; fields that it does not have are left out. A learned one is taken as if trained."""
    kind = SCHEDULES[name]
    if not hasattr(kind, "Config"):
        return kind(**known(kind, fields))
    built = kind(kind.Config(**known(kind.Config, fields)))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return built


def known(config: type, fields: dict[str, float]) -> dict[str, float]:
    """Those fields that a dataclass has."""
    names = {field.name for field in dataclasses.fields(config)}
    return {name: value for name, value in fields.items() if name in names}


def small_method(
    name: str, size: int = 11, seed: int = 0, time_conditioning: bool = False, **fields: object
) -> Method:
    """A method with a real but tiny network in which no weight is zero; MASK is the last id, PAD the first."""
    kind = METHODS[name]
    network = BACKBONES["causal" if kind.capabilities.causal else "dit"]
    shape = {"width": 16, "depth": 2, "heads": 2, "dropout": 0.0, "condition_width": 8}
    shape["time_conditioning"] = time_conditioning or kind.capabilities.noise_level
    vocabulary = Vocabulary(size, size - 1, pad_id=0)
    backbone = network(network.Config(**known(network.Config, shape)), Vocabulary(size, size - 1))
    method = kind(
        kind.Config(**fields),
        backbone,
        vocabulary,
        SCHEDULES.build("loglinear"),
        TIME_SAMPLERS.build("stratified"),
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return method.eval()

"""From a configuration to its components."""

from typing import Any

import torch

from unmask.backbones.backbone import BACKBONES
from unmask.config.run_config import Choice, RunConfig, config_class
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods.method import METHODS, Method
from unmask.registry import Registry
from unmask.vocabulary import Vocabulary


def build_method(config: RunConfig, vocabulary: Vocabulary) -> Method:
    """The method with its network, untrained."""
    kind: Any = METHODS[config.method.name]
    network: Any = BACKBONES[config.backbone.name]
    _check_pair(config.method.name, config.backbone.name)
    if config.data.paired and not config.data.fill_target and kind.order == "any":
        raise UnmaskError(
            f"method {config.method.name} would be shown where targets end: set data.fill_target true"
        )
    backbone = network(config.backbone.config, vocabulary.size)
    length, longest = config.data.length, backbone.longest
    if longest is not None and length > longest:
        raise UnmaskError(
            f"backbone {config.backbone.name} has {longest} positions, and rows have {length} tokens: "
            f"set data.length {longest} or backbone.positions {length}"
        )
    schedule = _component(SCHEDULES, config.schedule)
    times = _component(TIME_SAMPLERS, config.times)
    return kind(config.method.config, backbone, vocabulary, schedule, times)


def outline(config: RunConfig, vocabulary: Vocabulary | None = None) -> Method:
    """The method with a network that takes no memory: it knows its shape and computes nothing.

    It answers for every backbone, whatever settings the backbone has. The size of the vocabulary
    matters only to the number of parameters.
    """
    with torch.device("meta"):
        return build_method(config, vocabulary or Vocabulary(size=2, mask_id=1))


def _check_pair(method: str, backbone: str) -> None:
    """An error if no network of this kind suits the method."""
    causal = METHODS[method].order == "left_to_right"
    timed = METHODS[method].reads_noise_level
    if BACKBONES[backbone].causal != causal:
        wanted = f"a {'causal' if causal else 'bidirectional'} network, and {backbone} is not"
    elif timed and not _can_read_noise_level(backbone):
        wanted = f"a network that reads the noise level, and {backbone} does not"
    else:
        return
    suitable = [
        name
        for name in BACKBONES
        if BACKBONES[name].causal == causal and (not timed or _can_read_noise_level(name))
    ]
    setting = " and backbone.time_conditioning true" if timed else ""
    raise UnmaskError(
        f"method {method} needs {wanted}: set backbone {' or '.join(suitable)}{setting}"
    )


def _can_read_noise_level(backbone: str) -> bool:
    """A network of this kind can be conditioned on the time."""
    kind: Any = BACKBONES[backbone]
    return kind.time_conditioning or hasattr(config_class(kind), "time_conditioning")


def _component(registry: Registry[Any], choice: Choice) -> Any:
    """A component is its own configuration, unless it declares one apart."""
    entry: Any = registry[choice.name]
    return entry(choice.config) if hasattr(entry, "Config") else choice.config

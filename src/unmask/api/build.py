"""From a configuration to its components."""

from typing import Any

from unmask.backbones import BACKBONES
from unmask.config import Choice, RunConfig
from unmask.diffusion import SCHEDULES, TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods import METHODS, Method
from unmask.registry import Registry
from unmask.vocabulary import Vocabulary


def build_method(config: RunConfig, vocabulary: Vocabulary) -> Method:
    """The method with its network, untrained."""
    kind: Any = METHODS[config.method.name]
    network: Any = BACKBONES[config.backbone.name]
    causal = kind.order == "left_to_right"
    if network.causal != causal:
        suitable = [name for name in BACKBONES if BACKBONES[name].causal == causal]
        raise UnmaskError(
            f"method {config.method.name} needs a {'causal' if causal else 'bidirectional'} network, "
            f"and {config.backbone.name} is not: set backbone {' or '.join(suitable)}"
        )
    if config.data.paired and not config.data.fill_target and not causal:
        raise UnmaskError(
            f"method {config.method.name} would be shown where targets end: set data.fill_target true"
        )
    backbone = network(config.backbone.config, vocabulary.size)
    schedule = _component(SCHEDULES, config.schedule)
    times = _component(TIME_SAMPLERS, config.times)
    return kind(config.method.config, backbone, vocabulary, schedule, times)


def _component(registry: Registry[Any], choice: Choice) -> Any:
    """A component is its own configuration, unless it declares one apart."""
    entry: Any = registry[choice.name]
    return entry(choice.config) if hasattr(entry, "Config") else choice.config

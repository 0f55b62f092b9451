"""Builds the components that a run configuration names."""

from typing import Any

import torch

from unmask.backbones.backbone import BACKBONES, Backbone
from unmask.config.run_config import Choice, RunConfig, config_class
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods.method import METHODS, Capabilities, Method
from unmask.registry import Registry
from unmask.vocabulary import Vocabulary

# A placeholder for an unknown vocabulary, with every special id that a component may need.
_PLACEHOLDER = Vocabulary(2, 1, pad_id=0, bos_id=0, eos_id=0, label_ids=(0,), complement_ids=(0, 1))


def build_method(config: RunConfig, vocabulary: Vocabulary) -> Method:
    """The method of a configuration with its untrained network."""
    kind: Any = METHODS[config.method.name]
    network: Any = BACKBONES[config.backbone.name]
    _check_pair(config)
    backbone = network(config.backbone.config, vocabulary)
    _check_targets(config, backbone)
    length, longest = config.data.length, backbone.longest
    if longest is not None and length > longest:
        raise UnmaskError(
            f"backbone {config.backbone.name} has {longest} positions, but rows have {length} tokens: "
            f"set data.length {longest} or backbone.positions {length}"
        )
    schedule = _component(SCHEDULES, config.schedule)
    time_sampler = _component(TIME_SAMPLERS, config.time_sampler)
    return kind(config.method.config, backbone, vocabulary, schedule, time_sampler)


def outline(config: RunConfig, vocabulary: Vocabulary | None = None) -> Method:
    """The method with a network on the meta device: it has shapes, but no memory and no values.

    Args:
        config: the run configuration.
        vocabulary: the vocabulary, which affects only the number of parameters; None = a small one.
    """
    with torch.device("meta"):
        return build_method(config, vocabulary or _PLACEHOLDER)


def _check_targets(config: RunConfig, backbone: Backbone) -> None:
    """Raises an error if rows of pairs end in a way that the method or the network cannot use."""
    fills, causal = config.data.fill_target, METHODS[config.method.name].capabilities.causal
    if not config.data.paired:
        return
    if not fills and not causal and not backbone.predicts_length:
        raise UnmaskError(
            f"method {config.method.name} would see the length of the targets: set data.fill_target true"
        )
    if fills and backbone.longest_target is not None:
        raise UnmaskError(
            "data.fill_target fills rows with EOS, which backbone.target_positions cuts off: set "
            "data.fill_target false, or backbone.target_positions 0 without a length head"
        )


def _check_pair(config: RunConfig) -> None:
    """Raises an error if the method cannot use the network. The error names networks that fit."""
    name, backbone = config.method.name, config.backbone.name
    needs, kind = METHODS[name].capabilities, BACKBONES[backbone]
    if kind.pairs and not config.data.paired:
        raise UnmaskError(
            f"method {name} cannot use backbone {backbone} without pairs: set data.source_field and "
            "data.target_field, or another backbone"
        )
    if kind.tokens_only and needs.latent:
        raise UnmaskError(
            f"method {name} diffuses vectors, but backbone {backbone} reads tokens: set backbone dit"
        )
    causal = getattr(config.backbone.config, "causal", kind.causal)
    direction = "causal" if needs.causal else "bidirectional"
    fits = needs.any_network or causal == needs.causal
    if not fits and _has(kind, "causal"):
        raise UnmaskError(
            f"method {name} needs a {direction} network: set backbone.causal {str(needs.causal).lower()}"
        )
    if not fits:
        lacking = f"a {direction} network, but {backbone} is not"
    elif needs.blocks and not kind.rules:
        lacking = f"a network whose attention obeys a rule, but {backbone} has none"
    elif needs.noise_level and not _reads_time(kind):
        lacking = f"a network that reads the noise level, but {backbone} does not"
    else:
        return
    suitable = [other for other in BACKBONES if _suits(BACKBONES[other], needs)]
    setting = " and backbone.time_conditioning true" if needs.noise_level else ""
    raise UnmaskError(
        f"method {name} needs {lacking}: set backbone {' or '.join(suitable)}{setting}"
    )


def _suits(kind: type[Backbone], needs: Capabilities) -> bool:
    """True if a method with these capabilities can use networks of this kind."""
    if kind.pairs:
        return False  # a network for pairs is no general advice
    fits = needs.any_network or kind.causal == needs.causal or _has(kind, "causal")
    obeys = kind.rules or not needs.blocks
    return fits and obeys and (not needs.noise_level or _reads_time(kind))


def _reads_time(kind: type[Backbone]) -> bool:
    """True if networks of this kind can read the time."""
    return kind.time_conditioning or _has(kind, "time_conditioning")


def _has(kind: type[Backbone], setting: str) -> bool:
    """True if the configuration of a backbone has a setting."""
    return hasattr(config_class(kind), setting)


def _component(registry: Registry[Any], choice: Choice) -> Any:
    """The component of a choice. A class without a nested `Config` is its own configuration."""
    entry: Any = registry[choice.name]
    return entry(choice.config) if hasattr(entry, "Config") else choice.config

"""The models of a run: the one that it starts from, its teacher, and the one that it trains."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from unmask.backbones.backbone import Backbone
from unmask.bundle import Bundle
from unmask.config.components import build_method, outline
from unmask.config.run_config import RunConfig
from unmask.data.load import Data
from unmask.data.rows.stream_rows import StreamRows
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.files.tensors import load_weights
from unmask.formats.read import read_bundle
from unmask.likelihood.measured_rows import token_counts
from unmask.methods.distilled import with_teacher
from unmask.methods.method import Method, check_lengths
from unmask.model import Model
from unmask.randomness import torch_seed
from unmask.runs.run_setup import OpenRun
from unmask.training.lora import add_adapters

_NETWORK = "backbone."
_ENDS = ("backbone.embedding.", "backbone.head.")
_BLOCK = 4096  # rows of pairs that are checked at once


@dataclass(frozen=True)
class GivenModels:
    """The trained models that a run takes, and the tokenizer;
    None for those that it does not have.
    """

    initial: Model | None = None  # has the weights of `init_from`; None in a resumed run
    teacher: Bundle | None = None
    tokenizer: Tokenizer | None = None


@dataclass(frozen=True)
class Learner:
    """The model of a run, and the method whose loss is trained; with a teacher they differ."""

    model: Model
    trained: Method


def given_models(run: OpenRun, tokenizer: Tokenizer | None) -> GivenModels:
    """Reads the models that a configuration names.

    Args:
        run: the run.
        tokenizer: a tokenizer that the caller gave.

    Returns:
        The models. Their tokenizers are equal.
    """
    config = run.config
    starts = config.init_from and not run.checkpoint
    initial = initial_model(config, tokenizer) if starts else None
    known = initial.tokenizer if initial else tokenizer
    if not config.teacher:
        return GivenModels(initial, None, known)
    teacher = read_bundle(config.teacher)
    if known is not None and known.fingerprint != teacher.tokenizer.fingerprint:
        raise UnmaskError(f"the teacher {config.teacher} has another tokenizer than this run")
    _check_teacher(config, teacher)
    return GivenModels(initial, teacher, teacher.tokenizer)


def build_learner(run: OpenRun, given: GivenModels, data: Data) -> Learner:
    """The model that a run trains, with its initial weights.

    Args:
        run: the run.
        given: the models to start and learn from.
        data: tokenizer and rows.

    Returns:
        The model and the method to train.
    """
    config, tokenizer = run.config, data.tokenizer
    with torch_seed(config.seed):
        method = (
            given.initial.method if given.initial else build_method(config, tokenizer.vocabulary)
        )
        if config.lora.rank:
            add_adapters(method, config.lora)
    trained = with_teacher(method, given.teacher.method) if given.teacher else method
    for network in trained.networks:
        _check_pairs(network, data)
    if method.capabilities.token_schedule:
        counted = data.valid if isinstance(data.train, StreamRows) else data.train
        method.set_frequencies(token_counts(counted, tokenizer.vocabulary.size))
    measured = replace(config.data, held_out_digest=data.valid.digest)
    own = replace(config, data=measured)
    return Learner(Model(method, tokenizer, own, _usual(config, given.initial)), trained)


def _check_teacher(config: RunConfig, teacher: Bundle) -> None:
    """Raises an error before any data is read if a run cannot learn from the teacher."""
    with_teacher(outline(config, teacher.tokenizer.vocabulary), teacher.method)
    longest = teacher.method.backbone.longest
    if longest is not None and longest < config.data.length:
        raise UnmaskError(
            f"the teacher {config.teacher} reads {longest} tokens, but rows have "
            f"{config.data.length}: set data.length {longest}"
        )


def _check_pairs(backbone: Backbone, data: Data) -> None:
    """Raises an error before the first step if a source or a target is longer
    than the network reads.
    """
    for rows in (data.train, data.valid):
        if isinstance(rows, StreamRows) or not backbone.pairs:
            continue
        for start in range(0, len(rows), _BLOCK):
            index = range(start, min(start + _BLOCK, len(rows)))
            check_lengths(backbone, rows[index][1], rows.given(index))


def initial_model(config: RunConfig, tokenizer: Tokenizer | None) -> Model:
    """A model of this configuration with the weights and the tokenizer of `init_from`.

    Args:
        config: the configuration.
        tokenizer: a tokenizer that the caller gave; it must be that of `init_from`.

    Returns:
        The model.
    """
    found = read_bundle(config.init_from)
    if tokenizer is not None and tokenizer.fingerprint != found.tokenizer.fingerprint:
        raise UnmaskError(
            f"init_from {config.init_from} has another tokenizer than the one given: give none"
        )
    with torch_seed(config.seed):
        method = build_method(config, found.tokenizer.vocabulary)
    fresh, network = (
        method.state_dict(),
        method.backbone.adapted(found.method.backbone.state_dict()),
    )
    given = {
        **{n: t for n, t in found.method.state_dict().items() if not n.startswith(_NETWORK)},
        **{f"{_NETWORK}{name}": tensor for name, tensor in network.items()},
    }
    own, other = _own_tensors(method), _own_tensors(found.method)
    given = {name: tensor for name, tensor in given.items() if name in fresh or name not in other}
    if method.capabilities.latent != found.method.capabilities.latent:
        # tokens and vectors have different first and last layers: only the layers between are taken
        own |= {name for name in fresh if not name.startswith(_NETWORK) or name.startswith(_ENDS)}
        given = {name: tensor for name, tensor in given.items() if name in fresh.keys() - own}
    weights = {name: fresh[name] for name in own} | given
    load_weights(method, weights, f"init_from {config.init_from}")
    if not found.method.capabilities.causal or method.capabilities.causal:
        return Model(method, found.tokenizer, config, found.defaults)
    start_mask(method)
    return Model(method, found.tokenizer, config)  # its samplers are not those of its start


@torch.no_grad()
def start_mask(method: Method) -> None:
    """Sets the embedding of MASK to the mean of all others, which an autoregressive start lacks.

    Args:
        method: A method whose network embeds tokens.
    """
    table, mask_id = method.backbone.embedding.weight, method.vocabulary.mask_id
    assert isinstance(table, torch.Tensor)
    others = torch.arange(len(table)) != mask_id
    table[mask_id] = table[others].mean(0)


def _own_tensors(method: Method) -> set[str]:
    """Names of the method's buffers and learned schedule,
    which a model of another method does not have.
    """
    names = {name for name, _ in method.named_buffers()} | {
        name for name, _ in method.named_parameters() if name.startswith("schedule.")
    }
    return {name for name in names if not name.startswith(_NETWORK)}


def _usual(config: RunConfig, start: Model | None) -> Mapping[str, Any]:
    """The default options of `generate` of the initial model; none if a resumed run has lost it."""
    if start or not config.init_from:
        return start.defaults if start else {}
    try:
        return read_bundle(config.init_from).defaults
    except (UnmaskError, OSError):
        return {}

"""Readers of the MDLM and SEDD authors' models: hub folders and Lightning checkpoints."""

from collections.abc import Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.files.untrusted import refusing
from unmask.formats.foreign import ForeignCheckpoint, ForeignSettings, Into, as_float, renamed
from unmask.formats.foreign_format import ForeignFormat, build_bundle, find_tokenizer
from unmask.formats.format import FORMATS
from unmask.formats.pickle import checked_memory, plain, read_pickle

EPSILON = 1e-3  # eps of the authors' log-linear and cosine noise
_PREFIX = "backbone."
_BLOCK = {  # authors' name -> name here, in the order of `block.parameters()`
    "norm1.weight": "attention_norm.weight",
    "attn_qkv.weight": "attention.qkv.weight",
    "attn_out.weight": "attention.out.weight",
    "norm2.weight": "mlp_norm.weight",
    "mlp.0.weight": "mlp.0.weight",
    "mlp.0.bias": "mlp.0.bias",
    "mlp.2.weight": "mlp.2.weight",
    "mlp.2.bias": "mlp.2.bias",
    "adaLN_modulation.weight": "modulation.weight",
    "adaLN_modulation.bias": "modulation.bias",
}
_FIRST = {
    "vocab_embed.embedding": "embedding.weight",
    "sigma_map.mlp.0.weight": "noise_level.mlp.0.weight",
    "sigma_map.mlp.0.bias": "noise_level.mlp.0.bias",
    "sigma_map.mlp.2.weight": "noise_level.mlp.2.weight",
    "sigma_map.mlp.2.bias": "noise_level.mlp.2.bias",
}
_LAST = {
    "output_layer.norm_final.weight": "norm.weight",
    "output_layer.linear.weight": "head.weight",
    "output_layer.linear.bias": "head.bias",
    "output_layer.adaLN_modulation.weight": "modulation.weight",
    "output_layer.adaLN_modulation.bias": "modulation.bias",
}
_ONLY_CONDITIONED = ("sigma_map", "adaLN_modulation")  # parts of names that causal networks lack
_NOISE = {
    "loglinear": ("loglinear", ("eps",)),
    "cosine": ("cosine", ("eps",)),
    "cosinesqr": ("cosine_squared", ("eps",)),
    "linear": ("linear", ("sigma_min", "sigma_max")),
    "geometric": ("geometric", ("sigma_min", "sigma_max")),
}


def read_mdlm(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads a model such as kuleshov-group/mdlm-owt: flat config.json, weights `backbone.*`."""
    settings = ForeignSettings(tree, where)
    size, depth = settings.get("vocab_size", int), settings.get("n_blocks", int)
    backbone = {
        "name": "dit",
        "width": settings.get("hidden_dim", int),
        "depth": depth,
        "heads": settings.get("n_heads", int),
        "condition_width": settings.get("cond_dim", int),
        "dropout": settings.get("dropout", float, 0.1),
        "time_conditioning": settings.get("time_conditioning", bool, False),
    }
    weights = _weights(tensors, _PREFIX, depth, where)
    _check_rotation(tensors, backbone, where)
    schedule = {"name": "loglinear", "eps": EPSILON}
    sections = {"method": {"name": "mdlm"}, "schedule": schedule, "backbone": backbone}
    return ForeignCheckpoint(sections, settings.get("model_length", int), size, weights)


def read_sedd(
    tree: Mapping[str, Any], tensors: Mapping[str, Tensor], where: str
) -> ForeignCheckpoint:
    """Reads a model such as louaaron/sedd-small: nested config.json, weights without prefix."""
    settings = ForeignSettings(tree, where)
    settings.require("graph.type", "absorb")
    settings.require("model.scale_by_sigma", True)
    backbone = {**_network(settings), "name": "dit", "time_conditioning": True}
    weights = _weights(tensors, "", backbone["depth"], where)
    _check_rotation(tensors, backbone, where)
    sections = {
        "method": {"name": "sedd"},
        "schedule": _schedule(settings),
        "backbone": backbone,
    }
    size = settings.get("tokens", int) + 1
    return ForeignCheckpoint(sections, settings.get("model.length", int), size, weights)


def read_lightning(content: Any, where: str, averaged: bool = True) -> ForeignCheckpoint:
    """Reads a Lightning checkpoint. With `averaged`, it takes the EMA weights if there are any."""
    checkpoint = ForeignSettings(content, where)
    saved = checkpoint.tree.get("hyper_parameters")
    settings = ForeignSettings(
        plain(saved.get("config") if isinstance(saved, Mapping) else None, where), where
    )
    tensors = checkpoint.tree.get("state_dict")
    if not isinstance(tensors, Mapping):
        raise UnmaskError(f"{where} has no state_dict: it is no Lightning checkpoint")
    tensors = checked_memory(tensors, where)
    settings.require("backbone", "dit", "ar")
    causal = settings.get("backbone", str) == "ar"
    backbone: dict[str, Any] = _network(settings)
    if causal:
        backbone = {**backbone, "name": "causal"}
        del backbone["condition_width"]
    else:
        timed = settings.get("time_conditioning", bool, False)
        if timed:  # with a change of variables the network reads t instead of sigma
            settings.require("training.change_of_variables", False, None)
        backbone = {**backbone, "name": "dit", "time_conditioning": timed}
    depth = backbone["depth"]
    _check_rotation(tensors, backbone, where)
    if averaged and checkpoint.tree.get("ema"):
        tensors = _ema_weights(checkpoint.tree["ema"], tensors, depth, causal, where)
    weights = _weights(tensors, _PREFIX, depth, where)
    size = _vocabulary_size(weights, where)
    sections = {
        "method": _method(settings, causal),
        "schedule": {"name": "loglinear"} if causal else _schedule(settings),
        "backbone": backbone,
    }
    return ForeignCheckpoint(sections, settings.get("model.length", int), size, weights)


def _network(settings: ForeignSettings) -> dict[str, Any]:
    return {
        "width": settings.get("model.hidden_size", int),
        "depth": settings.get("model.n_blocks", int),
        "heads": settings.get("model.n_heads", int),
        "condition_width": settings.get("model.cond_dim", int),
        "dropout": settings.get("model.dropout", float, 0.1),
    }


def _method(settings: ForeignSettings, causal: bool) -> dict[str, Any]:
    """The configuration section `method` for the authors' setting `parameterization`."""
    settings.require("parameterization", *(["ar"] if causal else ["subs", "d3pm", "sedd"]))
    steps = settings.get("T", int, 0)
    match settings.get("parameterization", str):
        case "ar":
            # the authors' rows start with BOS
            return {"name": "autoregressive", "given_first": True}
        case "sedd":
            return {"name": "sedd"}
        case "d3pm":
            zero_masking = settings.get("subs_masking", bool, False)
            return {"name": "d3pm", "steps": steps, "zero_masking": zero_masking}
    return {"name": "mdlm", "steps": steps}


def _schedule(settings: ForeignSettings) -> dict[str, Any]:
    """The configuration section `schedule` for the authors' setting `noise`.

    The authors mask tokens and condition the network by this schedule. Their T-step bounds use
    alpha_t = 1 - t instead. MDLM's loss weights are equal under both schedules. D3PM's divergence
    changes by about 0.001 of the probability that the network gives MASK.
    """
    settings.require("noise.type", *_NOISE)
    name, fields = _NOISE[settings.get("noise.type", str)]
    if fields == ("eps",):
        return {"name": name, "eps": EPSILON}
    return {"name": name, **{field: settings.get(f"noise.{field}", float) for field in fields}}


def parameter_names(depth: int, causal: bool) -> Iterator[str]:
    """The authors' parameter names in the order of `backbone.parameters()`,
    as in the list of EMA weights.
    """
    blocks = (f"blocks.{i}.{name}" for i in range(depth) for name in _BLOCK)
    for name in chain(_FIRST, blocks, _LAST):
        if not (causal and any(part in name for part in _ONLY_CONDITIONED)):
            yield name


def _ema_weights(
    ema: Any, tensors: Mapping[str, Tensor], depth: int, causal: bool, where: str
) -> dict[str, Tensor]:
    """The EMA weights by name. The checkpoint holds them as a list without names."""
    averages = ema.get("shadow_params") if isinstance(ema, Mapping) else None
    if not isinstance(averages, list):
        raise UnmaskError(f"{where} does not fit: ema has no shadow_params")
    # a file may claim any depth: generate at most one name more than there are averages
    expected = islice(parameter_names(depth, causal), len(averages) + 1)
    names = [f"{_PREFIX}{name}" for name in expected]
    if len(averages) != len(names):
        raise UnmaskError(
            f"{where} does not fit: its {len(averages)} averages are not one per parameter"
        )
    for name, average in zip(names, averages, strict=True):
        raw = tensors.get(name)
        if not isinstance(raw, Tensor) or getattr(average, "shape", None) != raw.shape:
            raise UnmaskError(
                f"{where} does not fit: the average of {name} has another shape than its weight"
            )
    return checked_memory(dict(zip(names, averages, strict=True)), where)


def _weights(
    tensors: Mapping[str, Tensor], prefix: str, depth: int, where: str
) -> dict[str, Tensor]:
    """The learned weights under the names of `unmask`; the rotary frequencies are dropped."""
    dotted = prefix.replace(".", r"\.")
    pairs = {**_FIRST, **_LAST}
    rules = [(dotted + old.replace(".", r"\."), new) for old, new in pairs.items()]
    for old, new in _BLOCK.items():
        rules.append((rf"{dotted}blocks\.(\d+)\.{old.replace('.', '[.]')}", rf"blocks.\1.{new}"))
    learned = {name: t for name, t in tensors.items() if name != f"{prefix}rotary_emb.inv_freq"}
    return renamed(learned, rules, where)


def _check_rotation(tensors: Mapping[str, Tensor], backbone: Mapping[str, Any], where: str) -> None:
    """Raises an error if stored rotary frequencies differ from those of `unmask`,
    with base 10,000.
    """
    for name, table in tensors.items():
        if name.endswith("rotary_emb.inv_freq"):
            width = backbone["width"] // max(1, backbone["heads"])
            table = as_float(table, name, where)
            fits = 2 * table.numel() == width and table.ndim == 1
            if not fits or not torch.allclose(table, _angles(width), rtol=1e-2):
                raise UnmaskError(
                    f"{where} does not fit: {name} does not hold rotary frequencies of base 10,000"
                )


def _angles(width: int) -> Tensor:
    return 10_000.0 ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)


def _vocabulary_size(weights: Mapping[str, Tensor], where: str) -> int:
    table = weights.get("embedding.weight")
    if table is None or table.ndim != 2:
        raise UnmaskError(f"{where} does not fit: {_PREFIX}vocab_embed.embedding is missing")
    return len(table)


@FORMATS.register("mdlm")
class MDLMFormat(ForeignFormat):
    """Models of the MDLM authors on the hub, such as kuleshov-group/mdlm-owt."""

    model_types = ("mdlm",)
    parts = staticmethod(read_mdlm)


@FORMATS.register("sedd")
class SEDDFormat(ForeignFormat):
    """Models of the SEDD authors on the hub, such as louaaron/sedd-small."""

    parts = staticmethod(read_sedd)

    @classmethod
    def fits(cls, settings: Mapping[str, Any]) -> bool:
        """True if config.json has a `graph` and no `model_type`."""
        return settings.get("model_type") is None and "graph" in settings


@FORMATS.register("lightning")
class LightningFormat(ForeignFormat):
    """A Lightning checkpoint (.ckpt) of the MDLM authors' trainer, for `unmask convert`."""

    @classmethod
    def matches(cls, path: Path) -> bool:
        """True for any file, since models in other formats are folders."""
        return path.is_file()

    @classmethod
    def read(
        cls,
        path: Path,
        tokenizer: str | None = None,
        averaged: bool = True,
        into: Into | None = None,
    ) -> Bundle:
        """The model, with its EMA weights,
        or with those of the last step if `averaged` is False.
        """
        with refusing(f"{path} cannot be read"):
            parts = read_lightning(read_pickle(path, objects=True), str(path), averaged)
        return build_bundle(parts, find_tokenizer(path.parent, parts, tokenizer), str(path))

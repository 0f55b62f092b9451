"""Small models with weights that are not zero, and checkpoints in the layouts of other projects."""

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.data.tokenizers.kinds import build_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError
from unmask.model import Model

FIXTURE = Path(__file__).parents[1] / "fixtures" / "official-dit-tiny"
TEXT = "The cat sat on the mat, Où ça? ABC xyz 12.\n\tIt saw a dog."
SHAPE = [("backbone.width", "16"), ("backbone.depth", "2"), ("backbone.heads", "2")]


def fill(module: torch.nn.Module, scale: float = 0.2) -> None:
    """Fills all weights with random numbers of a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))


def tiny(kind: str = "bpe", method: str = "mdlm", **settings: str) -> Model:
    """An untrained model."""
    choices = [("data.length", "24"), ("data.tokenizer.kind", kind), ("method", method)]
    if method == "autoregressive":
        choices.append(("backbone", "causal"))
    choices += [(name.replace("__", "."), value) for name, value in settings.items()]
    config = resolve({}, [*choices, *SHAPE])
    tokenizer = build_tokenizer(TokenizerConfig(kind, 300), [TEXT])
    built = build_method(config, tokenizer.vocabulary)
    fill(built)
    return Model(built, tokenizer, config)


def logits(model: Model, tokens: Tensor, sigma: Tensor | None = None) -> Tensor:
    backbone = model.method.backbone
    with torch.no_grad():
        return backbone.logits(backbone.features(tokens, sigma))


def one_line(caught: pytest.ExceptionInfo) -> str:
    message = str(caught.value)
    assert message and "\n" not in message
    return message


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(UnmaskError) as caught:
        call()
    return one_line(caught)


# The authors' Lightning checkpoints


@contextmanager
def omegaconf() -> Iterator[Callable[[Any], Any]]:
    """Settings as omegaconf pickles them: metadata, parent and content,
    without the cache of flags.
    """
    kinds = ("base.Metadata", "base.ContainerMetadata", "nodes.AnyNode")
    kinds += ("dictconfig.DictConfig", "listconfig.ListConfig")
    modules = {"omegaconf": ModuleType("omegaconf")}
    made = {}
    for kind in kinds:
        module, _, name = f"omegaconf.{kind}".rpartition(".")
        modules.setdefault(module, ModuleType(module))
        made[name] = type(name, (), {"__module__": module, "__getstate__": _without_flags})
        setattr(modules[module], name, made[name])

    def wrap(value: Any, key: Any = None, parent: Any = None) -> Any:
        name = {dict: "DictConfig", list: "ListConfig"}.get(type(value), "AnyNode")
        node = made[name]()
        metadata = made["ContainerMetadata" if name != "AnyNode" else "Metadata"]()
        vars(metadata).update(ref_type=Any, object_type=None, optional=True, key=key, flags={})
        vars(metadata).update(flags_root=False, resolver_cache=defaultdict(dict))
        vars(node).update(_metadata=metadata, _parent=parent, _flags_cache=None)
        if name == "AnyNode":
            vars(node)["_val"] = value
            return node
        types = {"key_type": Any if name == "DictConfig" else int, "element_type": Any}
        vars(metadata).update(object_type=type(value), **types)
        pairs = value.items() if name == "DictConfig" else enumerate(value)
        held = {key: wrap(part, key, node) for key, part in pairs}
        vars(node)["_content"] = held if name == "DictConfig" else list(held.values())
        if parent is None:  # as hydra leaves it
            metadata.flags["struct"] = True
            metadata.resolver_cache["now"] = {"%Y.%m.%d": "2024.06.11"}
        return node

    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules.items():
            patch.setitem(sys.modules, name, module)
        yield wrap


def _without_flags(node: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(node).items() if name != "_flags_cache"}


def authors_settings(**changes: Any) -> dict[str, Any]:
    """The authors' configuration for the network of the fixture."""
    network = {"hidden_size": 64, "cond_dim": 32, "n_blocks": 2, "n_heads": 4, "length": 24}
    return {
        "backbone": "dit",
        "parameterization": "subs",
        "time_conditioning": False,
        "T": 0,
        "subs_masking": False,
        "model": {**network, "dropout": 0.1, "scale_by_sigma": True},
        "noise": {"type": "loglinear", "sigma_min": 1e-4, "sigma_max": 20},
        "wandb": {"name": None, "id": "${.name}_${seed}", "tags": ["${noise.type}", ["owt"]]},
    } | changes


class Numbered(torch.nn.Module):
    """A module with parameters in the order of the authors' module."""

    def __init__(self, names: list[str], tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name in names:
            *path, leaf = name.split(".")
            here: torch.nn.Module = self
            for part in path:
                if not hasattr(here, part):
                    here.add_module(part, torch.nn.Module())
                here = getattr(here, part)
            here.register_parameter(leaf, torch.nn.Parameter(tensors[name].clone()))


BLOCK = [
    *("norm1.weight", "attn_qkv.weight", "attn_out.weight", "norm2.weight"),
    *("mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias"),
    *("adaLN_modulation.weight", "adaLN_modulation.bias"),
]
# as the authors' classes register them: embedding, map of sigma, blocks, output layer
ORDER = [
    "vocab_embed.embedding",
    *(f"sigma_map.mlp.{i}.{kind}" for i, kind in itertools.product((0, 2), ("weight", "bias"))),
    *(f"blocks.{i}.{name}" for i in range(2) for name in BLOCK),
    *("output_layer.norm_final.weight", "output_layer.linear.weight", "output_layer.linear.bias"),
    *("output_layer.adaLN_modulation.weight", "output_layer.adaLN_modulation.bias"),
]
CAUSAL = [name for name in ORDER if "adaLN" not in name and "sigma_map" not in name]


def lightning(file: Path, settings: dict[str, Any], order: list[str] = ORDER, **more: Any) -> Path:
    """A checkpoint as the authors' trainer writes it, with wrong raw weights and right averages."""
    weights = load_file(FIXTURE / "model.safetensors")
    averaged = Numbered(order, {name: weights[f"backbone.{name}"] for name in order})
    raw = {f"backbone.{name}": tensor + 1 for name, tensor in averaged.state_dict().items()}
    raw["backbone.rotary_emb.inv_freq"] = weights["backbone.rotary_emb.inv_freq"]
    with omegaconf() as wrap:
        content = {
            "epoch": 3,
            "state_dict": raw,
            "hyper_parameters": {"config": wrap(settings)},
            "ema": {
                "decay": 0.9999,
                "num_updates": 7,
                "shadow_params": [p.detach() for p in averaged.parameters()],
            },
            **more,
        }
        torch.save(content, file)
    return file


def some_tokens(model: Model, rows: int = 3, length: int = 9) -> Tensor:
    size = model.tokenizer.vocabulary.size
    return torch.randint(size, (rows, length), generator=torch.Generator().manual_seed(0))

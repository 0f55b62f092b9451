"""LoRA (arXiv 2106.09685) in a run: peft adds adapters, and the exported weights contain them."""

from collections.abc import Mapping

from torch import Tensor, nn

from unmask.imports import extra
from unmask.methods.method import Method
from unmask.training.training_config import LoraConfig


def add_adapters(method: Method, config: LoraConfig) -> None:
    """Adds adapters to the matrices of the blocks; only the adapters are trained.

    A network whose blocks do not name their matrices gets adapters on all linear
    layers but the head.
    """
    peft, network = extra("peft", "lora.rank", "lora"), method.backbone
    parts = list(network.named_modules())
    named = [f"{name}.{part}" for name, block in parts for part in getattr(block, "matrices", ())]
    others = [
        name for name, part in parts if isinstance(part, nn.Linear) and part is not network.head
    ]
    settings = peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=named or others
    )
    method.requires_grad_(False)
    peft.inject_adapter_in_model(settings, network)
    if method.capabilities.per_row:  # its head is new, so there is no weight to adapt
        own = (n for n, _ in method.named_parameters() if not n.startswith("backbone."))
        for name in (*own, "backbone.head.weight", "backbone.head.bias"):
            method.get_parameter(name).requires_grad_(True)


def remove_adapters(method: Method) -> None:
    """Puts the layers below the adapters back in place; all weights may be trained again."""
    for name, module in list(method.named_modules()):
        if hasattr(module, "base_layer"):
            parent, _, leaf = name.rpartition(".")
            setattr(method.get_submodule(parent), leaf, module.base_layer)
    method.requires_grad_(True)


def merged(tensors: Mapping[str, Tensor], config: LoraConfig) -> dict[str, Tensor]:
    """Weights of a run as weights of the network without adapters: W + alpha / rank B A."""
    plain = {}
    for name, tensor in tensors.items():
        stem, below, leaf = name.rpartition(".base_layer.")
        a, b = (tensors.get(f"{stem}.lora_{part}.default.weight") for part in "AB")
        if below and leaf == "weight" and a is not None and b is not None:
            tensor = tensor + config.alpha / config.rank * (b @ a)
        if ".lora_" not in name:
            plain[f"{stem}.{leaf}" if below else name] = tensor
    return plain

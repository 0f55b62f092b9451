"""The families' own code, imported from checkouts: networks and generation.

A folder is imported as a package of its own, so that modules of equal names do not meet. Where code needs a GPU or flash-attn,
torch's attention stands in.
"""

import importlib
import json
import sys
import typing
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import safetensors.torch
import torch
import transformers
from torch import Tensor
from torch.nn import functional as F

from benchmarks.quality.family_models import MASK

FOLDERS = {  # of the networks: project/folder
    "llada": "dllm/dllm/pipelines/llada/models",
    "Dream": "dllm/dllm/pipelines/dream/models",
    "sdar": "SDAR/training/model/SDAR-4B-Chat",
    "llada2_moe": "dllm/dllm/pipelines/llada2/models",
    "Fast_dLLM_Qwen": "DualDiffusion/FastDLLM_inferencing/Fast_dLLM_v2_7B",
}
CLASSES = {  # module, class, module and class of the configuration
    "llada": ("modeling_llada", "LLaDAModelLM", "configuration_llada", "LLaDAConfig"),
    "Dream": ("modeling_dream", "DreamModel", "configuration_dream", "DreamConfig"),
    "sdar": ("modeling_sdar", "SDARForCausalLM", "configuration_sdar", "SDARConfig"),
    "llada2_moe": (
        "modeling_llada2_moe",
        "LLaDA2MoeModelLM",
        "configuration_llada2_moe",
        "LLaDA2MoeConfig",
    ),
    "Fast_dLLM_Qwen": (
        "modeling",
        "Fast_dLLM_QwenForCausalLM",
        "configuration",
        "Fast_dLLM_QwenConfig",
    ),
}
_ATTENTION = {"llada": "eager"}


def _part(family: str, reference: Path, module: str) -> ModuleType:
    """A module of a family's folder."""
    package = f"reference_{family}"
    if package not in sys.modules:
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(reference / FOLDERS[family])]
        if family == "sdar":
            _stand_ins(package)
    return importlib.import_module(f"{package}.{module}")


def _script(path: Path) -> Any:
    """A file as a module."""
    spec = spec_from_file_location(f"reference_script_{path.parent.name}", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load(reference: Path, family: str, folder: Path) -> Any:
    """The network of a folder, by the family's own class; an error if a name or shape differs."""
    module, name, configuration, config_name = CLASSES[family]
    tree = json.loads((folder / "config.json").read_text())
    settings = {key: value for key, value in tree.items() if key != "model_type"}
    own: Any = _part(family, reference, module)
    kinds: Any = _part(family, reference, configuration)
    config = getattr(kinds, config_name)(**settings)
    config._attn_implementation = _ATTENTION.get(family, "sdpa")
    given = {}
    if family == "llada":  # its class asks for a GPU otherwise
        fields = kinds.ModelConfig.__dataclass_fields__
        parts = {key: value for key, value in config.to_dict().items() if key in fields}
        inner = kinds.ModelConfig(**parts | {"init_device": "cpu"})
        given["model"] = own.LLaDAModel(inner, init_params=True)
    if family == "sdar":
        config.fuse_cross_entropy = False
    network = getattr(own, name)(config, **given)
    network.load_state_dict(safetensors.torch.load_file(folder / "model.safetensors"), strict=True)
    return network.eval()


@torch.no_grad()
def logits(network: Any, family: str, x: Tensor) -> Tensor:
    """Logits of the tokens themselves, under the family's attention."""
    if family == "Fast_dLLM_Qwen":
        found = network(x, use_cache=True, update_past_key_values=True, block_size=32).logits
    elif family == "sdar":
        number = torch.arange(x.shape[1]) // network.config.block_size
        allowed = (number <= number[:, None]).float()[None]  # of one row
        found = torch.cat([network(row[None], attention_mask=allowed).logits for row in x])
    elif family == "llada2_moe":
        number = torch.arange(x.shape[1]) // 32
        hidden = torch.zeros(x.shape[1], x.shape[1]).masked_fill(
            number > number[:, None], -torch.inf
        )
        found = network(x, attention_mask=hidden.expand(len(x), 1, -1, -1)).logits
    else:
        found = network(x).logits
    shifted = family in ("Dream", "Fast_dLLM_Qwen")
    return torch.cat([found[:, :1], found[:, :-1]], 1) if shifted else found


def text(reference: Path, network: Any, case: Any, x: Tensor) -> Tensor:
    """Prompts with their texts at temperature 0."""
    return GENERATE[case.function](reference, network, x, case)


def _llada(reference: Path, network: Any, x: Tensor, case: Any) -> Tensor:
    own = _script(reference / "LLaDA/generate.py")
    return own.generate(network, x, gen_length=case.new, mask_id=MASK, **case.settings)


def _fast_dllm(reference: Path, network: Any, x: Tensor, case: Any) -> Tensor:
    for name in ("model", "model.modeling_llada"):
        sys.modules.setdefault(name, ModuleType(name))
    sys.modules["model.modeling_llada"].LLaDAModelLM = type(network)
    own = _script(reference / "Fast-dLLM/llada/generate.py")
    settings = {"gen_length": case.new, "mask_id": MASK, **case.settings}
    return torch.cat([own.generate(network, row[None], **settings)[0] for row in x])


def _dream(reference: Path, network: Any, x: Tensor, case: Any) -> Tensor:
    own: Any = _part("Dream", reference, "generation_utils")
    ids = {"mask_token_id": MASK, "pad_token_id": 1, "eos_token_id": 1, "bos_token_id": 0}
    settings = {
        **ids,
        "temperature": 0.0,
        "top_p": case.top_p,
        "max_new_tokens": case.new,
        "alg": case.decoding,
    }
    return network.diffusion_generate(
        x, generation_config=own.DreamGenerationConfig(**settings, **case.settings)
    )


def _sdar(reference: Path, network: Any, x: Tensor, case: Any) -> Tensor:
    own = _script(reference / "SDAR/generate.py")
    settings = {"gen_length": case.new, "block_length": 4, "denoising_steps": 4, **case.settings}
    settings["remasking_strategy"] = case.decoding
    draw = torch.multinomial
    torch.multinomial = lambda p, num_samples: p.argmax(
        -1, keepdim=True
    )  # temperature 0 divides by 0 there
    try:
        return torch.cat(
            [
                own.block_diffusion_generate(network, {"input_ids": row[None]}, MASK, **settings)[
                    :, : len(row) + case.new
                ]
                for row in x
            ]
        )
    finally:
        torch.multinomial = draw


def _llada2(reference: Path, network: Any, x: Tensor, case: Any) -> Tensor:
    settings = {"gen_length": case.new, "mask_id": MASK, "eos_id": 1, **case.settings}
    forward = type(network).forward

    def in_fp32(x: Tensor, attention_mask: Tensor, **others: Any) -> Any:  # the mask is of bf16
        return forward(network, x, attention_mask=attention_mask.float(), **others)

    network.forward = in_fp32
    texts = [torch.cat([row, network.generate(row[None], **settings)[0]]) for row in x]
    return torch.stack(texts)


def _fast_dllm_v2(reference: Path, network: Any, x: Tensor, case: Any) -> Tensor:
    length, whole = x.shape[1] + case.new, -(-case.new // 32) * 32
    settings = {"max_new_tokens": whole, "mask_id": MASK, "stop_token": 1, **case.settings}
    return torch.cat([network.generate(row[None], **settings)[0][:, :length] for row in x])


GENERATE: dict[str, Callable[[Path, Any, Tensor, Any], Tensor]] = {
    "llada": _llada,
    "fast_dllm": _fast_dllm,
    "dream": _dream,
    "sdar": _sdar,
    "llada2": _llada2,
    "fast_dllm_v2": _fast_dllm_v2,
}


def _stand_ins(package: str) -> None:
    """Modules that SDAR's code imports."""

    def norm(
        x: Tensor, weight: Tensor, bias: Any = None, eps: float = 1e-6, **others: Any
    ) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, eps)

    def attention(
        q: Tensor, k: Tensor, v: Tensor, causal: bool = False, softmax_scale: float | None = None
    ) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        return F.scaled_dot_product_attention(
            q, k, v, scale=softmax_scale, enable_gqa=True
        ).transpose(1, 2)

    names = (
        "flash_attn",
        "flash_attn.ops",
        "flash_attn.ops.triton",
        "flash_attn.ops.triton.layer_norm",
    )
    for name in (
        *names,
        "flash_attn.bert_padding",
        f"{package}.fused_linear_diffusion_cross_entropy",
    ):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(
            rms_norm_fn=norm,
            flash_attn_func=attention,
            flash_attn_varlen_func=None,
            FusedLinearDiffusionCrossEntropyLoss=None,
        )
        sys.modules[name].__dict__.update(
            dict.fromkeys(("index_first_axis", "pad_input", "unpad_input"))
        )
    if not hasattr(transformers.utils, "LossKwargs"):
        transformers.utils.LossKwargs = typing.TypedDict("LossKwargs", {}, total=False)

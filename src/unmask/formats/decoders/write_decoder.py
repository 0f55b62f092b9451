"""Writer of decoders in the layout of transformers, or in that of a family of diffusion models."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.files.storage import atomic_folder, write_json
from unmask.files.tensors import system_errors
from unmask.formats.decoders.decoder_layout import LAYOUTS, DecoderLayout
from unmask.formats.decoders.expert_settings import write_experts
from unmask.formats.decoders.read_decoder import stored_names
from unmask.formats.decoders.rope_settings import write_rope
from unmask.formats.tokenizer_files import tokenizer_files

SHARD = 5 * 10**9  # bytes of the largest file of weights; larger weights are split
_WEIGHTS = "model.safetensors"


def write_decoder(bundle: Bundle, folder: Path, shard: int = SHARD) -> None:
    """Writes a folder that transformers, or the code of the family, reads.

    The family is the first one whose network and method the model has.

    Args:
        bundle: a model with the backbone `llama`.
        folder: the folder to write.
        shard: most bytes of a file of weights.
    """
    kind = family_of(bundle)
    layout, rows = LAYOUTS[kind], _rows(bundle)
    texts = tokenizer_files(bundle.tokenizer, bundle.length, ends=False, tokens=rows)
    with atomic_folder(folder) as new:
        with system_errors(folder):
            _write_weights(bundle, layout, new, rows, shard)
        write_json(new / "config.json", _config(bundle, kind, layout, rows))
        for file, content in texts.items():
            (new / file).write_text(content, encoding="utf-8")
    (folder / "manifest.json").unlink()  # files of this layout carry no hashes


def family_of(bundle: Bundle) -> str:
    """The model type of a family that has the network and the method of a model.

    Args:
        bundle: the model.

    Returns:
        A key of `LAYOUTS`; an error if no family fits.
    """
    config, backbone = bundle.config, bundle.config.backbone.config
    if config.backbone.name != "llama":
        raise UnmaskError(
            f"backbone {config.backbone.name} is not that of Llama: export it with --format huggingface"
        )
    for kind, layout in LAYOUTS.items():
        form = (layout.method, layout.qkv_bias, layout.qk_norm, layout.shift, _routed(layout))
        routed = backbone.experts and (backbone.router, backbone.expert_bias)
        own = (config.method.name, backbone.qkv_bias, backbone.qk_norm, backbone.shift, routed)
        wide = backbone.head_width not in (0, backbone.width // backbone.heads)
        scaled = backbone.scaling != "none"
        if form == own and ("head_width" in layout.settings or not (wide or scaled)):
            return kind
    raise UnmaskError(
        f"no family has a network of this form with method {config.method.name}: "
        "export it with --format huggingface"
    )


def _routed(layout: DecoderLayout) -> Any:
    """The form of the router of a family; 0 without experts."""
    return 0 if layout.experts is None else (layout.experts.router, layout.experts.bias)


def _rows(bundle: Bundle) -> int:
    """Rows of the embedding to write: without that of a MASK which is new in an autoregressive model."""
    v, backend = bundle.tokenizer.vocabulary, bundle.tokenizer.backend()
    unread = bundle.method.capabilities.causal and v.mask_id == v.size - 1
    named = backend is not None and backend.id_to_token(v.mask_id) is not None
    return v.size - (unread and not named)


def _config(bundle: Bundle, kind: str, layout: DecoderLayout, rows: int) -> dict[str, Any]:
    """The content of config.json."""
    network: Any = bundle.method.backbone
    backbone, v = network.config, bundle.tokenizer.vocabulary
    own = {here: getattr(backbone, here) for here in layout.settings}
    own["kv_heads"] = own["kv_heads"] or backbone.heads
    if not own["inner"]:
        own["inner"] = 0 if backbone.experts else network.blocks[0].mlp[2].in_features
    own["positions"] = own["positions"] or bundle.length
    if "head_width" in own:
        own["head_width"] = own["head_width"] or backbone.width // backbone.heads
    method: Any = bundle.method
    block = {} if layout.block is None else {layout.block[0]: method.block}
    ids = {"bos": v.bos_id, "eos": v.eos_id, "pad": v.pad_id}
    if layout.method != "autoregressive":
        ids["mask"] = v.mask_id
    return {
        "architectures": [layout.architecture],
        "model_type": kind,
        **{name: values[0] for name, values in layout.required.items()},
        **{there: own[here] for here, there in layout.settings.items()},
        "rms_norm_eps": backbone.epsilon,
        **block,
        **write_rope(backbone),
        **write_experts(backbone, layout.experts),
        layout.size: rows,
        "vocab_size": rows,
        layout.tied: backbone.tied_head,
        **{f"{role}_token_id": number for role, number in ids.items()},
        "torch_dtype": str(network.embedding.weight.dtype).removeprefix("torch."),
    }


def _write_weights(
    bundle: Bundle, layout: DecoderLayout, folder: Path, rows: int, shard: int
) -> None:
    """Writes the weights, in several files with an index if they are larger than one may be."""
    files: list[list[str]] = [[]]
    sizes = {name: tensor.nbytes for name, tensor in _named(bundle, layout, rows)}
    room = shard
    for name, size in sizes.items():
        if size > room and files[-1]:
            files.append([])
            room = shard
        files[-1].append(name)
        room -= size
    places = {name: number for number, names in enumerate(files) for name in names}
    titles = [f"model-{n + 1:05}-of-{len(files):05}.safetensors" for n in range(len(files))]
    titles = titles if len(files) > 1 else [_WEIGHTS]
    for number, title in enumerate(titles):
        held = {
            name: tensor.detach().cpu().contiguous().clone()
            for name, tensor in _named(bundle, layout, rows)
            if places[name] == number
        }
        safetensors.torch.save_file(held, folder / title, {"format": "pt"})
    if len(files) > 1:
        index = {name: titles[number] for name, number in places.items()}
        total = {"total_size": sum(sizes.values())}
        write_json(folder / f"{_WEIGHTS}.index.json", {"metadata": total, "weight_map": index})


def _named(bundle: Bundle, layout: DecoderLayout, rows: int) -> Iterator[tuple[str, Tensor]]:
    """The parameters of a family, which are parts of those here."""
    backbone: Any = bundle.method.backbone
    own, config = backbone.state_dict(), backbone.config
    for here, names, stacks in stored_names(layout, dataclasses.asdict(config)):
        tensor = own[here]
        if here in ("embedding.weight", "head.weight"):
            tensor = tensor[:rows]
        if stacks:
            tensor = tensor.flatten(0, 1)
        if ".qkv." in here and len(names) == 3:
            attention = backbone.blocks[int(here.split(".")[1])].attention
            queries_and_keys, values = attention.sections
            sizes = [queries_and_keys - values, values, values]
        else:
            sizes = [len(tensor) // len(names)] * len(names)
        yield from zip(names, tensor.split(sizes), strict=True)

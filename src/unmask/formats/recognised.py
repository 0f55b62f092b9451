"""Facts about a model at a path: its format, method and network, without its weights if possible."""

from dataclasses import fields
from typing import Any

from unmask import shipped
from unmask.bundle import Bundle
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.files.hub import hub_name
from unmask.formats.foreign import hub_config
from unmask.formats.foreign_format import ForeignFormat
from unmask.formats.format import FORMATS, format_of
from unmask.formats.read import download, read_bundle

_GIB = 2**30


def recognised(source: str) -> dict[str, str]:
    """Recognises the model in a folder, a file or under a hub name; foreign weights are not read.

    Args:
        source: the path or the name.

    Returns:
        Facts by name, for people.
    """
    path = download(source) if hub_name(source) is not None else shipped.locate(source)
    kind = format_of(path)
    if kind is None or not issubclass(kind, ForeignFormat):
        bundle = read_bundle(path)
        return {"format": FORMATS.name_of(format_of(path)), **_of_bundle(bundle)}
    parts, tokenizer = kind.outline(path)
    sections, count = parts.sections, sum(tensor.numel() for tensor in parts.weights.values())
    return {
        "format": FORMATS.name_of(kind),
        "type": str((hub_config(path) or {}).get("model_type", path.suffix.removeprefix("."))),
        **_facts(sections["method"], sections["backbone"], count),
        **_of_tokenizer(tokenizer),
        **{name: str(value) for name, value in parts.defaults.items()},
    }


def _of_bundle(bundle: Bundle) -> dict[str, str]:
    config = bundle.config
    count = sum(parameter.numel() for parameter in bundle.method.parameters())
    method, backbone = (
        {"name": choice.name}
        | {each.name: getattr(choice.config, each.name) for each in fields(choice.config)}
        for choice in (config.method, config.backbone)
    )
    return _facts(method, backbone, count) | _of_tokenizer(bundle.tokenizer)


def _facts(method: dict[str, Any], backbone: dict[str, Any], count: int) -> dict[str, str]:
    """Facts of the sections of a configuration."""
    shape = [f"{backbone[name]} {name}" for name in ("width", "depth", "heads") if name in backbone]
    attention = "causal" if backbone.get("causal") else "full"
    found = {
        "method": method["name"],
        "network": ", ".join([str(backbone["name"]), *shape]),
        "parameters": f"{count / 1e6:,.1f}M, {4 * count / _GIB:.2f} GiB in fp32",
    }
    if backbone["name"] == "llama":
        blocks = method.get("block", 0)
        found["attention"] = f"blocks of {blocks}" if blocks > 0 else attention
        found["logits"] = "of the next token, shifted" if backbone.get("shift") else "of the token"
        if method["name"] == "autoregressive":
            found["logits"] = "of the next token"
    if backbone.get("positions"):
        found["positions"] = f"{backbone['positions']:,}"
    return found


def _of_tokenizer(tokenizer: Tokenizer) -> dict[str, str]:
    """Facts of a tokenizer."""
    v, backend = tokenizer.vocabulary, tokenizer.backend()
    name = None if backend is None else backend.id_to_token(v.mask_id)
    return {
        "tokenizer": f"{tokenizer.kind}, {v.size:,} ids with MASK",
        "MASK": f"{v.mask_id}, {name or 'no token of the tokenizer'}",
        "chat template": "no" if tokenizer.chat_template is None else "yes",
    }

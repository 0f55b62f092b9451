"""Export of a network to ONNX: tokens in, logits out, for any batch size and length."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from unmask.backbones.layers.attention_rules import causal_rule
from unmask.config.run_config import to_dict
from unmask.diffusion.parameterization import zero_masked
from unmask.errors import UnmaskError
from unmask.imports import extra
from unmask.methods.masked_diffusion import LARGEST_SIGMA
from unmask.model import Model

OPSET = 18
ALPHAS = 1001  # times from 0 to 1 at which alpha is tabulated


class Network(nn.Module):
    """Logits from tokens, and from sigma with time conditioning; the logit of MASK is -inf."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.method = model.method
        self.backbone = model.method.backbone

    def forward(
        self, tokens: Int[Tensor, "rows length"], sigma: Float[Tensor, "rows"] | None = None
    ) -> Float[Tensor, "rows length vocabulary"]:
        # explicit positions: a cached table would fix the length in the exported graph
        positions = torch.arange(tokens.shape[1])
        rule = self.method.rule or (causal_rule if self.backbone.causal else None)
        h = self.backbone.features(tokens, sigma, positions=positions, rule=rule)
        return zero_masked(self.backbone.logits(h), self.method.vocabulary.mask_id)


def export(model: Model, file: str | Path) -> None:
    """Writes the model's network to an ONNX file for onnxruntime.

    The inputs are `tokens`, and `sigma` for a network with time conditioning. The output is
    `logits`. The file's metadata holds the special ids, lengths and schedule for a sampler.
    """
    if not model.method.backbone.onnx:
        raise UnmaskError(
            f"an ONNX file cannot hold the backbone {model.config.backbone.name}: "
            "export the model without --onnx"
        )
    onnx, _ = (extra(module, "an ONNX file", "onnx") for module in ("onnx", "onnxscript"))
    path = Path(file)
    if not path.resolve().parent.is_dir():
        raise UnmaskError(f"there is no folder for {path}: make it first")
    network = Network(model).eval()
    device, serving = model.device, model.method.serving
    tokens = torch.full((2, min(7, model.length)), model.tokenizer.vocabulary.mask_id)
    rows, length = torch.export.Dim("rows"), torch.export.Dim("length")
    inputs: list[Tensor] = [tokens]
    shapes: list[dict[int, Any]] = [{0: rows, 1: length}]
    names = ["tokens"]
    if model.method.backbone.time_conditioning:
        inputs, names = [tokens, torch.ones(2)], ["tokens", "sigma"]
        shapes.append({0: rows})
    try:
        network.to("cpu")
        model.method.backbone.thaw()  # the file gets the original weights, not the inference copies
        with torch.no_grad(), _quietly():
            program = torch.onnx.export(
                network,
                tuple(inputs),
                input_names=names,
                output_names=["logits"],
                dynamic_shapes=tuple(shapes),
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
            )
    finally:
        model.method.to(device).serve(serving.dtype)
    assert program is not None
    program.model.metadata_props.update(metadata(model))
    program.save(str(path))
    proto = onnx.load(path, load_external_data=False)
    del proto.graph.value_info[
        :
    ]  # quantize_dynamic transposes weights and rejects their old shapes
    onnx.save(proto, path)


def metadata(model: Model) -> dict[str, str]:
    """Facts that a sampler needs beside the network: special ids, lengths and schedule."""
    method, v = model.method, model.tokenizer.vocabulary
    causal = method.capabilities.causal
    ids = {"mask": v.mask_id, "pad": v.pad_id, "bos": v.bos_id, "eos": v.eos_id}
    facts = {f"{role}_id": str(id) for role, id in ids.items() if id is not None}
    never = {v.pad_id, v.bos_id, v.eos_id, *model.tokenizer.labels.values()}
    facts["never_ids"] = json.dumps(sorted(id for id in never if id is not None))
    facts |= {"method": model.config.method.name, "order": "left_to_right" if causal else "any"}
    facts |= {"length": str(model.length), "shortest": "1"}
    if method.backbone.longest is not None:
        facts["longest"] = str(method.backbone.longest)
    if causal:
        # logits predict the next token; without a BOS, MASK is the input before the first token
        start = v.bos_id if method.lag else v.mask_id
        return facts | ({} if start is None else {"start_id": str(start)})
    t = torch.linspace(0, 1, ALPHAS, dtype=torch.float64)
    with torch.no_grad():
        alphas = method.schedule.alpha(t).tolist()
    return {
        **facts,
        "schedule": json.dumps(to_dict(model.config.schedule)),
        "alpha": json.dumps(alphas),  # a table, for samplers that do not implement the schedule
        "largest_sigma": str(LARGEST_SIGMA),
    }


@contextmanager
def _quietly() -> Iterator[None]:
    """Silences log lines and warnings of the exporter and its libraries."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)

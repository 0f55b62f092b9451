"""Forward pass, prefill and decoding of decoders with random weights, beside transformers (sdpa) and LLaDA's own code.

    python benchmarks/speed decoders --shapes tiny
    python benchmarks/speed decoders --shapes 0.5b 8b --device cuda --precision bf16 --reference LLaDA/generate.py

Each row has tokens a second here and there, from one process, and their ratio. In both programs the weights are the same
numbers. `decode` writes the likeliest tokens from left to right. `llada` writes blocks of 32 tokens with full attention, two
tokens a step: there by the function `generate` of LLaDA's repository, around transformers' network. `equal` is the share of
equal tokens; in bf16 two likely tokens may change places.
"""

import argparse
import gc
import json
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from benchmarks.machine import peak_gib, reset_peak, wall_seconds
from benchmarks.room import script_parser
from unmask.backbones.layers.attention_rules import full_rule
from unmask.config.run_config import from_dict
from unmask.diffusion.schedule import SCHEDULES
from unmask.formats.decoders.read_decoder import read_decoder
from unmask.formats.weights import restored
from unmask.generation.sampler_spec import read_sampler
from unmask.methods.method import Method
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import SamplingTask
from unmask.vocabulary import Vocabulary

# width, depth, heads, heads of keys and values, hidden values, tokens: Qwen2.5-0.5B, LLaDA-8B
SHAPES = {
    "tiny": (32, 2, 4, 2, 64, 300),
    "0.5b": (896, 24, 14, 2, 4864, 151936),
    "8b": (4096, 32, 32, 32, 12288, 126464),
}
BLOCK, STEPS = 32, 16
Text = Callable[[Tensor], Tensor]


def network(shape: str, positions: int, device: torch.device, dtype: torch.dtype) -> Any:
    """A network of transformers with random weights."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    sizes = dict(zip((*names, "intermediate_size", "vocab_size"), SHAPES[shape], strict=True))
    ids = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
    config = transformers.LlamaConfig(**sizes, **ids, max_position_embeddings=positions)
    config._attn_implementation = "sdpa"
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = transformers.LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(before)
    generator = torch.Generator(device).manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:  # logits that differ clearly, so that few tokens are nearly equal
            std = 1.0 if "embed" in name else 2 / parameter.shape[1] ** 0.5
            parameter.data.normal_(0, std, generator=generator)
    model.lm_head.weight.data[-1] = 0  # MASK is never the likeliest token, as in a trained model
    return model.eval().requires_grad_(False)


def method(there: Any, name: str, dtype: torch.dtype) -> Method:
    """A method here with the weights of a network of transformers."""
    parts = read_decoder(there.config.to_dict(), there.state_dict(), "random weights")
    sections = dict(parts.sections)
    if name != sections["method"]["name"]:
        sections["method"] = {"name": name}
    sections["backbone"] = {**sections["backbone"], "causal": name == "autoregressive"}
    weights = {f"backbone.{key}": tensor for key, tensor in parts.weights.items()}
    vocabulary = Vocabulary(parts.size, parts.size - 1)
    data = {"length": parts.length, "tokenizer": {"kind": "bytes"}}
    config = from_dict({**sections, "data": data})
    here = restored(config, vocabulary, weights, Path("random weights"), taken=True)
    here.eval().serve(dtype)
    return here


def text(here: Method, spec: str, new: int) -> Text:
    """A function from prompts to prompts with their texts at temperature 0, by a sampler here."""
    mask_id, schedule = here.vocabulary.mask_id, SCHEDULES.build("loglinear")
    sampler = read_sampler(spec, {}, new, "ancestral")

    def write(x: Tensor) -> Tensor:
        canvas = Canvas(
            torch.cat([x, torch.full_like(x[:, :1], mask_id).expand(-1, new)], 1), mask_id
        )
        task = SamplingTask(list(range(len(x))), schedule, strategy="deterministic", watched=False)
        return last_frame(sampler.generate(here.denoiser(), canvas, task), canvas).tokens

    return write


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """The least seconds of some work, after two calls that compile and record graphs."""
    for _ in range(2):
        work()
    return min(wall_seconds(work) for _ in range(repeats))


def compared(
    row: dict[str, Any], tokens: int, ours: Text, theirs: Text, x: Tensor, new: int = 0
) -> None:
    """Prints a row with both rates."""
    found: dict[str, Tensor] = {}
    for name, function in (("unmask", ours), ("reference", theirs)):
        reset_peak()
        spent = seconds(lambda f=function, n=name: found.update({n: f(x)}), 1 if new else 5)
        row[name] = round(tokens / spent)
        row[f"{name}_gib"] = peak_gib()
    row["ratio"] = round(row["unmask"] / row["reference"], 2)
    first, second = found.values()
    if new:
        row["equal"] = round((first[:, -new:] == second[:, -new:]).double().mean().item(), 3)
    else:
        row["error"] = round((first.float() - second.float()).abs().max().item(), 5)
    print(json.dumps(row), flush=True)


class WithFullAttention:
    """A network of transformers without its causal mask, in the form that LLaDA's `generate` calls."""

    def __init__(self, there: Any) -> None:
        self.there, self.device = there, there.device

    def __call__(self, x: Tensor, attention_mask: Tensor | None = None) -> Any:
        mask = torch.zeros(1, 1, x.shape[1], x.shape[1], dtype=self.there.dtype, device=x.device)
        return self.there(x, attention_mask=mask.expand(len(x), -1, -1, -1), use_cache=False)


def causal(shape: str, there: Any, options: argparse.Namespace, dtype: torch.dtype) -> None:
    """Forward pass, prefill and decoding of the causal model."""
    here = method(there, "autoregressive", dtype)
    backbone: Any = here.backbone

    def forward(x: Tensor) -> Tensor:
        with here.arithmetic():
            return backbone.logits(backbone.features(x))

    def prefill(x: Tensor) -> Tensor:
        last = torch.arange(1, len(x) + 1, device=x.device) * x.shape[1] - 1
        with here.arithmetic():
            state = backbone.new_state(len(x), x.shape[1] + options.new)
            return backbone.logits(backbone.features(x, state=state, at=last))

    settings = {"do_sample": False, "max_new_tokens": options.new, "min_new_tokens": options.new}

    def decode(x: Tensor) -> Tensor:
        return there.generate(x, attention_mask=torch.ones_like(x), **settings)

    for batch in options.batches:
        x = torch.randint(1, SHAPES[shape][-1] - 1, (batch, options.length), device=there.device)
        row = {"shape": shape, "batch": batch, "length": options.length}
        if batch == min(options.batches):  # logits of all tokens of more rows are gigabytes
            compared(
                {"work": "forward", **row},
                x.numel(),
                forward,
                lambda x: there(x, use_cache=False).logits,
                x,
            )
        compared(
            {"work": "prefill", **row},
            x.numel(),
            prefill,
            lambda x: there(x, use_cache=True, logits_to_keep=1).logits[:, -1],
            x,
        )
        prompt = x[:, : options.prompt]
        row["length"] = options.new
        compared(
            {"work": "decode", **row},
            batch * options.new,
            text(here, "left_to_right", options.new),
            decode,
            prompt,
            options.new,
        )


def masked(shape: str, there: Any, options: argparse.Namespace, dtype: torch.dtype) -> None:
    """Forward pass with full attention, and texts in blocks as LLaDA writes them."""
    here, around = method(there, "mdlm", dtype), WithFullAttention(there)
    backbone: Any = here.backbone
    theirs = _script(options.reference).generate if options.reference else None

    def forward(x: Tensor) -> Tensor:
        with here.arithmetic():
            return backbone.logits(backbone.features(x, rule=full_rule))

    spec = f"blocks:block={BLOCK},inner=(confidence:steps={STEPS},counts=even)"
    given = {
        "steps": STEPS * options.new // BLOCK,
        "gen_length": options.new,
        "block_length": BLOCK,
    }
    for batch in options.batches:
        x = torch.randint(1, SHAPES[shape][-1] - 1, (batch, options.length), device=there.device)
        row = {"shape": shape, "batch": batch}
        if batch == min(options.batches):
            work = {"work": "full forward", **row, "length": options.length}
            compared(work, x.numel(), forward, lambda x: around(x).logits, x)
        if theirs is not None:
            compared(
                {"work": "llada", **row, "length": options.new},
                batch * options.new,
                text(here, spec, options.new),
                lambda x: theirs(around, x, mask_id=here.vocabulary.mask_id, **given),
                x[:, : options.prompt],
                options.new,
            )


def _script(path: Path) -> Any:
    spec = spec_from_file_location("reference_generate", path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def works(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """The shapes and their parts."""
    for shape in options.shapes:
        yield from ((shape, part) for part in (causal, masked))


@torch.inference_mode()
def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["tiny"])
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument(
        "--length", type=int, default=1024, help="tokens of a forward pass and of prefill"
    )
    parser.add_argument("--prompt", type=int, default=128, help="tokens before a text")
    parser.add_argument("--new", type=int, default=64, help="tokens of a text, in blocks of 32")
    parser.add_argument("--reference", type=Path, metavar="FILE", help="generate.py of LLaDA")
    options = parser.parse_args()
    device = torch.device(options.device)
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    for shape, part in works(options):
        there = network(shape, options.length + options.new, device, dtype)
        part(shape, there, options, dtype)
        del there
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()

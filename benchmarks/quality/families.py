"""Families of diffusion models beside their own code: logits, texts at temperature 0, and folders that are written back.

`--reference FOLDER` measures. It holds checkouts of the projects that `family_references.py` names, under their names, and
needs transformers 4.57. The models are tiny and random (`family_models.py`).
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import torch

import unmask
from benchmarks.quality.family_models import MASK, SIZE, write_family
from benchmarks.room import script_parser
from benchmarks.rows import Report, markdown, read_rows
from unmask.backbones.layers.attention_rules import BlockRule, full_rule
from unmask.formats.format import FORMATS
from unmask.generation.sampler_spec import read_sampler
from unmask.samplers.core.canvas import Canvas, Frame, last_frame
from unmask.samplers.core.token_sampler import SamplingTask

ROWS = Path(__file__).with_name("families.jsonl")


@dataclass(frozen=True)
class Case:
    """A decoding of a family: the sampler here, and the function with its settings there."""

    family: str
    decoding: str
    prompt: int  # tokens
    new: int
    sampler: str
    function: str
    settings: dict[str, Any] = field(default_factory=dict)
    top_p: float | None = None

    @property
    def row(self) -> str:
        """Name of the stored row."""
        return f"{self.family}: {self.decoding}" + (f", top_p {self.top_p}" if self.top_p else "")


def _even(fields: str = "", block: str = "") -> str:
    return f"blocks:{block}inner=(confidence:counts=even{fields})"


def _fast(threshold: float) -> str:
    inner = f"inner=(blocks:block=8,aligned=true,inner=threshold:threshold={threshold})"
    return f"blocks:first=true,{inner}"


_B8 = {"block_length": 8}
CASES = (
    Case(
        "llada",
        "low confidence",
        12,
        24,
        _even(",steps=4,drawn=true", "block=8,"),
        "llada",
        {**_B8, "steps": 12},
    ),
    Case(
        "llada",
        "low confidence, 3 steps of 8 tokens",
        9,
        16,
        _even(",steps=3", "block=8,"),
        "llada",
        {**_B8, "steps": 6},
    ),
    Case(
        "llada",
        "one block",
        9,
        16,
        "confidence:steps=16,counts=even",
        "llada",
        {"block_length": 16, "steps": 16},
    ),
    Case(
        "llada",
        "threshold of Fast-dLLM",
        12,
        24,
        "blocks:block=8,inner=threshold:threshold=0.2",
        "fast_dllm",
        {**_B8, "steps": 24, "threshold": 0.2},
    ),
    Case(
        "Dream", "maskgit_plus", 10, 20, "confidence:steps=12,counts=share", "dream", {"steps": 12}
    ),
    Case("Dream", "topk_margin", 10, 20, "margin:steps=20,counts=share", "dream", {"steps": 20}),
    Case("Dream", "entropy", 10, 20, "entropy:steps=7,counts=share", "dream", {"steps": 7}),
    Case(
        "Dream",
        "entropy",
        10,
        20,
        "entropy:steps=7,counts=share,sharpened=true",
        "dream",
        {"steps": 7},
        top_p=0.95,
    ),
    Case("sdar", "low_confidence_static", 10, 22, _even(), "sdar", {"denoising_steps": 4}),
    Case(
        "sdar",
        "low_confidence_dynamic",
        8,
        24,
        _even(",threshold=0.2"),
        "sdar",
        {"confidence_threshold": 0.2},
    ),
    Case("llada2_moe", "threshold", 40, 56, _even(",threshold=0.2"), "llada2", {"threshold": 0.2}),
    Case("llada2_moe", "8 steps", 32, 64, _even(",steps=8"), "llada2", {"steps": 8}),
    Case("Fast_dLLM_Qwen", "one token a step", 40, 56, _fast(1), "fast_dllm_v2", {"threshold": 1}),
    Case("Fast_dLLM_Qwen", "threshold", 64, 64, _fast(0.2), "fast_dllm_v2", {"threshold": 0.2}),
)


def prompts(tokens: int, rows: int = 2) -> torch.Tensor:
    """Random prompts."""
    return torch.randint(3, MASK, (rows, tokens), generator=torch.Generator().manual_seed(tokens))


@torch.inference_mode()
def texts(model: unmask.Model, case: Case) -> Frame:
    """The prompts with their texts at temperature 0."""
    x = prompts(case.prompt)
    canvas = Canvas(torch.cat([x, torch.full((len(x), case.new), MASK)], 1), MASK)
    seeds = list(range(len(x)))
    task = SamplingTask(seeds, model.method.schedule, temperature=0.0, top_p=case.top_p)
    sampler = read_sampler(case.sampler, {}, case.new, "ancestral")
    return last_frame(sampler.generate(model.method.denoiser(), canvas, task), canvas)


def noisy() -> torch.Tensor:
    """Rows of tokens and masks."""
    x = prompts(64)
    return x.masked_fill(
        torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) < 0.3, MASK
    )


@torch.no_grad()
def logits(model: unmask.Model) -> torch.Tensor:
    """Logits of noisy rows, under the attention of the family."""
    block = getattr(model.method, "block", 0)
    backbone: Any = model.method.backbone
    rule = BlockRule(block) if block else full_rule
    return backbone.logits(backbone.features(noisy(), rule=rule))[..., :SIZE]


def measure(reference: Path, report: Report) -> None:
    """Compares all families with their own code."""
    from benchmarks.quality import family_references as theirs  # it imports that code

    about = {"date": str(date.today()), "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as scratch:
        for family in dict.fromkeys(case.family for case in CASES):
            folder, back = Path(scratch) / family, Path(scratch) / f"{family}, written back"
            write_family(folder, family)
            model = unmask.load(folder)
            FORMATS["decoder"].write(model, back)
            ours, found = logits(model), []
            for each in (folder, back):
                network = theirs.load(reference, family, each)
                found.append((theirs.logits(network, family, noisy()) - ours).abs().max().item())
            row = {
                "row": f"{family}: logits",
                "family": family,
                "read": found[0],
                "written": found[1],
            }
            report.write(row | about)
            network = theirs.load(reference, family, folder)
            for case in (one for one in CASES if one.family == family):
                frame, x = texts(model, case), prompts(case.prompt)
                wanted = theirs.text(reference, network, case, x)[:, : x.shape[1] + case.new]
                row = {
                    "row": case.row,
                    "family": family,
                    "sampler": case.sampler,
                    "equal": torch.equal(wanted, frame.tokens),
                    "calls": frame.calls.tolist(),
                    "ids": wanted[:, x.shape[1] :].tolist(),
                }
                report.write(row | about)


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """The lines of the table: a line for each family."""
    lines = []
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        found = next(row for row in own if "read" in row)
        equal = [row["row"].partition(": ")[2] for row in own if row.get("equal")]
        unequal = sum(row.get("equal") is False for row in own)
        errors = (f"{found[name]:.1g}" for name in ("read", "written"))
        lines.append([f"`{family}`", *errors, "; ".join(equal), unequal])
    head = ["family", "logits", "written back", "decoding with equal texts", "unequal"]
    yield from markdown(head, lines)


def main() -> None:
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--reference", type=Path, metavar="FOLDER", help="checkouts of the families' code")
    add("--to", type=Path, metavar="FILE", help="rows are appended to this file")
    add("--table", type=Path, default=ROWS, metavar="FILE", help="stored rows")
    options = parser.parse_args()
    if options.reference:
        measure(options.reference, Report(options.to))
    else:
        print("\n".join(table(read_rows(options.table))))

"""Likelihood of the texts that a sampler writes, if its steps depend on the tokens alone (arXiv 2603.01367)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.diffusion.categorical import check_sharpness
from unmask.errors import UnmaskError
from unmask.likelihood.estimators import ByRow, CountedBatch, Estimator
from unmask.methods.method import Method
from unmask.randomness import RowStream
from unmask.runtime.device import to_device
from unmask.samplers.core.canvas import Canvas, last_frame
from unmask.samplers.core.token_sampler import GivenText, SamplingTask
from unmask.samplers.sampler import SAMPLERS, Sampler


@dataclass(frozen=True, eq=False)
class DecodingRule(Estimator):
    """Exact likelihood of a decoding rule: a sampler that decides by the tokens where it writes next.

    A text then has one path. The sampler takes it, with the tokens of the text in place of draws,
    and the log-probabilities of the tokens add up. Tokens of one step are independent. So the rule
    has a distribution of its own, which is not the one that the method's bound is about.
    """

    method: Method
    sampler: Sampler
    temperature: float = 1.0

    certificate = "decoding"

    def __post_init__(self) -> None:
        check_sharpness(self.temperature, None, None)
        if not self.temperature:
            raise UnmaskError(
                "at temperature 0 a rule writes one text only: give a temperature above 0"
            )
        if not self.sampler.one_path:
            raise UnmaskError(
                f"the sampler {SAMPLERS.name_of(self.sampler)} writes at random positions, so a text has "
                "many paths: give a rule without noise, such as confidence, margin, entropy or "
                "left_to_right; or give orders K for a bound over random orders"
            )
        if self.method.backbone.pairs:
            raise UnmaskError(
                "a model of pairs has no likelihood of a rule: give order left_to_right"
            )

    @property
    def of(self) -> str:
        rule = f"texts of the sampler {SAMPLERS.name_of(self.sampler)}"
        if steps := getattr(self.sampler.unwrapped(), "steps", 0):
            rule += f", {steps} steps"
        return rule if self.temperature == 1 else f"{rule} at temperature {self.temperature:g}"

    def terms(self, rows: CountedBatch, streams: Sequence[RowStream]) -> dict[str, ByRow]:
        lengths = rows.valid.sum(1)
        total = torch.zeros(len(rows.x), dtype=torch.float64)
        for length in lengths.unique().tolist():  # a sampler sees no padding
            chosen = (lengths == length).nonzero()[:, 0]
            part = rows.part(chosen)
            if not part.valid[:, :length].all():
                raise UnmaskError("padding stands before a text, which no sampler writes")
            total[chosen] = self._log_p(part.x[:, :length], part.scored[:, :length]).cpu()
        return {"nll": -total}

    def _log_p(self, x: Tensor, scored: Tensor) -> ByRow:
        """log p of the scored tokens of each row, given the others."""
        device, mask_id = self.method.device, self.method.vocabulary.mask_id
        x, scored = to_device(x, device), to_device(scored, device)
        canvas = Canvas(x.masked_fill(scored, mask_id), mask_id)
        text = GivenText(x, torch.zeros(x.shape, dtype=torch.float64, device=device))
        task = SamplingTask(
            [0] * len(x), self.method.schedule, self.temperature, watched=False, text=text
        )
        frames = self.sampler.generate(self.method.denoiser(), canvas, task)
        assert torch.equal(last_frame(frames, canvas).tokens, x)
        return text.log_p.sum(1)

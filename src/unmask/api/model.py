"""A trained model: what a user holds."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

from unmask.config import RunConfig, to_dict
from unmask.data import Rows, Tokenizer, load_data, parse_blanks, rows_from
from unmask.errors import UnmaskError
from unmask.evaluation import Bound, likelihood
from unmask.methods import Method
from unmask.randomness import row_seeds
from unmask.samplers import (
    SAMPLERS,
    Canvas,
    LeftToRight,
    Plan,
    Sampler,
    SemiAutoregressive,
    last_frame,
)
from unmask.training import atomic_folder, write_json, write_weights


@dataclass(frozen=True)
class Result:
    """A generated text: `str()` of it is the text; `calls` counts the network calls it took."""

    text: str
    ids: list[int]
    calls: int
    seconds: float  # of the batch that it was made in
    seed: int  # makes this text again, alone

    def __str__(self) -> str:
        return self.text


class Model:
    """A trained model with its tokenizer: writes, fills gaps, and measures text."""

    def __init__(self, method: Method, tokenizer: Tokenizer, config: RunConfig) -> None:
        self.method = method.eval()
        self.tokenizer = tokenizer
        self.config = config

    @property
    def length(self) -> int:
        """The longest text that the network was trained on, in tokens."""
        return self.config.data.length

    def generate(
        self,
        prompts: str | Sequence[str] | None = None,
        *,
        n: int = 1,
        length: int | None = None,
        steps: int | None = None,
        sampler: str | Sampler | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | Sequence[int] = 0,
        batch: int = 64,
    ) -> list[Result]:
        """Writes `n` texts of `length` tokens after each prompt, or from nothing.

        `steps` is the number of denoising steps (as many as tokens unless given). A text longer than
        the model is written in windows that slide over it.
        """
        if prompts is None or isinstance(prompts, str):
            prompts = [prompts or ""]
        if not prompts:
            return []
        length = self.length if length is None else length
        if length < 2:
            raise UnmaskError(f"length must be 2 or more, not {length}")
        prefixes = [self._framed(self.tokenizer.encode(prompt)) for prompt in prompts]
        for prompt, ids in zip(prompts, prefixes, strict=True):
            if len(ids) >= length:
                raise UnmaskError(
                    f"the prompt {prompt[:20]!r} has {len(ids)} tokens and leaves no room in a length "
                    f"of {length}: raise length"
                )
        mask = self.tokenizer.vocabulary.mask_id
        canvases = [ids + [mask] * (length - len(ids)) for ids in prefixes for _ in range(n)]
        fixed = [len(ids) for ids in prefixes for _ in range(n)]
        chosen = self._sampler(sampler, steps, length)
        # training rows end in EOS; a window in the middle of a long text must not
        eos = self.tokenizer.vocabulary.eos_id
        banned = (eos,) if length > self.length and eos is not None else ()
        plan = self._plan(seed, len(canvases), temperature, top_k, top_p, banned)
        results = self._run(chosen, canvases, plan, batch)
        return [self._until_end(*pair) for pair in zip(results, fixed, strict=True)]

    def fill(
        self,
        text: str,
        *,
        n: int = 1,
        steps: int | None = None,
        sampler: str | Sampler | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | Sequence[int] = 0,
        batch: int = 64,
    ) -> list[Result]:
        """Fills the gaps of a text, `[MASK]` one token and `[MASK:4]` four, in `n` ways."""
        if self.method.order != "any":
            raise UnmaskError(
                "an autoregressive model cannot see what follows a gap: fill with a diffusion model"
            )
        ids = parse_blanks(text, self.tokenizer)
        v = self.tokenizer.vocabulary
        gaps = ids.count(v.mask_id)
        if not gaps:
            raise UnmaskError("the text has no gap: write [MASK] or [MASK:4] where to fill")
        ids = self._framed(ids) + ([] if v.eos_id is None else [v.eos_id])
        if len(ids) > self.length:
            raise UnmaskError(f"the text has {len(ids)} tokens and the model reads {self.length}")
        chosen = self._sampler(sampler, gaps if steps is None else steps, len(ids))
        # a gap is words: it holds no beginning and no end of a text
        banned = tuple(i for i in (v.bos_id, v.eos_id, v.pad_id) if i is not None)
        plan = self._plan(seed, n, temperature, top_k, top_p, banned)
        return self._run(chosen, [ids] * n, plan, batch)

    def perplexity(
        self,
        data: Sequence[str] | str | None = None,
        *,
        draws: int = 8,
        seed: int = 0,
        packing: str | None = None,
    ) -> Bound:
        """How well the model predicts texts, a data source, or (None) its own validation text.

        Texts are measured whole (`split`), a source as the training text was packed, unless `packing`
        says otherwise.
        """
        return likelihood(self.method, self._rows(data, packing), draws=draws, seed=seed)

    def save(self, folder: str | Path) -> None:
        """Writes the model without its training state to a folder that `load` reads."""
        target = Path(folder)
        if target.exists() and not (target / "model.json").exists():
            raise UnmaskError(f"{target} is there already and is no exported model")
        with atomic_folder(target) as new:
            write_weights(new, self.method.state_dict())
            write_json(new / "model.json", {"format": 1, "config": to_dict(self.config)})
            self.tokenizer.save(new / "tokenizer")

    def _rows(self, data: Sequence[str] | str | None, packing: str | None) -> Rows:
        if packing is None:
            packing = self.config.data.packing if data is None or isinstance(data, str) else "split"
        config = replace(self.config.data, packing=packing)
        if data is None:
            return load_data(config, self.tokenizer).valid
        return rows_from(data, self.tokenizer, config)

    def _framed(self, ids: list[int]) -> list[int]:
        """A text as training rows begin."""
        bos = self.tokenizer.vocabulary.bos_id
        return ids if bos is None else [bos, *ids]

    def _sampler(self, sampler: str | Sampler | None, steps: int | None, length: int) -> Sampler:
        """The sampler that was asked for, in windows where the text is longer than the model."""
        left_to_right = self.method.order == "left_to_right"
        windows = length > self.length or sampler == "semi_autoregressive"
        if sampler is None or sampler == "semi_autoregressive":
            sampler = "left_to_right" if left_to_right else "ancestral"
        if isinstance(sampler, str):
            steps = min(length, self.length) if steps is None else steps
            names = {field.name for field in fields(SAMPLERS[sampler])}  # type: ignore[arg-type]
            sampler = SAMPLERS.build(sampler, **({"steps": steps} if "steps" in names else {}))
        inner = sampler.inner if isinstance(sampler, SemiAutoregressive) else sampler
        if left_to_right and not isinstance(inner, LeftToRight):
            raise UnmaskError("an autoregressive model has one sampler: left_to_right")
        return (
            SemiAutoregressive(self.length, inner=sampler)
            if windows and inner is sampler
            else sampler
        )

    def _plan(
        self,
        seed: int | Sequence[int],
        rows: int,
        temperature: float,
        top_k: int | None,
        top_p: float | None,
        banned: tuple[int, ...],
    ) -> Plan:
        try:
            seeds = row_seeds(seed, rows)
        except ValueError as error:
            raise UnmaskError(str(error)) from None
        return Plan(seeds, self.method.schedule, temperature, top_k, top_p, banned=banned)

    def _run(
        self, sampler: Sampler, canvases: list[list[int]], plan: Plan, batch: int
    ) -> list[Result]:
        if not canvases:
            raise UnmaskError("n must be 1 or more")
        if batch < 1:
            raise UnmaskError(f"batch must be 1 or more, not {batch}")
        results: list[Result] = []
        for first in range(0, len(canvases), batch):
            part = slice(first, first + batch)
            results += self._batch(sampler, canvases[part], plan.rows(plan.seeds[part]))
        return results

    @torch.inference_mode()
    def _batch(self, sampler: Sampler, canvases: list[list[int]], plan: Plan) -> list[Result]:
        start = time.perf_counter()
        device = next(self.method.parameters()).device
        tokens = torch.tensor(canvases, device=device)
        canvas = Canvas(tokens, self.tokenizer.vocabulary.mask_id)
        frame = last_frame(sampler.generate(self.method.denoiser(), canvas, plan), canvas)
        seconds = time.perf_counter() - start
        return [
            Result(self.tokenizer.decode(ids), ids, calls, seconds, seed)
            for ids, calls, seed in zip(
                frame.tokens.tolist(), frame.calls.tolist(), plan.seeds, strict=True
            )
        ]

    def _until_end(self, result: Result, fixed: int) -> Result:
        """The text up to the first EOS behind the prompt."""
        eos = self.tokenizer.vocabulary.eos_id
        written = result.ids[fixed:]
        if eos not in written:
            return result
        return replace(result, text=self.tokenizer.decode(result.ids[: fixed + written.index(eos)]))

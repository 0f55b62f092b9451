"""A trained model: what a user holds."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from unmask.api.canvases import LONGEST, Edit, Job, answering, filling, writing
from unmask.api.editing import edited
from unmask.api.guidance import first_tokens
from unmask.api.running import Result, Running
from unmask.api.sampling import Sampling
from unmask.api.saving import checked_defaults, write_model
from unmask.api.watching import watch
from unmask.config.run import RunConfig
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.errors import UnmaskError
from unmask.methods.method import Method
from unmask.samplers.core.canvas import Frame

if TYPE_CHECKING:
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.estimate import How
    from unmask.likelihood.token_orders import Order

Prompts = str | Sequence[str] | None
Length = int | Literal["auto"] | None
_CLOCK = ("sampler", "steps")
_SIZE = ("length", "steps")
_WRITING = ("length", "stop")  # what `generate` takes beside the fields of Sampling
_EDITING = ("remask", "remask_span", "remask_uncertain")  # and `edit`


class Model:
    """A trained model with its tokenizer: writes, fills gaps, edits, and measures text.

    `generate`, `fill`, `edit` and `stream` take the fields of `Sampling` as options: n, sampler, steps,
    grid, temperature, top_k, top_p, strategy, seed, regex, ban, include, label, guidance, and more.
    """

    def __init__(
        self,
        method: Method,
        tokenizer: Tokenizer,
        config: RunConfig,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method.eval()
        self.tokenizer = tokenizer
        self.config = config
        # of what `generate` is not told, and how `fill` and `edit` choose among tokens
        self.defaults = checked_defaults(defaults or {})

    @property
    def length(self) -> int:
        """The longest text that the network was trained on, in tokens."""
        return self.config.data.length

    @property
    def conditional(self) -> bool:
        """Whether it was trained on pairs: a prompt is then a source, and the text its target."""
        return self.config.data.paired

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.method.parameters()).device

    def generate(
        self,
        prompts: Prompts = None,
        *,
        length: Length = None,
        stop: bool = True,
        **options: Any,
    ) -> list[Result]:
        """Writes `n` texts after each prompt, or from nothing, to their end or `length` tokens in all.

        A text longer than the model is written in windows that slide over it; "auto" goes on until the
        model ends the text. `stop=False` writes all of the length, with no end. What is not given is as
        the model's `defaults` say, or else the length that it was trained on and as many steps as tokens.

        To a conditional model a prompt is a source, and the text is the target that it writes for it.
        """
        if _none(prompts):
            self.usual(options)  # mistakes in them are told
            return []
        return self._writing(prompts, length=length, stop=stop, **options).results()

    def fill(self, text: str | Sequence[int], **options: Any) -> list[Result]:
        """Fills the gaps of a text, `[MASK]` one token and `[MASK:4]` four, in `n` ways.

        A text may be given as ids too: its gaps are then those of the vocabulary's mask id.
        """
        return self._filling(text, **options).results()

    def edit(
        self,
        text: str,
        *,
        remask: float | None = None,
        remask_span: tuple[int, int] | None = None,
        remask_uncertain: int | None = None,
        **options: Any,
    ) -> list[Result]:
        """Masks part of a text and writes it again, in `n` ways; the rest stays as it is.

        `remask` is a share of its tokens, `remask_span` (start, stop) in tokens, `remask_uncertain`
        how many of the tokens that the model finds least likely. Without them a sampler that revises a
        finished text, such as gibbs, may change any of it.
        """
        edit = {"remask": remask, "remask_span": remask_span, "remask_uncertain": remask_uncertain}
        return self._editing(text, **edit, **options).results()

    def stream(
        self,
        prompts: Prompts = None,
        *,
        fill: str | Sequence[int] | None = None,
        edit: str | None = None,
        **options: Any,
    ) -> Iterator[Frame]:
        """Every step of `generate`, or of filling or editing a text, as it is taken; with their options."""
        return self._running(prompts, fill, edit, options).frames()

    def texts(
        self,
        prompts: Prompts = None,
        *,
        fill: str | Sequence[int] | None = None,
        edit: str | None = None,
        **options: Any,
    ) -> Iterator[Result]:
        """What `generate`, `fill` or `edit` returns, text by text, each as soon as it is finished.

        A CPU then has no more texts side by side than keep it busy.
        """
        if fill is None and edit is None and _none(prompts):
            return iter(self.generate(prompts, **options))
        return self._running(prompts, fill, edit, options).one_by_one()

    def watch(self, frames: Iterable[Frame]) -> Frame | None:
        """Shows the frames of `stream` as they come, in a terminal or below the cell of a notebook.

        Masked tokens are blocks; new ones are green, yellow or red by the network's confidence in them.
        Returns the last frame.
        """
        return watch(frames, self.tokenizer, conditional=self.conditional)

    def perplexity(
        self,
        data: Sequence[str | tuple[str, str]] | str | None = None,
        *,
        draws: int = 8,
        seed: int = 0,
        packing: str | None = None,
        estimator: str | None = None,
        steps: int | None = None,
        order: "Order | None" = None,
        orders: int | None = None,
        shard: tuple[int, int] = (0, 1),
        batch: int = 32,
    ) -> "Bound":
        """How well the model predicts texts, a data source, or (None) its own validation text.

        Texts are measured whole (`split`), a source as the training text was packed, unless `packing`
        says otherwise. The model's own bound unless told otherwise: by an `estimator` (fixed_count,
        stratified, importance, uniform), of `steps` steps (0: continuous time), by the chain rule in
        an `order` (left_to_right, right_to_left, random or a list of places), over K random `orders`,
        or as pseudo-likelihood (estimator pseudo). `shard` (i, n) measures the i-th of n parts, whose
        bounds add up (`+`) to the whole. The `batch` changes nothing but time and memory.
        A conditional model measures pairs, (source, target): the target given the source; `left_out`
        pairs were too long for a row.
        """
        from unmask.api.predicting import predicted  # what measures is no part of what writes

        how: How = {"estimator": estimator, "steps": steps, "order": order, "orders": orders}
        return predicted(self, data, packing, how, draws=draws, seed=seed, shard=shard, batch=batch)

    def usual(self, options: Mapping[str, Any], length: Length = None) -> tuple[Sampling, Length]:
        """How `generate` writes a text, and how long: what is not given is as the `defaults` say."""
        usual = dict(self.defaults)
        most = usual.pop("length", None)
        given = {name: value for name, value in options.items() if value is not None}
        if "sampler" in given:  # which has a clock of its own
            usual = {name: usual[name] for name in usual if name not in _CLOCK}
        return Sampling.of(usual | given, _WRITING), most if length is None else length

    def choosing(self, options: Mapping[str, Any], others: Collection[str] = ()) -> Sampling:
        """How `fill` and `edit` write: as the `defaults` say, if not told, but in steps of their own."""
        usual = {name: self.defaults[name] for name in self.defaults if name not in _SIZE}
        given = {name: value for name, value in options.items() if value is not None}
        return Sampling.of(usual | given, others)

    def save(
        self,
        folder: str | Path,
        precision: str = "fp32",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the model without its training state to a folder that `load` reads.

        In `precision` bf16 the weights are rounded and take half the room. `defaults` are added to its
        own: options of `generate` (length, sampler, steps, temperature, top_k, top_p) as it takes them
        unless told otherwise.
        """
        usual = {**self.defaults, **(defaults or {})}
        write_model(folder, self.method, self.tokenizer, self.config, usual, precision)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Writes the model in the layout of the Hugging Face hub, for `load` and for transformers.

        `shard` is the size beyond which weights go into several files ("5GB"), `card` the text of the
        model card or what `unmask card` measured, `licence` what the card says of it. Files that the run
        read are told by their names, not by where they lie.
        """
        _hub().write(self, folder, **options)

    def push_to_hub(self, name: str, *, private: bool = False, **options: Any) -> str:
        """Writes the model to the hub as "owner/name", and returns the address.

        Takes the options of `save_pretrained`, a `revision` (a branch) and a `commit_message`.
        """
        address: str = _hub().push(self, name, private, **options)
        return address

    def _running(
        self,
        prompts: Prompts,
        fill: str | Sequence[int] | None,
        edit: str | None,
        options: Mapping[str, Any],
    ) -> Running:
        """What the one of generate, fill and edit that is asked for would do."""
        if sum(text is not None for text in (prompts, fill, edit)) > 1:
            raise UnmaskError("give one of prompts, fill and edit")
        given = {name: value for name, value in options.items() if value is not None}
        if fill is not None:
            return self._filling(fill, **given)
        if edit is not None:
            return self._editing(edit, **given)
        return self._writing(prompts, **given)

    def _writing(
        self,
        prompts: Prompts,
        /,
        *,
        length: Length = None,
        stop: bool = True,
        **options: Any,
    ) -> Running:
        sampling, length = self.usual(options, length)
        return Running(self, self._canvases(prompts, length, stop, sampling), sampling)

    def _canvases(self, prompts: Prompts, length: Length, stop: bool, sampling: Sampling) -> Job:
        if prompts is None or isinstance(prompts, str):
            prompts = [prompts or ""]
        length = self.length if length is None else length
        if self.conditional:
            return self._answering(prompts, length, stop, sampling)
        if length == "auto":
            if self.tokenizer.vocabulary.eos_id is None or not stop:
                raise UnmaskError("length auto needs an end: this text has none")
            length = LONGEST * self.length
        return writing(
            self.tokenizer, first_tokens(self, sampling), prompts, sampling.n, length, stop
        )

    def _answering(
        self, sources: Sequence[str], length: int | Literal["auto"], stop: bool, sampling: Sampling
    ) -> Job:
        if length == "auto" or length > self.length:
            raise UnmaskError(f"source and target share a row of {self.length} tokens at most")
        first = first_tokens(self, sampling)
        return answering(self.tokenizer, first, sources, sampling.n, length, stop)

    def _filling(self, text: str | Sequence[int], /, **options: Any) -> Running:
        sampling = self.choosing(options)
        self._sees_both_sides("fill")
        first = first_tokens(self, sampling)
        job = filling(self.tokenizer, first, text, sampling.n, self.length)
        return Running(self, job, sampling)

    def _editing(self, text: str, /, **options: Any) -> Running:
        edit = Edit(**{name: options.pop(name) for name in _EDITING if name in options})
        sampling = self.choosing(options, _EDITING)
        self._sees_both_sides("edit")
        return Running(self, edited(self, text, edit, sampling), sampling)

    def _sees_both_sides(self, verb: str) -> None:
        if self.conditional:
            raise UnmaskError(f"this model writes targets for sources: generate, not {verb}")
        if self.method.order != "any":
            raise UnmaskError(
                f"an autoregressive model cannot see what follows a gap: {verb} with a diffusion model"
            )


def _none(prompts: Prompts) -> bool:
    """Whether a list of prompts was given, and it is empty."""
    return prompts is not None and not isinstance(prompts, str) and not prompts


def _hub() -> Any:
    """The hub's layout, which stands above this layer: few models need it."""
    return import_module("unmask.hub.own")

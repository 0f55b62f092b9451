"""Model, which users hold, and `load`, which reads one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unmask.bundle import Bundle
from unmask.errors import UnmaskError
from unmask.files.hub import hub_name
from unmask.formats.native import write_folder
from unmask.formats.read import read_bundle
from unmask.generation.display import watch
from unmask.generation.edit import Edit, rows_to_edit
from unmask.generation.generator import Generator, Result
from unmask.generation.prompts import Prompts, rows_to_fill, rows_to_write
from unmask.generation.sampling_params import (
    EDITING,
    Length,
    checked_defaults,
    params_to_fill,
    params_to_generate,
)
from unmask.runtime.device import PRECISIONS, resolve_device, resolve_precision
from unmask.samplers.core.canvas import Frame

if TYPE_CHECKING:
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.estimate import How
    from unmask.likelihood.token_orders import Order


@dataclass(frozen=True, eq=False, repr=False)
class Model(Bundle):
    """Generation, infilling, editing and perplexity of one bundle.

    `generate`, `fill`, `edit` and `stream` take the fields of `Sampling` as options: n, sampler, steps,
    temperature, seed, regex, label and more; and those of logits processors, NAME={"field": value}.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "defaults", checked_defaults(self.defaults))

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
            params_to_generate(self.defaults, options)  # refuses an unknown option
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
        from unmask.likelihood.perplexity import perplexity  # generation does without it

        how: How = {"estimator": estimator, "steps": steps, "order": order, "orders": orders}
        return perplexity(
            self, data, packing, how, draws=draws, seed=seed, shard=shard, batch=batch
        )

    def save(
        self,
        folder: str | Path,
        precision: str = "fp32",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Writes the model without its training state to a folder that `load` reads.

        In `precision` bf16 the weights are rounded and take half the room. `defaults` are added to its
        own: options of `generate` (length, sampler, steps, temperature, top-k, top-p, those of logits
        processors) that apply where a caller gives none.
        """
        usual = {**self.defaults, **(defaults or {})}
        write_folder(replace(self, defaults=usual), folder, precision)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Writes the model in the layout of the Hugging Face hub, for `load` and for transformers.

        `shard` is the size beyond which weights go into several files ("5GB"), `card` the text of the
        model card or what `unmask card` measured, `licence` what the card says of it. Files that the run
        read are told by their names, not by where they lie.
        """
        from unmask.formats import huggingface

        huggingface.write(self, folder, **options)

    def push_to_hub(self, name: str, *, private: bool = False, **options: Any) -> str:
        """Writes the model to the hub as "owner/name", and returns the address.

        Takes the options of `save_pretrained`, a `revision` (a branch) and a `commit_message`.
        """
        from unmask.formats import huggingface

        return huggingface.push(self, name, private, **options)

    def _running(
        self,
        prompts: Prompts,
        fill: str | Sequence[int] | None,
        edit: str | None,
        options: Mapping[str, Any],
    ) -> Generator:
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
    ) -> Generator:
        sampling, length = params_to_generate(self.defaults, options, length)
        return Generator(self, rows_to_write(self, prompts, length, stop, sampling), sampling)

    def _filling(self, text: str | Sequence[int], /, **options: Any) -> Generator:
        sampling = params_to_fill(self.defaults, options)
        return Generator(self, rows_to_fill(self, text, sampling), sampling)

    def _editing(self, text: str, /, **options: Any) -> Generator:
        edit = Edit(**{name: options.pop(name) for name in EDITING if name in options})
        sampling = params_to_fill(self.defaults, options, EDITING)
        return Generator(self, rows_to_edit(self, text, edit, sampling), sampling)


def load(
    path: str | Path,
    device: str = "auto",
    precision: str = "fp32",
    compile: bool = False,
    revision: str | None = None,
) -> Model:
    """The model in a run folder or an exported folder, or one that ships with the package, by name.

    A folder in the layout of the Hugging Face hub, or a model there by its name ("owner/name", or
    "hf:name" where there is no owner), is read by our code: see docs/hub.md. `revision` is a branch, a
    tag or a commit there; "owner/name@revision" says the same wherever a model is named.

    `precision` is fp32, bf16, or auto, the fastest one that the device computes natively. bf16
    computes as training in bf16 does, with weights that are cast once. `compile` makes the first
    texts wait, and those after them come sooner on a GPU.
    """
    where = resolve_device(device)
    dtype = PRECISIONS[resolve_precision(precision, where)]
    bundle = read_bundle(path if revision is None else _pinned(path, revision))
    bundle.method.to(where).serve(dtype, compile)
    return Model(bundle.method, bundle.tokenizer, bundle.config, bundle.defaults)


def _pinned(path: str | Path, revision: str) -> str:
    """A name on the hub with its revision."""
    name = hub_name(path)
    if name is None:
        raise UnmaskError(f"{str(path)!r} is no name of the hub, and only those have a revision")
    if "@" in name:
        raise UnmaskError(f"{name!r} names a revision already: leave {revision!r} out")
    pinned = f"hf:{name}@{revision}"
    if hub_name(pinned) is None:
        raise UnmaskError(f"{revision!r} is no revision: give a branch, a tag or a commit")
    return pinned


def _none(prompts: Prompts) -> bool:
    """True for an empty list of prompts."""
    return prompts is not None and not isinstance(prompts, str) and not prompts

"""Model, the object that users work with, and `load`, which reads one."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from unmask import extension
from unmask.bundle import Bundle
from unmask.errors import UnmaskError, misnamed, unknown
from unmask.files.hub import hub_name
from unmask.formats.foreign import Into
from unmask.formats.native import NativeFormat, write_folder
from unmask.formats.read import read_bundle
from unmask.generation.edit import STYLE_SHARE, Edit, rows_to_edit
from unmask.generation.generator import Generator, Result
from unmask.generation.prompts import Prompts, rows_to_fill, rows_to_write
from unmask.generation.sampler_spec import choose_sampler
from unmask.generation.sampling_params import (
    EDITING,
    Length,
    SamplingOptions,
    SamplingParams,
    checked_defaults,
    params_to_fill,
    params_to_generate,
)
from unmask.generation.signature import with_sampling_options
from unmask.runtime.device import PRECISIONS, resolve_device, resolve_precision
from unmask.samplers.core.canvas import Frame

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    from unmask.backbones.backbone import Backbone
    from unmask.data.rows.sentence_rows import Sentence
    from unmask.data.tokenizers.chat_format import Messages
    from unmask.likelihood.bound import Bound
    from unmask.likelihood.estimate import How
    from unmask.likelihood.token_orders import Order
    from unmask.representation.classifier import Classification
    from unmask.samplers.sampler import Sampler
    from unmask.training.fine_tune import Fitted


# arguments of other libraries' loaders
_OTHER_NAMES = {
    **dict.fromkeys(("dtype", "torch_dtype"), 'give precision="bf16" or "fp32"'),
    **dict.fromkeys(("map_location", "device_map"), 'give device="cuda" or "cpu"'),
}


@dataclass(frozen=True, eq=False, repr=False)
class Model(Bundle):
    """Generation, infilling, editing and perplexity of one bundle."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "defaults", checked_defaults(self.defaults))

    @with_sampling_options
    def generate(
        self,
        prompts: Prompts = None,
        *,
        length: Length = None,
        stop: bool = True,
        context: str | Sequence[str] = (),
        **options: Unpack[SamplingOptions],
    ) -> list[Result]:
        """Generates texts, with or without prompts.

        Options that are not given have the model's defaults. A model of pairs takes sources as prompts
        and generates their targets. Fields of logits processors are options too, such as
        `typical={"mass": 0.9}`.

        Args:
            prompts: one prompt, several prompts, or None for a text without a prompt. A prompt is a
                text or a list of token ids.
            length: tokens of a text, its prompt included; "auto" generates until EOS, in sliding
                windows. The default is the model's own, or else its training length.
            stop: False generates the whole length, without EOS.
            context: passages that the model reads before each prompt, the best first. They fill at most
                half of the model's length, and the result leaves them out.
            options: the fields of `unmask.SamplingParams`.

        Returns:
            `n` results for each prompt, in the order of the prompts.

        Example:
            >>> [result] = model.generate("The cat", length=12, steps=4, temperature=0.8, seed=1)
            >>> result.text.startswith("The cat")
            True
        """
        if _no_prompts(prompts):
            params_to_generate(self.defaults, options)  # raises an error for an unknown option
            return []
        return self._prompt_generator(
            prompts, length=length, stop=stop, context=context, **options
        ).results()

    @with_sampling_options
    def fill(
        self, text: str | Sequence[str] | Sequence[int], **options: Unpack[SamplingOptions]
    ) -> list[Result]:
        """Fills the gaps of a text, given the text on both sides.

        Args:
            text: a text with gaps, `[MASK]` for one token and `[MASK:4]` for four; several such texts; or
                token ids, with the mask id of the vocabulary at gaps.
            options: the fields of `unmask.SamplingParams`.

        Returns:
            `n` results for each text, in the order of the texts.

        Example:
            >>> [result] = model.fill("The [MASK:2] sat", seed=1)
            >>> result.text.endswith(" sat")
            True
        """
        texts: Sequence[Any] = text if _several(text) else [text]
        return [one for each in texts for one in self._fill_generator(each, **options).results()]

    @with_sampling_options
    def edit(
        self,
        text: str | Sequence[str],
        *,
        remask: float | None = None,
        remask_span: tuple[int, int] | None = None,
        remask_uncertain: int | None = None,
        remask_style: float | None = None,
        style: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Result]:
        """Masks a part of a text and generates it again; the rest stays.

        Give one of the `remask` arguments, or a style. Without them a sampler that revises a finished text,
        such as gibbs, may change any token.

        Args:
            text: the text, or several texts.
            remask: the share of tokens to rewrite; the seed selects them.
            remask_span: (start, stop), the tokens to rewrite, without `stop`.
            remask_uncertain: the number of tokens to rewrite, the least likely ones.
            remask_style: the share of tokens to rewrite, those that speak most against the style.
            style: the class label of the new text. Without a `remask` argument a quarter of the tokens
                is rewritten, chosen as by `remask_style`. `guidance` and `guide` strengthen it.
            options: the fields of `unmask.SamplingParams`.

        Returns:
            `n` results for each text, in the order of the texts.

        Example:
            >>> [result] = model.edit("The cat sat on the mat.", remask=0.3, seed=1)
            >>> isinstance(result.text, str)
            True
        """
        edit: dict[str, Any] = {"remask": remask, "remask_span": remask_span}
        edit |= {"remask_uncertain": remask_uncertain, "remask_style": remask_style}
        texts: Sequence[Any] = text if _several(text) else [text]
        makers = [self._edit_generator(one, style=style, **edit, **options) for one in texts]
        return [one for maker in makers for one in maker.results()]

    @with_sampling_options
    def stream(
        self,
        prompts: Prompts = None,
        *,
        fill: str | Sequence[int] | None = None,
        edit: str | None = None,
        chat: "Messages | Sequence[int] | None" = None,
        tokens: int | None = None,
        length: Length = None,
        stop: bool = True,
        context: str | Sequence[str] = (),
        remask: float | None = None,
        remask_span: tuple[int, int] | None = None,
        remask_uncertain: int | None = None,
        remask_style: float | None = None,
        style: str | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[Frame]:
        """Yields every step of `generate`, `fill`, `edit` or `chat` as a frame.

        Args:
            prompts: as `generate` takes them.
            fill: a text with gaps, as `fill` takes it.
            edit: a text to rewrite a part of, as `edit` takes it.
            chat: messages, as `chat` takes them, or the ids of a chat that is in the template already.
            tokens: as `chat` takes it.
            length: as `generate` takes it.
            stop: as `generate` takes it.
            context: as `generate` takes it; the frames leave it out.
            remask: the share of `edit` to rewrite.
            remask_span: the tokens of `edit` to rewrite.
            remask_uncertain: the number of least likely tokens of `edit` to rewrite.
            remask_style: the share of `edit` to rewrite, chosen by the style.
            style: the class label of the edited text.
            options: the fields of `unmask.SamplingParams`.

        Returns:
            Frames: the tokens so far, the positions that changed, the confidence, the network calls.

        Example:
            >>> frames = list(model.stream("The cat", length=12, steps=4, seed=1))
            >>> bool((frames[-1].tokens == model.tokenizer.vocabulary.mask_id).any())
            False
        """
        given = _given(
            tokens=tokens, length=length, stop=None if stop else stop, context=context or None
        )
        given |= _given(remask=remask, remask_span=remask_span, remask_uncertain=remask_uncertain)
        given |= _given(remask_style=remask_style, style=style)
        return self._generator(prompts, fill, edit, {**given, **options}, chat).frames()

    @with_sampling_options
    def chat(
        self,
        messages: "Messages",
        *,
        tokens: int | None = None,
        **options: Unpack[SamplingOptions],
    ) -> list[Result]:
        """Answers a chat, in the chat template of the model's tokenizer.

        The answer ends at EOS or at the token that the template writes behind an answer. A constraint,
        such as `regex`, holds for the answer alone.

        Args:
            messages: the messages, each with a `role` (system, user or assistant) and a `content`; or
                the text of a single message of the user.
            tokens: the most tokens of the answer. By default all that the model has left, or at most 128
                if it writes all tokens of the answer at once.
            options: the fields of `unmask.SamplingParams`.

        Returns:
            `n` answers.

        Example:
            >>> [answer] = model.chat("What is a mask?", temperature=0)  # doctest: +SKIP
        """
        return self._chat_generator(messages, tokens=tokens, **options).results()

    @with_sampling_options
    def chat_stream(
        self,
        messages: "Messages",
        *,
        tokens: int | None = None,
        **options: Unpack[SamplingOptions],
    ) -> Iterator[str]:
        """Answers a chat piece by piece: a piece is sent once no later step can change it.

        A model of block diffusion sends the tokens of a block as they become final, from left to right.

        Args:
            messages: as `chat` takes them.
            tokens: as `chat` takes it.
            options: the fields of `unmask.SamplingParams`.

        Returns:
            The parts of one answer.

        Example:
            >>> for piece in model.chat_stream("What is a mask?"):  # doctest: +SKIP
            ...     print(piece, end="", flush=True)
        """
        from unmask.generation.answers.chat_rows import answer_pieces

        return answer_pieces(self._chat_generator(messages, tokens=tokens, **options))

    def texts(
        self,
        prompts: Prompts = None,
        *,
        fill: str | Sequence[int] | None = None,
        edit: str | None = None,
        **options: Any,
    ) -> Iterator[Result]:
        """Yields the results of `generate`, `fill` or `edit`, each as soon as it is finished.

        On a CPU, batches are then only as large as it takes to keep the CPU busy.

        Args:
            prompts: as `generate` takes them.
            fill: a text with gaps, as `fill` takes it.
            edit: a text to rewrite a part of, as `edit` takes it.
            options: the options of that function.

        Returns:
            The results in order.
        """
        if fill is None and edit is None and _no_prompts(prompts):
            return iter(self.generate(prompts, **options))
        return self._generator(prompts, fill, edit, options).one_by_one()

    def watch(self, frames: Iterable[Frame]) -> None:
        """Shows the frames of `stream` as they come, in a terminal or below the cell of a notebook.

        Masked tokens are blocks. New tokens are green, yellow or red by the network's confidence.

        Args:
            frames: the frames.

        Example:
            >>> model.watch(model.stream(length=8, steps=2))  # doctest: +SKIP
        """
        from unmask.generation.display import watch  # loads rich

        watch(frames, self.tokenizer, conditional=self.conditional)

    def perplexity(
        self,
        texts: str | Path | Sequence[str | tuple[str, str]] | None = None,
        *,
        source: str | None = None,
        draws: int = 8,
        seed: int = 0,
        packing: str | None = None,
        estimator: str | None = None,
        steps: int | None = None,
        order: "Order | None" = None,
        orders: int | None = None,
        block: int | None = None,
        rule: "str | Sampler | None" = None,
        temperature: float | None = None,
        shard: tuple[int, int] = (0, 1),
        batch: int = 32,
        progress: Callable[[float], None] | None = None,
    ) -> "Bound":
        """Measures the likelihood of texts, or a bound on it, with its standard error.

        Without `estimator`, `steps`, `order` and `rule` it is the method's default. A model of pairs measures
        targets given their sources.

        Args:
            texts: a text, several texts, pairs (source, target), or the path of a file or folder; by
                default the model's validation text.
            source: a data source by name instead, such as "hf:owner/name" or "builtin:pydoc".
            draws: noise draws per row; more give a smaller error.
            seed: the seed of the noise.
            packing: pad, split, wrap, join or fit; by default split for texts, that of training for files.
            estimator: fixed_count, stratified, importance, uniform, or pseudo for a pseudo-likelihood.
            steps: T of the bound; 0 is continuous time.
            order: the token order of a chain-rule likelihood: left_to_right, right_to_left, random or
                a list of positions.
            orders: the number of random orders of the any-order bound.
            block: the tokens of a block, for a model of block diffusion; 0 is the whole row.
            rule: a sampler that writes by the tokens alone, such as "confidence": the exact likelihood of
                the texts that it writes, one token a step unless it says otherwise.
            temperature: of the draws of `rule`; 1 unless given.
            shard: (i, n) measures the i-th of n parts; `+` adds their bounds.
            batch: rows computed at a time; it changes time and memory only.
            progress: called after each batch with the share that is done.

        Returns:
            The bound: nats per token, perplexity, bits per byte, their errors and the certificate.

        Example:
            >>> bound = model.perplexity("The cat sat on the mat.", draws=2)
            >>> bound.certificate
            'upper'
        """
        from unmask.generation.sampler_spec import decoding_rule
        from unmask.likelihood.perplexity import perplexity  # generation does not need it

        if source is not None and texts is not None:
            raise UnmaskError("give texts or a source, not both")
        data: Sequence[str | tuple[str, str]] | str | None = source
        if texts is not None:
            if isinstance(texts, str) and _is_file(texts):
                raise UnmaskError(
                    f"{texts!r} is a file: give pathlib.Path({texts!r}) to measure its text, or a list "
                    "with this name to measure the name"
                )
            data = str(texts) if isinstance(texts, Path) else texts
            data = [texts] if isinstance(texts, str) else data
        how: How = {"estimator": estimator, "steps": steps, "order": order, "orders": orders}
        how["block"] = block
        if rule is not None:
            how["rule"] = decoding_rule(rule, self)
        how["temperature"] = temperature
        return perplexity(
            self,
            data,
            packing,
            how,
            draws=draws,
            seed=seed,
            shard=shard,
            batch=batch,
            progress=progress,
        )

    @property
    def network(self) -> "Backbone":
        """The network, a torch module."""
        return self.method.backbone

    def to(self, device: str) -> "Model":
        """Moves the weights to a device.

        Args:
            device: cpu, cuda, mps, or auto for the fastest available.

        Returns:
            The same model.

        Example:
            >>> model.to("cpu").device.type
            'cpu'
        """
        target = resolve_device(device)
        self.method.to(target).serve(PRECISIONS[self.precision], compile=False)
        return self

    def logits(self, ids: "ArrayLike | Tensor") -> "Tensor":
        """The logits of the network, to look at; `mask_id` of the vocabulary marks gaps.

        Args:
            ids: token ids, [length] or [rows, length].

        Returns:
            Logits, [rows, length, vocabulary]. The method's own rule, such as that a token which is not
            masked stays, is not applied.

        Example:
            >>> ids = model.tokenizer.encode("The cat")
            >>> model.logits(ids).shape[:2]
            torch.Size([1, 2])
        """
        import torch

        if self.network.time_conditioning:
            raise UnmaskError(
                "this network reads the noise level too: call model.network.features(ids, level)"
            )
        rows = torch.as_tensor(ids, device=self.device)
        with torch.no_grad(), self.method.arithmetic():
            return self.network.logits(self.network.features(rows if rows.ndim > 1 else rows[None]))

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        pooling: str = "mean",
        normalize: bool = False,
        length: int | None = None,
        batch: int = 32,
    ) -> "NDArray[np.float32]":
        """Embeds texts: one vector for each, from the network's last layer.

        A text that is longer than the model's rows is cut.

        Args:
            texts: a text or several texts.
            pooling: mean over all tokens, cls for the first token, or last.
            normalize: True scales each vector to length 1.
            length: most tokens of a text; by default the length of the model's rows.
            batch: texts of a forward pass.

        Returns:
            The vectors, [texts, width].

        Example:
            >>> model.embed(["The cat sat.", "A dog ran."]).shape[0]
            2
        """
        from unmask.representation.embedding import embed_rows, embedding_rows

        rows = embedding_rows(self, [texts] if isinstance(texts, str) else texts, length)
        return embed_rows(self, rows, pooling, batch, normalize)

    def classifier(
        self,
        classes: int | Sequence[str],
        *,
        pooling: str | None = None,
        frozen: bool = False,
        seed: int = 0,
    ) -> "Model":
        """A sequence classifier with a copy of this network and a fresh head, to be fine-tuned.

        Args:
            classes: the names of the classes, or their number; 1 is a regression.
            pooling: cls for the first token, mean, or last; by default cls, or last if causal.
            frozen: True trains the head only.
            seed: the seed of the head.

        Returns:
            The classifier.

        Example:
            >>> classifier = model.classifier(["negative", "positive"], pooling="mean")
            >>> classifier.method.outputs
            2
        """
        from unmask.representation.classifier import classifier_of

        names = () if isinstance(classes, int) else tuple(classes)
        count = classes if isinstance(classes, int) else len(names)
        settings: dict[str, Any] = {"names": names}
        settings |= {} if pooling is None else {"pooling": pooling}
        found = classifier_of(self, count, seed=seed, frozen=frozen, **settings)
        return Model(found.method, found.tokenizer, found.config, found.defaults)

    def fine_tune(
        self,
        texts: "Sequence[Sentence]",
        targets: Sequence[int] | Sequence[float],
        *,
        lr: float = 2e-5,
        epochs: int = 3,
        batch: int = 16,
        length: int | None = None,
        lora_rank: int = 0,
        seed: int = 0,
    ) -> "Fitted":
        """Trains a classifier of `classifier` in place.

        Args:
            texts: texts, or pairs of texts.
            targets: the class number of each text, or its number for a regression.
            lr: the learning rate, which decays linearly to 0.
            epochs: passes over the texts.
            batch: texts of an optimizer step.
            length: most tokens of a text; by default the length of the model's rows.
            lora_rank: rank of adapters that are trained in place of the weights; 0 is none.
            seed: the seed of the order of texts and of the dropout.

        Returns:
            The mean training loss of each epoch.

        Example:
            >>> classifier.fine_tune(["Good.", "Bad."], [1, 0], epochs=1).steps  # doctest: +SKIP
            1
        """
        from unmask.representation.classifier import fine_tune
        from unmask.training.fine_tune import FineTuning
        from unmask.training.training_config import LoraConfig

        settings = FineTuning(
            lr=lr, epochs=epochs, batch=batch, precision=self.precision, seed=seed
        )
        lora = LoraConfig(rank=lora_rank)
        return fine_tune(self, texts, targets, settings, length=length, lora=lora)

    def classify(
        self,
        texts: "str | tuple[str, str] | Sequence[Sentence]",
        *,
        length: int | None = None,
        batch: int = 64,
    ) -> "list[Classification]":
        """Classifies texts with a model of the method sequence_classifier.

        Args:
            texts: a text, a pair of texts (a tuple), or a list of them.
            length: most tokens of a text; by default the length of the model's rows.
            batch: texts of a forward pass.

        Returns:
            Label, score and logits of each text. The score of a regression is its number.

        Example:
            >>> classifier.classify("The cat sat.")[0].label  # doctest: +SKIP
            'positive'
        """
        from unmask.representation.classifier import classify

        given = [texts] if isinstance(texts, str | tuple) else texts
        return classify(self, given, length=length, batch=batch, precision=self.precision)

    def save(
        self,
        folder: str | Path,
        precision: str = "fp32",
        defaults: Mapping[str, Any] | None = None,
        attachments: Mapping[str, Any] | None = None,
        calibration: str | Path | Sequence[str] | None = None,
    ) -> None:
        """Writes the model without its training state to a folder that `load` reads.

        Args:
            folder: the folder; a model in it is replaced. A folder with a card or with other files is refused.
            precision: fp32, or bf16, which rounds the weights and takes half the space. int8 stores
                matrices as 8-bit integers with a scale per row and takes a quarter. int4 has a scale
                for each 32 weights and takes a seventh.
            defaults: the model's defaults for options of `generate`: length, sampler, steps, ending,
                temperature, top_k, top_p.
            attachments: parts of extensions by name, trained for this model; the model's own others stay.
            calibration: texts or a data source, for int4: the rounding then minimises the error of the
                layers' outputs on its first 64 rows.

        Example:
            >>> model.save("exported", precision="bf16", defaults={"steps": 32})  # doctest: +SKIP
        """
        merged = {**self.defaults, **(defaults or {})}
        for name in attachments or {}:
            if name not in extension.attachments():
                raise unknown("attachment", name, extension.attachments())
        parts = {**self.attachments, **(attachments or {})}
        if "sampler" in merged:  # an unknown name is an error before anything is written
            sampler = SamplingParams.of({"sampler": merged["sampler"]})
            choose_sampler(sampler, self.method, self.length, parts)
        NativeFormat.check_target(Path(folder))
        products = None
        if calibration is not None:
            from unmask.likelihood.calibration import input_products

            if precision != "int4":
                raise UnmaskError("calibration is for the precision int4: leave it out")
            products = input_products(self, calibration)
        write_folder(replace(self, defaults=merged, attachments=parts), folder, precision, products)

    def save_pretrained(
        self,
        folder: str | Path,
        *,
        shard: str | int = "5GB",
        card: str | Mapping[str, Any] | None = None,
        licence: str | None = None,
    ) -> None:
        """Writes the model in the layout of the Hugging Face hub, for `load` and for transformers.

        Paths of files that the run read are cut to their names.

        Args:
            folder: the folder.
            shard: the largest size of a weight file; larger weights are split.
            card: the text of the model card, or the measurements of `unmask card`.
            licence: the licence that the card names.
        """
        from unmask.formats import huggingface

        huggingface.write(self, folder, shard, card, licence)

    def push_to_hub(self, name: str, *, private: bool = False, **options: Any) -> str:
        """Writes the model to the Hugging Face hub.

        Args:
            name: "owner/name".
            private: True hides the model from others.
            options: those of `save_pretrained`, a `revision` (a branch) and a `commit_message`.

        Returns:
            The address of the model.
        """
        from unmask.formats import huggingface

        return huggingface.push(self, name, private, **options)

    def __repr__(self) -> str:
        return f"Model({', '.join(f'{name}={value}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        """The model as a table, below the cell of a notebook."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
            for name, value in self._facts().items()
        )
        return f"<table>{rows}</table>"

    def _facts(self) -> dict[str, Any]:
        """The facts that `repr` and a notebook show."""
        parameters = sum(weights.numel() for weights in self.method.parameters())
        return {
            "method": self.config.method.name,
            "backbone": self.config.backbone.name,
            "parameters": f"{parameters:,}",
            "tokenizer": f"{self.tokenizer.kind} of {self.tokenizer.vocabulary.size:,} ids",
            "length": self.length,
            **({"labels": ", ".join(self.tokenizer.labels)} if self.tokenizer.labels else {}),
            **({"pairs": True} if self.conditional else {}),
            "device": self.device,
            "precision": self.precision,
        }

    def _generator(
        self,
        prompts: Prompts,
        fill: str | Sequence[int] | None,
        edit: str | None,
        options: Mapping[str, Any],
        chat: "Messages | Sequence[int] | None" = None,
    ) -> Generator:
        """The generator of a call of `generate`, `fill`, `edit` or `chat`."""
        if sum(text is not None for text in (prompts, fill, edit, chat)) > 1:
            raise UnmaskError("give one of prompts, fill, edit and chat")
        given = _given(**options)
        if fill is not None:
            return self._fill_generator(fill, **given)
        if edit is not None:
            return self._edit_generator(edit, **given)
        if chat is not None:
            return self._chat_generator(chat, **given)
        return self._prompt_generator(prompts, **given)

    def _prompt_generator(
        self,
        prompts: Prompts,
        /,
        *,
        length: Length = None,
        stop: bool = True,
        context: str | Sequence[str] = (),
        **options: Any,
    ) -> Generator:
        params, length = params_to_generate(self.defaults, options, length)
        job = rows_to_write(self, prompts, length, stop, params, context)
        return Generator(self, job, params)

    def _chat_generator(
        self, messages: "Messages | Sequence[int]", /, *, tokens: int | None = None, **options: Any
    ) -> Generator:
        from unmask.generation.answers.chat_rows import (
            rows_to_answer,  # generation without chats needs no templates
        )

        params, _ = params_to_generate(self.defaults, options)
        return Generator(*rows_to_answer(self, messages, tokens, params.n), params)

    def _restyled(self, edit: Edit, style: str, options: dict[str, Any]) -> Edit:
        """Makes the style the class label; chooses tokens by it if nothing else is chosen."""
        if not self.tokenizer.labels:
            raise UnmaskError(
                f"style {style!r} needs a classifier, and this model has no class labels: give a model "
                "trained with data.label_field"
            )
        if options.get("label") not in (None, style):
            raise UnmaskError("style is the label of the new text: give style or label, not both")
        options["label"] = style
        chosen = any(value is not None for value in vars(edit).values())
        return edit if chosen else replace(edit, remask_style=STYLE_SHARE)

    def _fill_generator(self, text: str | Sequence[int], /, **options: Any) -> Generator:
        params = params_to_fill(self.defaults, options)
        return Generator(self, rows_to_fill(self, text, params), params)

    def _edit_generator(self, text: str, /, **options: Any) -> Generator:
        style = options.pop("style", None)
        edit = Edit(**{name: options.pop(name) for name in EDITING if name in options})
        if style is not None:
            edit = self._restyled(edit, style, options)
        params = params_to_fill(self.defaults, options, EDITING)
        return Generator(self, rows_to_edit(self, text, edit, params), params)


@misnamed(lambda name, value: _OTHER_NAMES.get(name))
def load(
    path: str | Path,
    device: str = "auto",
    precision: str = "fp32",
    compile: bool = False,
    revision: str | None = None,
) -> Model:
    """Reads a model.

    Args:
        path: a shipped model by name ("stories"), a run folder or an exported folder. Models of the
            Hugging Face hub have names such as "owner/name", or "hf:name" without an owner.
        device: cpu, cuda, mps, or auto for the fastest available.
        precision: fp32, bf16, or auto for the fastest one that the device computes natively.
        compile: True compiles the network, which delays the first texts and speeds up later ones on a GPU.
        revision: a branch, a tag or a commit of a model of the hub, as in "owner/name@revision".

    Returns:
        The model, ready to generate.

    Example:
        >>> model = load("stories")  # doctest: +SKIP
    """
    target = resolve_device(device)
    dtype = PRECISIONS[resolve_precision(precision, target)]
    source = path if revision is None else _pinned(path, revision)
    bundle = read_bundle(source, Into(dtype, target))  # a large model has no room for a second copy
    bundle.method.to(target).serve(dtype, compile)
    return Model(
        bundle.method, bundle.tokenizer, bundle.config, bundle.defaults, bundle.attachments
    )


def _pinned(path: str | Path, revision: str) -> str:
    """A name on the hub with its revision."""
    name = hub_name(path)
    if name is None:
        raise UnmaskError(
            f"{str(path)!r} is no name of the hub, so it has no revision: leave {revision!r} out"
        )
    if "@" in name:
        raise UnmaskError(f"{name!r} names a revision already: leave {revision!r} out")
    pinned = f"hf:{name}@{revision}"
    if hub_name(pinned) is None:
        raise UnmaskError(f"{revision!r} is no revision: give a branch, a tag or a commit")
    return pinned


def _several(text: object) -> bool:
    """True for a list of texts."""
    return isinstance(text, list | tuple) and all(isinstance(one, str) for one in text)


def _is_file(text: str) -> bool:
    """True if a text is the name of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a null character
        return False


def _no_prompts(prompts: Prompts) -> bool:
    """True for an empty list of prompts."""
    return isinstance(prompts, Sized) and not isinstance(prompts, str) and not len(prompts)


def _given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}

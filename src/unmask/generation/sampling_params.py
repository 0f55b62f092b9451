"""Options of generate, fill, edit and stream, for the Python API, the command line, HTTP and the harness.

The declarations import no torch, so `unmask generate --help` starts at once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from unmask.errors import UnmaskError, unknown
from unmask.extension import attachments
from unmask.generation.logits_processor import (
    LOGITS_PROCESSORS,
    flat_options,
    processor_options,
    read_processors,
)
from unmask.options import Option, check_options, option, options_of

if TYPE_CHECKING:
    from unmask.bundle import Bundle
    from unmask.samplers.sampler import Sampler
else:  # their modules import torch, and no surface parses values of these types
    Bundle = Sampler = Any

Length = int | Literal["auto"] | None
MOST_TOKENS = 2**20  # tokens of the longest text
_OF_THE_SAMPLER = ("sampler", "steps")  # defaults that a given sampler replaces
_OF_THE_LENGTH = ("length", "steps", "ending")  # defaults that do not apply to a given text
_WRITING = ("prompts", "length", "stop", "context")  # further arguments of `generate`
# further arguments of `edit`
EDITING = ("remask", "remask_span", "remask_uncertain", "remask_style")

MOST_TEXTS = 2**20
SHARPNESS = ("temperature", "top_k", "top_p")  # of the distribution that a token is drawn from
_CLI_HTTP = ("cli", "http")


@dataclass(frozen=True)
class SamplingParams:
    """Sampling options of generate, fill, edit and stream; `on` lists the surfaces that have a field."""

    n: int = option(1, ge=1, le=MOST_TEXTS, help="texts for each prompt", on=_CLI_HTTP)
    sampler: str | Sampler | None = option(
        None,
        metavar="NAME",
        help="sampler, as in 'unmask list samplers'; NAME:field=value,… sets its fields",
    )
    steps: int | None = option(
        None,
        ge=1,
        help="denoising steps; by default one for each position of the gaps, or of the new text",
    )
    grid: str | None = option(
        None,
        metavar="GRID",
        help="time grid of the steps: uniform, cosine, or times such as 1,0.5,0",
        on=("cli", "http", "harness"),  # the playground has it as a field of the sampler
    )
    temperature: float = option(
        1.0, ge=0, le=1e6, help="softmax temperature; 0 takes the likeliest token"
    )
    top_k: int | None = option(
        None, ge=1, le=2**31, metavar="K", help="draw from the K likeliest tokens only"
    )
    top_p: float | None = option(
        None, gt=0, le=1, metavar="P", help="nucleus: draw from the likeliest tokens of mass P"
    )
    strategy: Literal["stochastic", "deterministic", "hybrid"] = option(
        "stochastic",
        metavar="NAME",
        help="stochastic draws tokens, deterministic takes the likeliest, hybrid takes it at the end of a text",
    )
    tail: float | None = option(
        None,
        ge=0,
        le=1,
        help="share of the text, at its end, where hybrid takes the likeliest tokens (0.1)",
    )
    ending: Literal["free", "sentence", "first"] = option(
        "free",
        metavar="NAME",
        help="sentence ends a text after its last complete sentence, first draws the length of a target "
        "before its tokens (models of pairs), free does neither",
        on=("cli", "http", "play"),
    )
    seed: int | Sequence[int] = option(
        0, help="seed; equal seeds give equal texts", on=("cli", "http", "play")
    )
    batch: int = option(64, ge=1, help="texts of one batch", on=())

    regex: str | None = option(
        None,
        metavar="PATTERN",
        help="regular expression that the whole text must match",
        on=("cli", "http", "play"),
    )
    ban: Sequence[str] = option(
        (), help="phrase that must not occur; repeatable", repeat=True, on=_CLI_HTTP
    )
    include: Sequence[str] = option(
        (), help="phrase that must occur; repeatable", repeat=True, on=_CLI_HTTP
    )
    json_schema: Mapping[str, Any] | None = option(
        None, help="JSON schema that the text behind the prompt must match", on=()
    )
    allowed: Mapping[int, Collection[str | int]] | None = option(
        None, help="allowed tokens, by position in the text", on=()
    )
    constraint_budget: float = option(
        1.0,
        gt=0,
        le=1000,
        metavar="FACTOR",
        help="limits of the time and memory that a constraint may take, times this number (1)",
        on=("cli",),
    )

    label: str | None = option(
        None, metavar="NAME", help="class label, for a model trained with labels"
    )
    guidance: float = option(
        1.0,
        ge=0,
        le=1000,
        help="guidance weight of the label; without a guide, 1 is the model itself",
    )
    guide: Bundle | None = option(
        None,
        metavar="MODEL",
        help="labelled model for classifier guidance, by its gradient",
        on=("cli",),
    )
    attachments: Mapping[str, Any] = option(
        {}, help="parts of extensions that a sampler uses, by name", on=()
    )
    processors: Mapping[str, Mapping[str, Any]] = option(
        {}, help="fields of logits processors, by the processor's name", on=()
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.tail is not None and self.strategy != "hybrid":
            raise UnmaskError("tail is for strategy hybrid: give strategy hybrid, or no tail")
        if self.regex is not None and self.json_schema is not None:
            raise UnmaskError("regex and json_schema are two formats of one text: give one of them")
        for name in ("ban", "include"):
            phrases = getattr(self, name)
            phrases = (phrases,) if isinstance(phrases, str) else tuple(phrases)
            if not all(isinstance(phrase, str) for phrase in phrases):
                raise UnmaskError(f"{name} takes phrases, not {phrases}: give strings")
            object.__setattr__(self, name, phrases)
        if isinstance(self.guide, str | Path):
            raise UnmaskError(f"guide is a model, not {str(self.guide)!r}: give unmask.load(...)")
        object.__setattr__(self, "processors", read_processors(self.processors))

    @classmethod
    def of(cls, options: Mapping[str, Any], others: Collection[str] = ()) -> "SamplingParams":
        """Options from values by name; text is parsed to the type of its field.

        Args:
            options: Values by name; those of a logits processor as NAME.field or NAME={field: value}.
            others: Further names that the caller accepts. The error for an unknown name may suggest them.

        Returns:
            The checked options.

        Raises:
            UnmaskError: for an unknown name, with the nearest one, and for a value out of range.
        """
        from unmask.config.values import read_option  # it imports torch

        known = {one.name: one for one in options_of(cls)}
        values: dict[str, Any] = {}
        processors: dict[str, dict[str, Any]] = {}
        parts = dict(options.get("attachments", {}))
        for name, value in flat_options(options).items():
            processor, dot, field = name.partition(".")
            if dot and processor in LOGITS_PROCESSORS:
                processors.setdefault(processor, {})[field] = value
            elif name in attachments():
                parts[name] = value
            elif name in known:
                values[name] = read_option(known[name], value)
            elif name in LOGITS_PROCESSORS:
                raise UnmaskError(
                    f"{name} takes its options by name, not {value!r}: give {{'field': value}}"
                )
            elif SYNONYMS.get(name) in {*known, *others}:
                raise UnmaskError(f"unknown option {name!r}; did you mean {SYNONYMS[name]!r}?")
            else:
                fields = {one.name for one in chain(*processor_options().values())}
                raise unknown("option", name, {*known, *others, *fields} - {name})
        return cls(**{**values, "attachments": parts}, processors=processors)


class SamplingOptions(TypedDict, total=False):
    """The fields of `SamplingParams` as keyword arguments, for type checkers and editors."""

    n: int
    sampler: str | Sampler | None
    steps: int | None
    grid: str | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    strategy: Literal["stochastic", "deterministic", "hybrid"] | None
    tail: float | None
    ending: Literal["free", "sentence", "first"] | None
    seed: int | Sequence[int]
    batch: int
    regex: str | None
    ban: str | Sequence[str]
    include: str | Sequence[str]
    json_schema: Mapping[str, Any] | None
    allowed: Mapping[int, Collection[str | int]] | None
    constraint_budget: float
    label: str | None
    guidance: float | None
    guide: Bundle | None
    attachments: Mapping[str, Any]
    processors: Mapping[str, Mapping[str, Any]]


def constrains(options: Mapping[str, Any]) -> bool:
    """True if some options hold a constraint, which is compiled before the text is generated.

    Args:
        options: Sampling options by name.

    Example:
        >>> constrains({"regex": "[a-z]+"}), constrains({"ban": [], "n": 2})
        (True, False)
    """
    if any(options.get(name) is not None for name in ("regex", "json_schema")):
        return True
    return any(options.get(name) for name in ("ban", "include", "allowed"))


# names that other libraries have for an option
SYNONYMS = {
    "max_tokens": "length",
    "max_new_tokens": "length",
    "max_length": "length",
    "num_return_sequences": "n",
    "num_samples": "n",
    "do_sample": "strategy",
    "stop_sequences": "stop",
    "prompt": "prompts",
}


def attachment_options() -> list[Option]:
    """The options of attachments; on the command line their value is a file."""
    return [
        Option(name, Any, None, kind.help, metavar="FILE", on=("cli",))
        for name, kind in attachments().items()
    ]


def sampling_options(surface: str) -> list[Option]:
    """The options of one surface: sampling options, attachments, logits processors as NAME.field."""
    parts = [one for one in attachment_options() if surface in one.on]
    processors = chain(*processor_options(surface).values())
    return [*options_of(SamplingParams, surface), *parts, *processors]


# options for which a model may have defaults, beside those of logits processors
USUAL = ("length", "sampler", "steps", "ending", *SHARPNESS)


def checked_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """A model's default values, parsed and checked; those of logits processors as NAME.field."""
    given = flat_options(defaults)
    for name in given:
        if name not in (*USUAL, "constraint_budget") and "." not in name:
            raise unknown("default", name, USUAL)
    checked = {}
    if "length" in given:
        checked["length"] = _length(given.pop("length"))
    sampling = SamplingParams.of(given)
    own = {name: getattr(sampling, name) for name in given if "." not in name}
    return checked | own | flat_options({"processors": sampling.processors})


def _length(value: Any) -> int:
    from unmask.config.values import _value

    length: int = _value(int, "length", value)
    if not 2 <= length <= MOST_TOKENS:
        raise UnmaskError(f"length must be 2 or more, and {MOST_TOKENS} at most, not {length}")
    return length


def params_to_generate(
    defaults: Mapping[str, Any], options: Mapping[str, Any], length: Length = None
) -> tuple[SamplingParams, Length]:
    """The options and the length of `generate`: the given ones, completed by the model's defaults.

    With a given sampler, the model's default for `steps` does not apply: it is for the default sampler.
    A grid that lists times has its own number of steps.
    """
    from unmask.samplers.core.time_grid import given_times  # imports torch

    applied = dict(defaults)
    if isinstance(grid := options.get("grid"), str) and given_times(grid) is not None:
        applied.pop("steps", None)
    default_length = applied.pop("length", None)
    if options.get("sampler") is not None:
        applied = {name: applied[name] for name in applied if name not in _OF_THE_SAMPLER}
    length = default_length if length is None else length
    return SamplingParams.of(applied | _given(options), _WRITING), length


def params_to_fill(
    defaults: Mapping[str, Any], options: Mapping[str, Any], others: Collection[str] = ()
) -> SamplingParams:
    """The options of `fill` and `edit`: the given ones, and the model's defaults except length and steps."""
    applied = {name: defaults[name] for name in defaults if name not in _OF_THE_LENGTH}
    return SamplingParams.of(applied | _given(options), others)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not None, with those of logits processors as NAME.field."""
    return {name: value for name, value in flat_options(options).items() if value is not None}

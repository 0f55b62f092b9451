"""The options that generate, fill, edit and stream share, declared once for every surface.

Reading the declarations needs no torch, so that `unmask generate --help` starts at once.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from unmask.errors import UnmaskError, unknown
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
else:  # no surface reads values of these types, and torch would come with them
    Bundle = Sampler = Any

Length = int | Literal["auto"] | None
_CLOCK = ("sampler", "steps")
_SIZE = ("length", "steps")
_WRITING = ("prompts", "length", "stop")  # what `generate` takes beside the fields of Sampling
EDITING = ("remask", "remask_span", "remask_uncertain")  # and `edit`

MOST_TEXTS = 2**20
SHARPNESS = ("temperature", "top_k", "top_p")  # of the distribution that a token is drawn from
_WRITERS = ("cli", "http")


@dataclass(frozen=True)
class SamplingParams:
    """Every field is an option of generate, fill, edit and stream; `on` names the surfaces that show it."""

    n: int = option(1, ge=1, le=MOST_TEXTS, help="texts for each prompt", on=_WRITERS)
    sampler: str | Sampler | None = option(
        None, metavar="NAME", help="'unmask samplers' lists them; NAME:field=value,… sets fields"
    )
    steps: int | None = option(None, ge=1, help="denoising steps; as many as tokens unless given")
    grid: str | None = option(
        None,
        metavar="GRID",
        help="times of the steps: uniform, cosine, or a list such as 1,0.5,0",
        on=("cli", "http", "harness"),  # the playground has it as a field of the sampler
    )
    temperature: float = option(
        1.0, ge=0, le=1e6, help="below 1 is safer, above 1 is wilder; 0 takes the likeliest token"
    )
    top_k: int | None = option(
        None, ge=1, le=2**31, metavar="K", help="draw from the K likeliest tokens only"
    )
    top_p: float | None = option(
        None, gt=0, le=1, metavar="P", help="draw from the likeliest tokens that make up P"
    )
    strategy: Literal["stochastic", "deterministic", "hybrid"] = option(
        "stochastic",
        metavar="NAME",
        help="stochastic draws tokens, deterministic takes the likeliest, hybrid does so at the tail",
    )
    tail: float | None = option(
        None, ge=0, le=1, help="the share of the text, its end, where hybrid draws no tokens (0.1)"
    )
    ending: Literal["free", "first"] = option(
        "free",
        metavar="NAME",
        help="first settles the end of a target before its words",
        on=("cli", "http", "play"),
    )
    seed: int | Sequence[int] = option(
        0, help="the same seed writes the same text", on=("cli", "http", "play")
    )
    batch: int = option(64, ge=1, help="texts side by side", on=())

    regex: str | None = option(
        None,
        metavar="PATTERN",
        help="a pattern that the whole text must match",
        on=("cli", "http", "play"),
    )
    ban: Sequence[str] = option(
        (), help="a phrase that must not occur; repeatable", repeat=True, on=_WRITERS
    )
    include: Sequence[str] = option(
        (), help="a phrase that must occur; repeatable", repeat=True, on=_WRITERS
    )
    allowed: Mapping[int, Collection[str | int]] | None = option(
        None, help="tokens by place in the text", on=()
    )

    label: str | None = option(
        None, metavar="NAME", help="the class of a model trained with labels"
    )
    guidance: float = option(
        1.0, ge=0, le=1000, help="strength of the label; 1 is the model itself"
    )
    guide: Bundle | None = option(
        None, metavar="MODEL", help="a labelled model whose gradient guides", on=("cli",)
    )
    processors: Mapping[str, Mapping[str, Any]] = option(
        {}, help="fields of logits processors, by the processor's name", on=()
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.tail is not None and self.strategy != "hybrid":
            raise UnmaskError("tail is for strategy hybrid, which takes the likeliest tokens there")
        for name in ("ban", "include"):
            phrases = getattr(self, name)
            phrases = (phrases,) if isinstance(phrases, str) else tuple(phrases)
            if not all(isinstance(phrase, str) for phrase in phrases):
                raise UnmaskError(f"{name} takes phrases, not {phrases}")
            object.__setattr__(self, name, phrases)
        object.__setattr__(self, "processors", read_processors(self.processors))

    @classmethod
    def of(cls, options: Mapping[str, Any], others: Collection[str] = ()) -> "SamplingParams":
        """Options from keyword arguments and from text.

        Args:
            options: values by name; those of a logits processor as NAME.field or NAME={field: value}.
            others: names that the caller takes elsewhere, suggested for a misspelled one.

        Raises:
            UnmaskError: for an unknown name, with the nearest one, and for a value out of range.
        """
        from unmask.config.values import read_option  # torch comes with it

        known = {one.name: one for one in options_of(cls)}
        values: dict[str, Any] = {}
        processors: dict[str, dict[str, Any]] = {}
        for name, value in flat_options(options).items():
            processor, dot, field = name.partition(".")
            if dot and processor in LOGITS_PROCESSORS:
                processors.setdefault(processor, {})[field] = value
            elif name in known:
                values[name] = read_option(known[name], value)
            elif name in LOGITS_PROCESSORS:
                raise UnmaskError(f"{name} takes its options by name, such as {{'field': 1}}")
            elif SYNONYMS.get(name) in {*known, *others}:
                raise UnmaskError(f"unknown option {name!r}; did you mean {SYNONYMS[name]!r}?")
            else:
                fields = {one.name for one in chain(*processor_options().values())}
                raise unknown("option", name, {*known, *others, *fields} - {name})
        return cls(**values, processors=processors)


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
    ending: Literal["free", "first"] | None
    seed: int | Sequence[int]
    batch: int
    regex: str | None
    ban: str | Sequence[str]
    include: str | Sequence[str]
    allowed: Mapping[int, Collection[str | int]] | None
    label: str | None
    guidance: float | None
    guide: Bundle | None
    processors: Mapping[str, Mapping[str, Any]]


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


def sampling_options(surface: str) -> list[Option]:
    """The options of one surface: those of Sampling, then those of logits processors as NAME.field."""
    return [*options_of(SamplingParams, surface), *chain(*processor_options(surface).values())]


# options of `generate` that a model may have defaults of; those of logits processors come beside them
USUAL = ("length", "sampler", "steps", *SHARPNESS)


def checked_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Default values of options, each of its type; those of processors as NAME.field."""
    given = flat_options(defaults)
    for name in given:
        if name not in USUAL and "." not in name:
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
    if length < 2:
        raise UnmaskError(f"length must be 2 or more, not {length}")
    return length


def params_to_generate(
    defaults: Mapping[str, Any], options: Mapping[str, Any], length: Length = None
) -> tuple[SamplingParams, Length]:
    """The options and the length of `generate`: those given, then the model's defaults.

    A sampler that is given has its own number of steps: the default one goes with the default sampler.
    """
    usual = dict(defaults)
    most = usual.pop("length", None)
    if options.get("sampler") is not None:
        usual = {name: usual[name] for name in usual if name not in _CLOCK}
    return SamplingParams.of(usual | _given(options), _WRITING), most if length is None else length


def params_to_fill(
    defaults: Mapping[str, Any], options: Mapping[str, Any], others: Collection[str] = ()
) -> SamplingParams:
    """The options of `fill` and `edit`: those given, then the model's defaults without length and steps."""
    usual = {name: defaults[name] for name in defaults if name not in _SIZE}
    return SamplingParams.of(usual | _given(options), others)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that are not None, in the flat form of a model's defaults."""
    return {name: value for name, value in flat_options(options).items() if value is not None}

"""How a text is to be written: the options that generate, fill, edit and stream share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_type_hints

from unmask.bundle import Bundle
from unmask.config.values import _value, read_value
from unmask.errors import UnmaskError, unknown
from unmask.samplers.sampler import Sampler

Length = int | Literal["auto"] | None
_CLOCK = ("sampler", "steps")
_SIZE = ("length", "steps")
_WRITING = ("length", "stop")  # what `generate` takes beside the fields of Sampling
EDITING = ("remask", "remask_span", "remask_uncertain")  # and `edit`

MOST_TEXTS = 2**20
ENDINGS = ("free", "first")
_PLAIN = ("n", "steps", "temperature", "top_k", "top_p", "tail", "batch", "guidance")


@dataclass(frozen=True)
class Sampling:
    """What decides how tokens are chosen; every field is an option of generate, fill, edit and stream."""

    n: int = 1  # texts for each prompt
    sampler: str | Sampler | None = None  # a name, "name:field=value,…", or a Sampler
    steps: int | None = None  # denoising steps; None: as many as tokens
    grid: str | None = None  # when they are taken: uniform, cosine, or times such as "1,0.5,0"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    strategy: str = "stochastic"  # or deterministic (the likeliest token), or hybrid (at the tail)
    tail: float | None = None  # the last share of a text, where hybrid takes the likeliest token
    ending: str = "free"  # or first: where a target ends is settled before its words
    seed: int | Sequence[int] = 0  # one, or one a text
    batch: int = 64  # texts side by side

    regex: str | None = None  # that the whole text must match
    ban: Sequence[str] = ()  # phrases that must not occur in it
    include: Sequence[str] = ()  # phrases that must
    allowed: Mapping[int, Collection[str | int]] | None = None  # tokens by place in the text

    label: str | None = None  # the class of a model that was trained with labels
    guidance: float = 1.0  # how strongly it is followed: 1 is the model itself
    guide: Bundle | None = None  # another labelled model, whose gradient guides

    def __post_init__(self) -> None:
        if not 1 <= self.n <= MOST_TEXTS:
            raise UnmaskError(f"n must be 1 or more, and {MOST_TEXTS} at most, not {self.n}")
        if self.tail is not None and self.strategy != "hybrid":
            raise UnmaskError("tail is for strategy hybrid, which takes the likeliest tokens there")
        if self.ending not in ENDINGS:
            raise unknown("ending", self.ending, ENDINGS)
        if self.batch < 1:
            raise UnmaskError(f"batch must be 1 or more, not {self.batch}")
        for option in ("ban", "include"):
            phrases = getattr(self, option)
            phrases = (phrases,) if isinstance(phrases, str) else tuple(phrases)
            if not all(isinstance(phrase, str) for phrase in phrases):
                raise UnmaskError(f"{option} takes phrases, not {phrases}")
            object.__setattr__(self, option, phrases)

    @classmethod
    def of(cls, options: Mapping[str, Any], others: Collection[str] = ()) -> "Sampling":
        """From keyword arguments, of which none may be unknown; `others` would not be, but are not here."""
        known = {field.name for field in fields(cls)}
        hints = get_type_hints(cls)
        values = dict(options)
        for name, value in options.items():
            if name not in known:
                raise unknown("option", name, {*known, *others} - {name})
            if name in _PLAIN:
                values[name] = _value(hints[name], name, value)
        return cls(**values)


# what a model may have a usual value of: options of `generate`
USUAL = ("length", "sampler", "steps", "temperature", "top_k", "top_p")


def checked_defaults(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Usual values of options, each of its type."""
    for name in defaults:
        if name not in USUAL:
            raise unknown("default", name, USUAL)
    given = dict(defaults)
    checked = {}
    if "length" in given:
        checked["length"] = _length(given.pop("length"))
    sampling = Sampling.of(given)
    return checked | {name: getattr(sampling, name) for name in given}


def _length(value: Any) -> int:
    try:
        length = read_value(int, value)
    except ValueError as error:
        raise UnmaskError(f"length: {error}") from None
    if length < 2:
        raise UnmaskError(f"length must be 2 or more, not {length}")
    return length


def params_to_generate(
    defaults: Mapping[str, Any], options: Mapping[str, Any], length: Length = None
) -> tuple[Sampling, Length]:
    """The options and the length of `generate`: those given, then the model's defaults.

    A sampler that is given has its own number of steps: the default one goes with the default sampler.
    """
    usual = dict(defaults)
    most = usual.pop("length", None)
    given = {name: value for name, value in options.items() if value is not None}
    if "sampler" in given:
        usual = {name: usual[name] for name in usual if name not in _CLOCK}
    return Sampling.of(usual | given, _WRITING), most if length is None else length


def params_to_fill(
    defaults: Mapping[str, Any], options: Mapping[str, Any], others: Collection[str] = ()
) -> Sampling:
    """The options of `fill` and `edit`: those given, then the model's defaults without length and steps."""
    usual = {name: defaults[name] for name in defaults if name not in _SIZE}
    given = {name: value for name, value in options.items() if value is not None}
    return Sampling.of(usual | given, others)

"""How a text is to be written: the options that generate, fill, edit and stream share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, get_type_hints

from unmask.config.values import read_value
from unmask.errors import UnmaskError, unknown
from unmask.samplers.core.time_grid import given_times
from unmask.samplers.left_to_right import LeftToRight
from unmask.samplers.sampler import SAMPLERS, Sampler
from unmask.samplers.semi_autoregressive import SemiAutoregressive

if TYPE_CHECKING:
    from unmask.api.model import Model

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
    guide: "Model | None" = None  # another labelled model, whose gradient guides

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
        hints = get_type_hints(cls, localns={"Model": object})
        values = dict(options)
        for name, value in options.items():
            if name not in known:
                raise unknown("option", name, {*known, *others} - {name})
            if name in _PLAIN:
                values[name] = _value(hints[name], name, value)
        return cls(**values)


def choose_sampler(sampling: Sampling, left_to_right: bool, openings: int) -> Sampler:
    """The sampler that was asked for, with as many steps as there are open places unless told."""
    usual = "left_to_right" if left_to_right else "ancestral"
    chosen = sampling.sampler
    if isinstance(chosen, Sampler):
        if sampling.steps is not None or sampling.grid is not None:
            raise UnmaskError("steps and grid go with a sampler's name: this one has its own")
    else:
        clock = {"steps": sampling.steps, "grid": sampling.grid}
        clock = {option: value for option, value in clock.items() if value is not None}
        chosen = read_sampler(chosen or usual, clock, openings, usual)
    inner = chosen.inner if isinstance(chosen, SemiAutoregressive) else chosen
    if left_to_right and not isinstance(inner, LeftToRight):
        raise UnmaskError("an autoregressive model has one sampler: left_to_right")
    return chosen


def read_sampler(spec: str, clock: dict[str, Any], openings: int, usual: str) -> Sampler:
    """A sampler from `NAME` or `NAME:field=value,…`; `clock` is the steps and grid asked for."""
    name, _, rest = spec.partition(":")
    kind: Any = SAMPLERS[name]
    hints = {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}
    given = dict(part.partition("=")[::2] for part in rest.split(",") if part)
    settable = [field for field in hints if field not in ("lead", "end")]  # these follow the model
    for field in given:
        if field not in settable:
            raise unknown(f"setting of {name}", field, settable)
    values: dict[str, Any] = {}
    if "inner" in hints:  # which runs by the clock where the outer one has none
        inner_clock, clock = ({}, clock) if "steps" in hints else (clock, {})
        inner = given.pop("inner", usual)
        if inner.partition(":")[0] == name:
            raise UnmaskError(f"{name} cannot be its own inner sampler")
        values["inner"] = read_sampler(inner, inner_clock, openings, usual)
    values |= {
        field: _value(hints[field], f"{name}:{field}", text) for field, text in given.items()
    }
    for option, value in clock.items():
        if option not in hints:
            raise UnmaskError(f"the sampler {name} has no {option}: leave it out")
        values.setdefault(option, value)
    if "steps" in hints and "steps" not in values:
        times = given_times(values.get("grid", "uniform"))
        values["steps"] = max(openings, 1) if times is None else len(times) - 1
    return kind(**values)


def in_windows(sampler: Sampler, window: int, lead: int, end: int | None) -> Sampler:
    """The sampler in windows of the model's length, framed as the training rows are."""
    if not isinstance(sampler, SemiAutoregressive):
        return SemiAutoregressive(window, inner=sampler, lead=lead, end=end)
    return replace(sampler, window=min(sampler.window, window), lead=lead, end=end)


def _value(hint: Any, field: str, text: Any) -> Any:
    try:
        return read_value(hint, text)
    except ValueError as error:
        raise UnmaskError(f"{field}: {error}") from None

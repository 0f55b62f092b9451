"""Logits processors: registered changes of the distribution that a token is drawn from.

Their options import no torch, so `unmask generate --help` starts at once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from unmask.errors import UnmaskError, unknown
from unmask.options import Option, options_of
from unmask.registry import Registry

if TYPE_CHECKING:
    from unmask.shapes import At, LogProbabilities, Tokens


class LogitsProcessor(ABC):
    """Changes distributions before tokens are drawn, with every sampler.

    A processor NAME adds its options to the sampling options on every surface: `--NAME.field
    value`, `{"NAME": {"field": value}}` over HTTP, `NAME.field=value` in the harness, a control of
    the playground, and `generate(NAME={"field": value})`.
    It is active if one of its options is given.

    Temperature, top-k, top-p and banned tokens are no processors. They are fused into the draw,
    which CUDA graphs replay. A processor is called from Python at every step.

    Example:
        >>> @LOGITS_PROCESSORS.register("flat")
        ... class Flat(LogitsProcessor):
        ...     Options = FlatOptions  # a frozen dataclass of `option` fields
        ...     def __call__(self, log_probs, ids, at):
        ...         return log_probs * self.options.power
    """

    Options: ClassVar[type]

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def __call__(
        self, log_probs: "LogProbabilities", ids: "Tokens", at: "At"
    ) -> "LogProbabilities":
        """The changed distributions, after temperature, top-k and top-p.

        Args:
            log_probs: Log-probabilities [positions, vocabulary]; -inf for tokens excluded so far.
            ids: The rows [rows, length], whole rows also in a window,
                with the mask id at open positions.
            at: Row and column of each position.

        Returns:
            Log-probabilities of the same shape, normalised or not. Excluded tokens stay excluded.
        """


LOGITS_PROCESSORS: Registry[LogitsProcessor] = Registry("logits processor")


def processor_options(surface: str | None = None) -> dict[str, list[Option]]:
    """The options of each registered processor, named NAME.field; with `surface`,
    only those of that surface.
    """
    return {
        name: [
            replace(one, name=f"{name}.{one.name}")
            for one in options_of(LOGITS_PROCESSORS[name].Options, surface)
        ]
        for name in LOGITS_PROCESSORS
    }


def flat_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with NAME={field: value} of a processor flattened to NAME.field."""
    flat: dict[str, Any] = {}
    groups = dict(options.get("processors") or {})
    for name, value in options.items():
        if isinstance(value, Mapping) and name in LOGITS_PROCESSORS:
            groups[name] = value
        elif name != "processors":
            flat[name] = value
    for name, fields in groups.items():
        flat |= {f"{name}.{field}": value for field, value in fields.items()}
    return flat


def read_processors(given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The options of each active processor, parsed and checked,
    in alphabetical order of processors.

    Args:
        given: The fields of each processor, by its name.

    Returns:
        The fields with values of the declared types; a processor without a field is left out.
    """
    from unmask.config.values import read_option  # it imports torch

    read: dict[str, dict[str, Any]] = {}
    for name in sorted(given):
        known = {one.name: one for one in options_of(LOGITS_PROCESSORS[name].Options)}
        for field, value in given[name].items():
            if field not in known:
                raise unknown(f"option of {name}", field, known)
            if value is not None:
                one = replace(known[field], name=f"{name}.{field}")
                read.setdefault(name, {})[field] = read_option(one, value)
        needed = [one.name for one in known.values() if one.required]
        missing = [field for field in needed if name in read and field not in read[name]]
        if missing:
            raise UnmaskError(f"{name} needs {missing[0]}: give {name}.{missing[0]}")
    return read


def build_processors(read: Mapping[str, Mapping[str, Any]]) -> tuple[LogitsProcessor, ...]:
    """Processors from options that `read_processors` has checked."""
    kinds = {name: LOGITS_PROCESSORS[name] for name in read}
    return tuple(kind(kind.Options(**read[name])) for name, kind in kinds.items())

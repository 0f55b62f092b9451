"""Why a row can hold no text that satisfies its constraint, in one line."""

from typing import TYPE_CHECKING

import torch

from unmask.constraints.machine import ByteMachine

if TYPE_CHECKING:
    from unmask.constraints.constraint import Compiled

SHOWN = 60  # characters of a text in a message


def reason(compiled: "Compiled", row: list[int], start: int) -> str:
    """The most telling reason: a phrase in the fixed text, one part's length, then parts together."""
    written = compiled.fixed_text(row, start)
    for phrase in compiled.constraint.ban:
        if phrase.encode() in written:
            return f"the fixed text contains {quoted(phrase)}, which is banned"
    for name, machine in compiled.machines:
        why = _alone(compiled, name, machine, row, start)
        if why:
            return why
    names = [name for name, _ in compiled.machines]
    if compiled.constraint.allowed:
        names.append("the allowed tokens")
    together = f"{', '.join(names)} together" if len(names) > 1 else "".join(names)
    return f"no text of {tokens(written.room)} satisfies {together}{_beside(compiled, row, start)}"


def _alone(
    compiled: "Compiled", name: str, machine: ByteMachine, row: list[int], start: int
) -> str | None:
    """Why one part alone has no text, if it has none."""
    lifted = compiled.lift(machine)
    if lifted.feasible(torch.tensor([row]), start).item():
        return None
    room = compiled.fixed_text(row, start).room
    fitting = lifted.lengths(room)
    if not fitting:
        return f"no text in this vocabulary satisfies {name}"
    if room in fitting:
        return f"{name} does not fit{_beside(compiled, row, start)}"
    below, above = [n for n in fitting if n < room], [n for n in fitting if n > room]
    if not below:
        return f"{name} needs at least {tokens(above[0])} and there is room for {room}"
    if not above:
        return f"{name} takes at most {tokens(below[-1])} and there are {room} to fill"
    return f"{name} fits {below[-1]} or {above[0]} tokens, but not {room}"


def _beside(compiled: "Compiled", row: list[int], start: int) -> str:
    """The fixed text, as far as a message has room for it."""
    runs = [run.decode("utf-8", "replace") for run in compiled.fixed_text(row, start).runs]
    return f" beside the fixed text {quoted('…'.join(runs))}" if any(runs) else ""


def quoted(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


def tokens(count: int) -> str:
    """A number of tokens in words."""
    return f"{count} token{'s' if count != 1 else ''}"

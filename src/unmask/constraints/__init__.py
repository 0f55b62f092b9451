"""Constraints as one mechanism: whatever is asked of a text becomes one automaton over its tokens."""

from unmask.constraints.compiled import Compiled
from unmask.constraints.constraint import Constraint

__all__ = ["Compiled", "Constraint"]

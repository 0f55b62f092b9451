"""Constraints as one mechanism: whatever is asked of a text becomes one automaton over its tokens."""

from unmask.constraints.constraint import Compiled, Constraint

__all__ = ["Compiled", "Constraint"]

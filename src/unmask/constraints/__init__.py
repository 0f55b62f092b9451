"""Constraints on a text (regular expression, phrases, allowed tokens)
as one automaton over tokens.
"""

from unmask.constraints.compiled import Compiled
from unmask.constraints.constraint import Constraint

__all__ = ["Compiled", "Constraint"]

"""Fast forms of a method's computations."""

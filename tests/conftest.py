"""Wherever tensors are the subject, tests run with the shapes of all signatures checked."""

from hypothesis import settings
from jaxtyping import install_import_hook

CHECKED = ["randomness", "diffusion", "backbones", "constraints", "methods", "samplers"]

install_import_hook([f"unmask.{name}" for name in CHECKED], "beartype.beartype")
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("laws")

"""Wherever tensors are the subject, tests run with the shapes of all signatures checked."""

import os

import torch
from hypothesis import settings
from jaxtyping import install_import_hook

if (
    not torch.cuda.is_available()
):  # Triton reads it when it is first imported, by whatever test that is
    os.environ["TRITON_INTERPRET"] = "1"

CHECKED = ["randomness", "diffusion", "backbones", "constraints", "methods", "samplers"]

install_import_hook([f"unmask.{name}" for name in CHECKED], "beartype.beartype")
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("laws")

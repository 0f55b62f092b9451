"""Every test runs with the shapes and types of all signatures checked."""

from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("unmask", "beartype.beartype")
settings.register_profile("laws", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("laws")

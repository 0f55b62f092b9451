"""Checks of models and sources on the command line that need no torch,
whose import takes seconds.
"""

from unmask.data.documents.fields import Fields
from unmask.data.documents.separation import AUTO
from unmask.data.sources.open_source import open_corpus, scheme_of
from unmask.files.hub import hub_name
from unmask.shipped import locate


def check_model(model: str) -> None:
    """Raises an error if a model is neither a folder, a shipped model nor a name on the hub."""
    if hub_name(model) is None:
        locate(model)


def check_source(source: str) -> None:
    """Raises an error if a source is a path without a file or folder."""
    if scheme_of(source) is None:
        open_corpus(source, Fields(AUTO, "text"))


def check_settings(overrides: list[tuple[str, str]]) -> None:
    """Raises an error if a setting names a text or a model that does not exist."""
    for name, value in overrides:
        mixture = value.startswith("[")
        if value and name in ("data.train", "data.valid") and not mixture:
            check_source(value)
        elif value and name in ("init_from", "teacher"):
            check_model(value)

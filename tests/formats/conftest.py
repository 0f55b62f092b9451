"""The fixtures `model` and `folder`."""

from hub_fixtures import folder, model  # noqa: F401

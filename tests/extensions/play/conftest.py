"""A tiny trained model behind the page, and a browser to look at it."""

from collections.abc import Iterator

import pytest
from local_server import LocalServer


@pytest.fixture(scope="module")  # an engine hooks the model that other tests trace
def server(model, left_to_right) -> Iterator[LocalServer]:
    with LocalServer({"tiny": model, "backwards": left_to_right}) as server:
        yield server

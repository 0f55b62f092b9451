"""Calls in a packed batch: each has the result of the call alone, to the bit."""

import pytest
import torch
from builders import known

from unmask.backbones.backbone import BACKBONES
from unmask.backbones.layers.attention import Call
from unmask.backbones.layers.state import GraphKVState, KVState
from unmask.vocabulary import Vocabulary

NAMES = list(BACKBONES)
SIZE = 37
SHAPES = [(1, 24), (3, 24), (2, 7), (1, 1), (1, 40), (5, 3)]  # rows and length


def network(name: str, **fields: object):
    """A small network with no weight at zero, frozen as the server freezes it."""
    kind = BACKBONES[name]
    shape = {"width": 64, "depth": 2, "heads": 2, "dropout": 0.0, "condition_width": 16, **fields}
    vocabulary = Vocabulary(SIZE, SIZE - 1, complement_ids=tuple(range(SIZE)))
    built = kind(kind.Config(**known(kind.Config, shape)), vocabulary)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
    built.eval().freeze(torch.float32)
    return built


def calls(timed: bool = False) -> list[Call]:
    generator = torch.Generator().manual_seed(1)
    return [
        Call(
            torch.randint(0, SIZE, shape, generator=generator),
            torch.rand(shape[0], generator=generator) if timed else None,
        )
        for shape in SHAPES
    ]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.inference_mode():
        yield
    torch.set_num_threads(before)


def check(built, asked: list[Call]) -> None:
    found = built.together(asked)
    for call, h in zip(asked, found, strict=True):
        assert torch.equal(built.together([call])[0], h)
        torch.testing.assert_close(h, built.features(call.inputs, call.condition))


@pytest.mark.parametrize("name", NAMES)
def test_packed_calls_of_all_lengths_equal_calls_alone(name):
    check(network(name), calls())


def test_each_row_is_modulated_by_its_own_time():
    check(network("dit", time_conditioning=True), calls(timed=True))


@pytest.mark.parametrize("name", [*NAMES, "timed"])
def test_some_tokens_of_packed_calls_equal_calls_alone(name):
    timed = name == "timed"
    built = network("dit", time_conditioning=True) if timed else network(name)
    asked = [
        call._replace(at=torch.arange(0, call.inputs.numel(), 5).flip(0)) for call in calls(timed)
    ]
    found = built.together(asked)
    for call, h in zip(asked, found, strict=True):
        assert torch.equal(built.together([call])[0], h)
        whole = built.features(call.inputs, call.condition).flatten(0, 1)
        torch.testing.assert_close(h, whole[call.at])


def test_caches_of_different_lengths_can_be_packed():
    built = network("causal")
    texts = torch.randint(0, SIZE, (4, 20), generator=torch.Generator().manual_seed(2))
    read = [3, 9, 0, 15]  # tokens in the cache of each call

    def asked() -> list[Call]:
        found = []
        for text, start in zip(texts, read, strict=True):
            cache = KVState(20)
            if start:
                built.features(text[None, :start], state=cache)
            found.append(Call(text[None, start : start + 2], state=cache))
        return found

    company = asked()
    together = built.together(company)
    for call, alone, text, start, h in zip(company, asked(), texts, read, together, strict=True):
        assert torch.equal(built.together([alone])[0], h)
        assert call.state is not None and call.state.length == start + 2
        whole = built.features(text[None, : start + 2])[:, start:]
        torch.testing.assert_close(h, whole)
        one = GraphKVState(call.state, torch.tensor([start + 2]), start + 3)
        position = torch.tensor([start + 2])
        (more,) = built.together([Call(text[None, start + 2 : start + 3], None, position, one)])
        torch.testing.assert_close(more, built.features(text[None, : start + 3])[:, -1:])

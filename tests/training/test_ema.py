"""The average of the weights: its arithmetic, and swapping it into a model and back."""

import pytest
import torch
from training_stand_in import TinyMethod

from unmask.training.ema import EMA, decay_at


def shifted(model, by):
    with torch.no_grad():
        for p in model.parameters():
            p += by


def test_the_average_follows_its_recursion():
    model = TinyMethod()
    ema = EMA(model, 0.5)
    expected = [p.detach().double() for p in model.parameters()]
    for step in range(1, 30):
        shifted(model, 0.1 * step)
        decay = decay_at(step, 0.5)
        expected = [
            decay * e + (1 - decay) * p.detach().double()
            for e, p in zip(expected, model.parameters(), strict=True)
        ]
        ema.update(step)
    for ours, theirs in zip(ema.average, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)


def test_the_decay_is_held_back_at_first():
    assert decay_at(0, 0.9999) == 0.1
    assert decay_at(10**6, 0.9999) == 0.9999


def test_swapped_puts_the_average_in_and_the_weights_back_even_after_an_error():
    model = TinyMethod()
    ema = EMA(model, 0.9)
    shifted(model, 1.0)
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ZeroDivisionError), ema.swapped():
        inside = model.state_dict()
        assert all(torch.equal(inside[name], value) for name, value in ema.tensors().items())
        assert not torch.equal(inside["head.weight"], own["head.weight"])
        raise ZeroDivisionError
    assert all(torch.equal(model.state_dict()[name], value) for name, value in own.items())


def test_tensors_list_tied_names_and_buffers_as_the_model_does():
    model = TinyMethod()
    ema = EMA(model, 0.9)
    shifted(model, 1.0)
    tensors = ema.tensors()
    assert tensors.keys() == model.state_dict().keys()
    assert torch.equal(tensors["head.weight"], tensors["backbone.embed.weight"])
    other = EMA(TinyMethod(), 0.9)
    shifted(other.model, 2.0)
    other.load(tensors)
    assert all(torch.equal(a, b) for a, b in zip(ema.average, other.average, strict=True))

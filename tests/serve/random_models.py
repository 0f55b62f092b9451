"""Models with random weights. Their texts are nonsense that depends on every input."""

import torch

from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.data.tokenizers.characters import CharacterTokenizer
from unmask.model import Model

LENGTH = 48
ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,!?'"


def random_model(method: str = "mdlm", backbone: str = "dit", **more: str) -> Model:
    """A small model of letters."""
    fields = {"width": "64", "depth": "2", "heads": "2", "dropout": "0", **more}
    choices = [
        ("data.tokenizer.kind", "characters"),
        ("data.length", str(LENGTH)),
        ("data.packing", "split"),
        ("method", method),
        ("backbone", backbone),
        *((f"backbone.{name}", value) for name, value in fields.items()),
    ]
    config = resolve({}, choices)
    tokenizer = CharacterTokenizer(ALPHABET)
    built = build_method(config, tokenizer.vocabulary)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    model = Model(built, tokenizer, config)
    model.method.serve()
    return model


def content(result) -> tuple:
    """All fields of a result except its time."""
    return result.text, result.ids, result.calls, result.seed

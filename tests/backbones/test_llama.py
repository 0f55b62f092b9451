"""The transformer of Llama, Qwen and Mistral equals the classes of transformers."""

import pytest
import torch
from llama_models import FAMILIES, tiny

from unmask.backbones.llama import Llama
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

LENGTH = 40


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("frozen", [False, True])
@torch.no_grad()
def test_logits_equal_those_of_transformers(family, frozen):
    theirs, ours = tiny(family)
    if frozen:
        ours.freeze(torch.float32)
    x = torch.randint(0, 50, (2, LENGTH), generator=torch.Generator().manual_seed(1))
    close(ours.logits(ours.features(x)), theirs(x).logits)

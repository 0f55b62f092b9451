"""Networks compiled: what is worth it, and at which shapes."""

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from unmask.backbones.base import Backbone
from unmask.backbones.classic import Layer
from unmask.backbones.transformer import Block
from unmask.errors import UnmaskError


def compile_backbone(backbone: Backbone, rows: Collection[int] | None = None) -> None:
    """Compile a network in place; names in its state dict do not change.

    With `rows`, batches of these sizes only: others, such as a sampler's in training, run as they
    are, since each new shape would cost half a minute. Without, batches of any size, the first size
    for itself and the others together.
    """
    vars(backbone).pop(backbone.compiled, None)  # what an earlier call put there
    plain = getattr(backbone, backbone.compiled)
    compiled = torch.compile(plain, dynamic=None if rows is None else False)

    def run(tokens: Tensor, *args: Any, **options: Any) -> Tensor:
        if rows is not None and len(tokens) not in rows:
            return plain(tokens, *args, **options)
        if options.get("at") is not None:  # another number every time
            torch._dynamo.maybe_mark_dynamic(options["at"], 0)
        return compiled(tokens, *args, **options)

    vars(backbone)[backbone.compiled] = run


def compile_blocks(backbone: Backbone) -> None:
    """Compile the blocks of a network one by one, in place: what happens between them is left alone."""
    for block in getattr(backbone, "blocks", ()):
        vars(block).pop("forward", None)
        block.forward = torch.compile(block.forward)


def recompute_blocks(backbone: Backbone, wanted: bool) -> None:
    """Let blocks keep only their input in training, and run again on the way back."""
    blocks = [block for block in backbone.modules() if isinstance(block, Block | Layer)]
    if wanted and not blocks:
        raise UnmaskError("training.checkpoint_activations needs a network made of blocks")
    for block in blocks:
        block.recomputed = wanted

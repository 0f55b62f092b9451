"""Networks compiled: what is worth it, and at which shapes."""

import logging
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from unmask.backbones.backbone import Backbone
from unmask.backbones.layers.transformer_block import Block
from unmask.backbones.pretrained import Layer
from unmask.errors import UnmaskError


def compile_backbone(backbone: Backbone, rows: Collection[int] | None = None) -> None:
    """Compile a network in place; names in its state dict do not change.

    With `rows`, batches of these sizes only: others, such as a sampler's in training, run as they
    are, since each new shape would cost half a minute. Without, batches of any size, the first size
    for itself and the others together.
    """
    vars(backbone).pop(backbone.compiled, None)  # what an earlier call put there
    plain = getattr(backbone, backbone.compiled)
    compiled = _with_one_line_errors(torch.compile(plain, dynamic=None if rows is None else False))

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
        block.forward = _with_one_line_errors(torch.compile(block.forward))


def recompute_blocks(backbone: Backbone, wanted: bool) -> None:
    """Let blocks keep only their input in training, and run again on the way back."""
    blocks = [block for block in backbone.modules() if isinstance(block, Block | Layer)]
    if wanted and not blocks:
        raise UnmaskError("training.checkpoint_activations needs a network made of blocks")
    for block in blocks:
        block.recomputed = wanted


def _with_one_line_errors(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose first call compiles; a machine that cannot compile gets an error of one line."""
    logging.getLogger("torch._inductor.scheduler").addFilter(_not_fatal)

    def run(*args: Any, **options: Any) -> Any:
        try:
            return compiled(*args, **options)
        except RuntimeError as error:
            reason = _missing(error)
            if reason is None:
                raise
            raise UnmaskError(
                f"this machine cannot compile the network ({reason}): install a C++ compiler and, "
                "for a GPU, Triton; or do without training.compile and --compile"
            ) from error

    return run


def _not_fatal(record: logging.LogRecord) -> bool:
    """Leaves out the pages that torch's compiler logs about an error before it raises it."""
    return record.levelno < logging.CRITICAL


def _missing(error: RuntimeError) -> str | None:
    """The reason for which torch's compiler failed, in one line; None if the error is not of the compiler."""
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import TritonMissing

    if not isinstance(error, BackendCompilerFailed | TritonMissing):
        return None
    inner = getattr(error, "inner_exception", error)
    if isinstance(inner, torch.OutOfMemoryError | MemoryError):
        return None
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    telling = [line for line in lines if "error:" in line]
    return (telling or lines or [type(inner).__name__])[0].rstrip(".")

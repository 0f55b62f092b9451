"""Compilation and activation checkpointing of networks."""

import logging
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor

from unmask.backbones.backbone import Backbone
from unmask.errors import UnmaskError

FORMS = 64  # most compiled forms of a block; further ones run uncompiled


def compile_backbone(backbone: Backbone, rows: Collection[int] | None = None) -> None:
    """Compiles a network in place. The keys of its state dict do not change.

    Each new batch size costs half a minute of compilation. With `rows`, other batch sizes run
    uncompiled, such as those of a sampler during training. Without `rows`, torch compiles
    twice: for the first batch size, and for all others together.

    Args:
        backbone: The network.
        rows: Batch sizes to compile; None for all.
    """
    vars(backbone).pop(backbone.compiled, None)  # the compiled function of an earlier call
    plain = getattr(backbone, backbone.compiled)
    compiled = _with_one_line_errors(torch.compile(plain, dynamic=None if rows is None else False))

    def run(tokens: Tensor, *args: Any, **options: Any) -> Tensor:
        if rows is not None and len(tokens) not in rows:
            return plain(tokens, *args, **options)
        if options.get("at") is not None:  # the number of tokens differs in every call
            torch._dynamo.maybe_mark_dynamic(options["at"], 0)
        return compiled(tokens, *args, **options)

    vars(backbone)[backbone.compiled] = run


def compile_blocks(backbone: Backbone, rows: Collection[int] | None = None) -> None:
    """Compiles the blocks of a network in place; code between the blocks stays uncompiled.

    All blocks share the code that torch compiles for one of them. On a GPU this takes a third of
    the time that the whole network takes, and the steps are as fast. A network without blocks is
    compiled as a whole.

    Args:
        backbone: The network.
        rows: Batch sizes to compile; None for all.
    """
    blocks = getattr(backbone, "blocks", ())
    if not len(blocks):
        compile_backbone(backbone, rows)
    # forms of a block: the first, the last and others, by mask, block size, segments or
    # neither, in training or not
    dynamo = torch._dynamo.config
    dynamo.recompile_limit = max(dynamo.recompile_limit, FORMS)
    for block in blocks:
        vars(block).pop("forward", None)  # the compiled function of an earlier call
        vars(block)["forward"] = _for_rows(rows, block.forward)


def _for_rows(rows: Collection[int] | None, plain: Callable[..., Any]) -> Callable[..., Any]:
    """A block's forward function, compiled for some batch sizes."""
    compiled = _with_one_line_errors(torch.compile(plain))

    def run(x: Tensor, *args: Any, **options: Any) -> Any:
        if rows is not None:
            if len(x) not in rows:
                return plain(x, *args, **options)
            # block diffusion alternates rows of two lengths: code for any length would be slower
            torch._dynamo.mark_static(x)
        return compiled(x, *args, **options)

    return run


def recompute_blocks(backbone: Backbone, wanted: bool) -> None:
    """Switches activation checkpointing on or off.

    With checkpointing, a block stores only its input and recomputes its activations in the backward
    pass.

    Args:
        backbone: The network.
        wanted: True to switch it on.

    Raises:
        UnmaskError: If the network has no blocks with an attribute `recomputed`.
    """
    blocks: list[Any] = [part for part in backbone.modules() if hasattr(part, "recomputed")]
    if wanted and not blocks:
        raise UnmaskError(
            "this backbone has no blocks to recompute: set training.checkpoint_activations false"
        )
    for block in blocks:
        block.recomputed = wanted


def _with_one_line_errors(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a compiled function so that a failed compilation raises a one-line error."""
    logging.getLogger("torch._inductor.scheduler").addFilter(_not_fatal)

    def run(*args: Any, **options: Any) -> Any:
        try:
            return compiled(*args, **options)
        except RuntimeError as error:
            reason = _compiler_failure(error)
            if reason is None:
                raise
            raise UnmaskError(
                f"this machine cannot compile the network ({reason}): install a C++ compiler and, "
                "for a GPU, Triton; or drop training.compile and --compile"
            ) from error

    return run


def _not_fatal(record: logging.LogRecord) -> bool:
    """Log filter: False for the critical records that torch's compiler writes before it raises."""
    return record.levelno < logging.CRITICAL


def _compiler_failure(error: RuntimeError) -> str | None:
    """The failure of torch's compiler in one line; None for other errors and for lack of memory."""
    from torch._dynamo.exc import BackendCompilerFailed
    from torch._inductor.exc import TritonMissing

    if not isinstance(error, BackendCompilerFailed | TritonMissing):
        return None
    inner = getattr(error, "inner_exception", error)
    if isinstance(inner, torch.OutOfMemoryError | MemoryError):
        return None
    lines = [line.strip() for line in str(inner).splitlines() if line.strip()]
    error_lines = [line for line in lines if "error:" in line]
    return (error_lines or lines or [type(inner).__name__])[0].rstrip(".")

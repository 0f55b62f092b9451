"""Residual block and configuration of the DiT and the causal transformer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from unmask.backbones.layers.attention import AttentionInputs, Features
from unmask.backbones.layers.dropout import Keys, dropout
from unmask.backbones.layers.inference_weights import InferenceWeights, is_plain
from unmask.backbones.layers.ops import (
    ALIGNED,
    EPS,
    BlockWeights,
    SwiGLU,
    feed_forward,
    gated,
    linear,
    modulate,
    normal,
    taken,
)
from unmask.backbones.layers.packed_batch import PackedBatch
from unmask.backbones.layers.rotary import Rotary
from unmask.errors import UnmaskError
from unmask.options import check_options, option

# width, depth, heads; the names are those of MDLM's authors
SIZES = {"tiny": (512, 8, 8), "small": (768, 12, 12), "medium": (1024, 24, 16)}

NORMS: dict[str, Callable[..., Any]] = {
    "layer": partial(nn.LayerNorm, bias=False, eps=EPS),
    "rms": partial(nn.RMSNorm, eps=EPS),
}
MLPS = ("gelu", "swiglu")
# linear layers that Muon optimizes, with the number of matrices stacked in each weight
MATRICES = {"attention.qkv": 3, "attention.out": 1, "mlp.0": 1, "mlp.2": 1}

Values = Float[Tensor, "rows length heads head_width"]  # values of attention


@dataclass(frozen=True)
class TransformerConfig:
    """Shape of a transformer: a size (tiny, small, medium), or width, depth and heads.

    A width, depth or heads of 0 takes the value of the size; the default size is small.
    """

    size: str = option("", among=("", *SIZES))
    width: int = option(0, ge=0, le=2**17)  # a limit for untrusted files, as those below
    depth: int = option(0, ge=0, le=2**10)
    heads: int = option(0, ge=0, le=2**10)
    dropout: float = option(0.1, ge=0, lt=1)

    def __post_init__(self) -> None:
        check_options(self)
        standard = SIZES[self.size or "small"]
        for name, value in zip(("width", "depth", "heads"), standard, strict=True):
            given = getattr(self, name)
            if self.size and given not in (0, value):
                raise UnmaskError(
                    f"size {self.size} has {name} {value}, not {given}: drop {name} or size"
                )
            object.__setattr__(self, name, given or value)
        self.check_heads()

    def check_heads(self) -> None:
        """Raises an error if the heads have no even width."""
        if self.width % (2 * self.heads):
            raise UnmaskError(
                f"width {self.width} does not split into {self.heads} heads of an even width: "
                f"choose a multiple of {2 * self.heads}"
            )

    @cached_property
    def rotary(self) -> Rotary:
        """The rotary positions of a head."""
        return Rotary(self.width // self.heads)


@dataclass(frozen=True)
class BlockConfig(TransformerConfig):
    """Shape of a transformer, and the form of its blocks; the defaults are the MDLM paper's."""

    qk_norm: bool = False  # RMS norm of the queries and keys of each head
    norm: str = option("layer", among=NORMS)
    mlp: str = option("gelu", among=MLPS)
    tied_head: bool = False  # the head's matrix is the embedding's
    zero_out: bool = False  # the blocks' output matrices start at zero; needs open gates
    value_residual: bool = False  # blocks mix their values with the first block's

    def block(self, layer: int) -> dict[str, Any]:
        """The arguments of the block of a layer."""
        names = ("width", "heads", "dropout", "qk_norm", "norm", "mlp", "zero_out")
        mixes = self.value_residual and layer > 0
        return {name: getattr(self, name) for name in names} | {"value_residual": mixes}


class Attention(nn.Module):
    """Weights of multi-head attention; `Block` computes it."""

    def __init__(
        self,
        width: int,
        heads: int,
        kv_heads: int = 0,  # heads of keys and values, which groups of heads share; 0: `heads`
        head_width: int = 0,  # 0: width / heads
        bias: bool = False,  # True: queries, keys and values have biases
        gains: bool = False,  # True: the norms of queries and keys have gains
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads = heads, kv_heads or heads
        self.head_width = head_width or width // heads
        self.qk_heads = self.heads + self.kv_heads
        self.qkv = nn.Linear(width, (self.qk_heads + self.kv_heads) * self.head_width, bias=bias)
        self.out = nn.Linear(self.heads * self.head_width, width, bias=False)
        self.query_gain = nn.Parameter(torch.ones(self.head_width)) if gains else None
        self.key_gain = nn.Parameter(torch.ones(self.head_width)) if gains else None

    @property
    def sections(self) -> tuple[int, int]:
        """Rows of `qkv` for queries and keys, and for values."""
        return self.qk_heads * self.head_width, self.kv_heads * self.head_width

    def normalized(self, qk: Tensor, eps: float) -> Tensor:
        """RMS norm of the queries and keys of each head, with their gains."""
        qk = F.rms_norm(qk, qk.shape[-1:], eps=eps)
        if self.query_gain is None or self.key_gain is None:
            return qk
        gains = self.query_gain.expand(self.heads, -1), self.key_gain.expand(self.kv_heads, -1)
        return (qk * torch.cat(gains)).to(qk.dtype)


class Block(InferenceWeights):
    """Pre-norm attention and MLP with residual connections, and adaLN if there is a condition.

    Without a condition per row, norm gains and adaLN are the same for all tokens. The block folds
    them into its matrices. They then cost no time per token, forward or backward.
    With adapters, quantised layers or hooks it calls its modules instead.
    """

    frozen: BlockWeights | None
    c: Tensor | None = None  # the condition of the frozen weights
    kept: bool = False  # True: inference reads the weights as they are, without a folded copy
    recomputed: bool = False  # activation checkpointing: the backward pass reruns the block

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float,
        condition_width: int = 0,
        gate: float = 0.0,
        by_row: bool = False,  # True if each row has its own condition
        zero_out: bool = False,  # True: output matrices start at zero
        qk_norm: bool = False,
        norm: str = "layer",
        mlp: str = "gelu",
        value_residual: bool = False,  # True: mixes its values with those of the first block
        eps: float = EPS,  # of RMS norms
        inner: int = 0,  # hidden values of the MLP; 0: about 8 width^2 weights
        mlp_bias: bool = True,
        experts: nn.Module | None = None,  # in place of the MLP
        **heads_form: Any,  # further arguments of `Attention`
    ) -> None:
        super().__init__()
        self.qk_norm, self.rms, self.eps = qk_norm, norm == "rms", eps
        self.attention_norm = NORMS[norm](width, eps=eps)
        self.attention = Attention(width, heads, **heads_form)
        self.mlp_norm = NORMS[norm](width, eps=eps)
        self.mlp = experts or _mlp(width, mlp, inner, mlp_bias)
        # queries count as one matrix for each group of heads, of the size of the keys' matrix
        stacked = self.attention.heads // self.attention.kv_heads + 2
        self.matrices = MATRICES | {"attention.qkv": stacked, "mlp.0": 1 if mlp == "gelu" else 2}
        self.dropout, self.by_row = dropout, by_row
        # weights of the own and of the first block's values (arXiv 2410.17897)
        self.value_mix = nn.Parameter(torch.full((2,), 0.5)) if value_residual else None
        self.modulation = zero_linear(condition_width, 6 * width) if condition_width else None
        if self.modulation is not None:
            for bias in self.modulation.bias.detach().chunk(6)[2::3]:
                bias.fill_(gate)
        if zero_out:
            assert isinstance(self.mlp, nn.Sequential)
            for parameter in (self.attention.out.weight, *self.mlp[2].parameters()):
                nn.init.zeros_(parameter)

    def forward(
        self,
        x: Features,
        layer: int,
        attention: AttentionInputs | PackedBatch,
        c: Float[Tensor, "times condition"] | None,
        keys: Keys | None,
        at: Int[Tensor, "tokens"] | None = None,
        first: Values | None = None,
    ) -> tuple[Float[Tensor, "*tokens width"], Values]:
        """Features and values of a block.

        Args:
            x: Features of all tokens.
            layer: Index of the block.
            attention: Rotation, mask and cache of attention.
            c: The condition, embedded.
            keys: Dropout keys of the rows; None for no dropout.
            at: Indices of the tokens to compute, into the flattened batch; None for all.
            first: Values of the first block, if this block mixes them with its own.

        Returns:
            Features of all tokens or of the tokens `at`,
            and the values of attention for all tokens.
        """
        if not self.recomputed or not torch.is_grad_enabled():
            return self._features(x, layer, attention, c, keys, at, first)
        # dropout is a function of its keys, so no generator state is saved
        args = (x, layer, attention, c, keys, at, first)
        return checkpoint(self._features, *args, use_reentrant=False, preserve_rng_state=False)

    def _features(
        self,
        x: Features,
        layer: int,
        attention: AttentionInputs | PackedBatch,
        c: Tensor | None,
        keys: Keys | None,
        at: Tensor | None,
        first: Values | None,
    ) -> tuple[Float[Tensor, "*tokens width"], Values]:
        length, drop = x.shape[1], self.dropout
        apart = self.kept and not torch.is_grad_enabled()
        if (self.by_row and c is not None) or apart or not self.plain:
            x, v = self._unfolded(x, layer, attention, c, keys, first)
            return x if at is None else taken(x, at), v
        w = self.usable or self.folded(c)
        y, v = self._attend(_products(normal(x, w, self.rms, self.eps), w), layer, attention, first)
        if at is not None:
            x, y = taken(x, at), taken(y, at)
        x = x + dropout(linear(y, w.out, None), drop, keys, 2 * layer, at, length)
        y = feed_forward(normal(x, w, self.rms, self.eps), w)
        return x + dropout(y, drop, keys, 2 * layer + 1, at, length), v

    @property
    def plain(self) -> bool:
        """True if no module of the block has an adapter, a hook or quantised weights."""
        # without `__getattr__`, which would take longer than the check
        own: dict[str, Any] = self._modules
        inner = (*own["attention"]._modules.values(), *own["mlp"]._modules.values())
        parts = (part for name, part in own.items() if name not in ("attention", "cross"))
        return is_plain(*parts, *inner)

    def freeze(self, c: Float[Tensor, "1 condition"] | None, dtype: torch.dtype) -> None:
        """Casts the weights once for inference;
        folds them first unless each row has its own condition.

        A block that is not plain stores `c` only.
        """
        self.c = c
        if self.plain:
            self.frozen = (self._plain() if self.by_row else self.folded(c)).frozen(dtype)
        else:
            self.thaw()

    def folded(self, c: Float[Tensor, "1 condition"] | None) -> BlockWeights:
        """The weights with norm gains and adaLN folded in."""
        plain = self._plain()
        gain, mlp_gain = self.attention_norm.weight, self.mlp_norm.weight
        if self.modulation is None:
            qkv = tuple(part * gain for part in plain.qkv)
            return plain._replace(qkv=qkv, up=plain.up * mlp_gain)
        assert c is not None, "the backbone is frozen, but this block is not"
        with torch.autocast(c.device.type, enabled=False):
            parts = self.modulation(c.to(gain.dtype))[0].chunk(6)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = parts
        assert plain.up_bias is not None and plain.down_bias is not None
        gain, mlp_gain = gain * (1 + scale), mlp_gain * (1 + mlp_scale)
        # W @ shift, written as a sum, so that a compiler fuses it with the scaling
        return BlockWeights(
            qkv=tuple(part * gain for part in plain.qkv),
            qkv_bias=tuple((part * shift).sum(1) for part in plain.qkv),
            out=plain.out * gate[:, None],
            up=plain.up * mlp_gain,
            up_bias=plain.up_bias + (plain.up * mlp_shift).sum(1),
            down=plain.down * mlp_gate[:, None],
            down_bias=plain.down_bias * mlp_gate,
        )

    def _plain(self) -> BlockWeights:
        """The weights as they are, with one matrix for queries and keys and one for values.

        With one matrix for all three, the values would be a view of a tensor that keeps the
        unrotated queries and keys in memory.
        """
        attention, mlp = self.attention, self.mlp
        assert isinstance(mlp, nn.Sequential)
        up, down = mlp[0], mlp[2]
        assert isinstance(up, nn.Linear) and isinstance(down, nn.Linear)
        qkv = attention.qkv.weight.split(attention.sections)
        bias: Any = attention.qkv.bias
        biases = (None, None) if bias is None else bias.split(attention.sections)
        out = attention.out.weight
        return BlockWeights(qkv, biases, out, up.weight, up.bias, down.weight, down.bias)

    def _unfolded(
        self,
        x: Features,
        layer: int,
        attention: AttentionInputs | PackedBatch,
        c: Float[Tensor, "times condition"] | None,
        keys: Keys | None,
        first: Values | None,
    ) -> tuple[Features, Values]:
        """The block with norms and adaLN apart from its matrices,
        and through its modules if not plain.
        """
        w = (self.usable or self._plain()) if self.plain else None
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self._condition(c, attention)
        h = modulate(self.attention_norm(x), shift, scale)
        products = [self.attention.qkv(h)] if w is None else _products(h, w)
        h, v = self._attend(products, layer, attention, first)
        h = self.attention.out(h) if w is None else linear(h, w.out, None)
        x = x + gated(dropout(h, self.dropout, keys, 2 * layer), gate)
        h = modulate(self.mlp_norm(x), mlp_shift, mlp_scale)
        h = self.mlp(h) if w is None else feed_forward(h, w)
        return x + gated(dropout(h, self.dropout, keys, 2 * layer + 1), mlp_gate), v

    def _condition(
        self, c: Tensor | None, attention: AttentionInputs | PackedBatch
    ) -> tuple[Tensor, ...] | tuple[int, ...]:
        """Shift, scale and gate of attention and MLP; those that change nothing without adaLN."""
        if self.modulation is None:
            return 0, 0, 1, 0, 0, 1
        values = self.modulation(self.c if c is None else c)
        return (attention.by_token(values) if self.by_row else values[:, None]).chunk(6, -1)

    def _attend(
        self,
        products: list[Tensor],
        layer: int,
        attention: AttentionInputs | PackedBatch,
        first: Values | None,
    ) -> tuple[Features, Values]:
        """Output of all attention heads, and their values;
        the texts of a packed batch attend separately.
        """
        own = self.attention
        by_head = [part.unflatten(2, (-1, own.head_width)) for part in products]
        qk, v = by_head if len(by_head) == 2 else by_head[0].split([own.qk_heads, own.kv_heads], 2)
        if self.qk_norm:
            qk = own.normalized(qk, self.eps)
        qk = attention.rotation(qk)
        if self.value_mix is not None and first is not None:
            v = self.value_mix[0] * v + self.value_mix[1] * first
        if isinstance(attention, AttentionInputs):
            return self._heads(qk, v, layer, attention), v
        parts = zip(attention.split(qk), attention.split(v), attention.parts, strict=True)
        return attention.join([self._heads(*part[:2], layer, part[2]) for part in parts]), v

    def _heads(self, qk: Tensor, v: Tensor, layer: int, attention: AttentionInputs) -> Features:
        """Attention of rotated queries and keys, by the carrier of the rule."""
        sizes = [self.attention.heads, self.attention.kv_heads]
        q, k = (part.transpose(1, 2) for part in qk.split(sizes, 2))
        v = v.transpose(1, 2)
        if attention.cache is not None:
            k, v = attention.cache.append(layer, k, v)
        y = attention.attend(q, k, v)
        return y.transpose(1, 2).flatten(2)


def _products(h: Features, w: BlockWeights) -> list[Tensor]:
    """Queries, keys and values as one tensor, or queries and keys apart from values."""
    return [linear(h, part, bias) for part, bias in zip(w.qkv, w.qkv_bias, strict=True)]


def _mlp(width: int, form: str, inner: int = 0, bias: bool = True) -> nn.Sequential:
    """Layers of a GELU or SwiGLU MLP (arXiv 2002.05202) with about 8 width^2 weights.

    A plain block computes the MLP from the weights with `feed_forward`.
    Other blocks call the Sequential.
    """
    if form == "gelu":
        hidden, rows = inner or 4 * width, 1
        activation: nn.Module = nn.GELU(approximate="tanh")
    else:
        hidden, rows = inner or -(-8 * width // 3 // ALIGNED) * ALIGNED, 2
        activation = SwiGLU()
    up, down = nn.Linear(width, rows * hidden, bias=bias), nn.Linear(hidden, width, bias=bias)
    return nn.Sequential(up, activation, down)


def zero_linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer whose weight and bias start at zero."""
    linear = nn.Linear(inputs, outputs)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


def embedding(vocabulary: int, width: int) -> nn.Embedding:
    """Token embeddings with the initial scale of MDLM's authors."""
    table = nn.Embedding(vocabulary, width)
    nn.init.kaiming_uniform_(table.weight, a=5**0.5)
    return table


def head(config: Any, table: nn.Embedding) -> nn.Linear:
    """The vocabulary projection: zero at first, or with the embedding's matrix."""
    projection = zero_linear(config.width, table.num_embeddings)
    if config.tied_head:
        projection.weight = table.weight
    return projection

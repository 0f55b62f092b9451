"""What the work asks of a machine: operations and bytes, counted from its shape alone."""

from dataclasses import dataclass, replace
from typing import Any

from unmask.backbones.layers.transformer_block import SIZES


@dataclass(frozen=True)
class Setting:
    """The shape of the work: rows of `length` tokens, `batch` at a time; `steps` is the sampler's T."""

    length: int = 1024
    vocabulary: int = 50_257
    batch: int = 64
    steps: int = 1000
    size: str = "small"
    shrunk: bool = False  # to a network that says nothing, to try a script out

    @property
    def shape(self) -> tuple[int, int, int]:
        """Width, depth and heads."""
        return (32, 2, 2) if self.shrunk else SIZES[self.size]

    def tiny(self) -> "Setting":
        """The same in small."""
        return replace(
            self,
            length=max(4, self.length // 64),
            vocabulary=max(16, self.vocabulary // 512),
            batch=min(self.batch, 4),
            steps=min(self.steps, 8),
            shrunk=True,
        )


def body(setting: Setting, context: float, wanted: float) -> float:
    """Operations of a token's way through the network up to its features.

    Two for each weight of a linear layer (24 width² a layer) and 4 · context · width a layer for the
    scores and sums of attention, which sees `context` tokens. What the last layer does behind its
    attention (18 width²) is needed at the share `wanted` of the tokens alone. Left out: norms,
    activations, rotation, the embedding, and adaLN, which without time conditioning is the same for
    all tokens.
    """
    width, depth, _ = setting.shape
    spared = 18 * width**2 * (1 - wanted)
    return depth * (24 * width**2 + 4 * context * width) - spared


def head(setting: Setting) -> int:
    """Operations of one projection onto the vocabulary."""
    return 2 * setting.shape[0] * setting.vocabulary


def loss(setting: Setting) -> float:
    """Operations a token of a bound: logits are wanted at masked tokens, half of them."""
    return body(setting, setting.length, wanted=0.5) + head(setting) / 2


def training(setting: Setting) -> float:
    """Operations a token of a training step: three times the bound's.

    What a kernel computes a second time, as flash attention does its scores and a fused head its
    logits on the way back, is not counted.
    """
    return 3 * loss(setting)


def filling(setting: Setting, calls: float) -> float:
    """Operations to fill a row in so many calls: each token's logits are wanted once."""
    call = body(setting, setting.length, wanted=1 / calls)
    return setting.length * (calls * call + head(setting))


def decoding(setting: Setting) -> float:
    """Operations to write a row from left to right with a cache; a token sees half a row on average."""
    return setting.length * (body(setting, setting.length / 2, wanted=1.0) + head(setting))


def decoding_bytes(setting: Setting) -> float:
    """Bytes to be read for a row of it: all weights once a token for the whole batch, and the row's cache.

    Two bytes a number; the embedding is looked up, not read.
    """
    width, depth, _ = setting.shape
    weights = 12 * depth * width**2 + width * setting.vocabulary
    cache = 2 * depth * width * setting.length / 2
    return 2 * setting.length * (weights / setting.batch + cache)


def against(found: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Operations a second, their share of the machine's matrix rate, and the floor under a measurement.

    The floor is the least that this machine could take: operations over its matrix rate, or bytes
    over its bandwidth where that is longer.
    """
    rate, bandwidth = machine["matrix_tflops"] * 1e12, machine["copy_gb_per_second"] * 1e9
    least = max(found["operations"] / rate, found.get("bytes", 0) / bandwidth)
    if "tokens_per_second" in found:
        done = found["tokens_per_second"] * found["operations"]
        floor = {"most_tokens_per_second": 1 / least}
    else:
        done = found["operations"] / found["seconds_per_sequence"]
        floor = {"least_seconds_per_sequence": least}
    return {"tflops": done / 1e12, "share_of_matrix_rate": done / rate, **floor}

"""Operations and bytes of training, sampling and evaluation, counted from the shape of the network and the batch."""

from dataclasses import dataclass, replace
from typing import Any

from unmask.backbones.layers.transformer_block import SIZES


@dataclass(frozen=True)
class Setting:
    """The shape of a workload: `batch` rows of `length` tokens; `steps` is the sampler's T."""

    length: int = 1024
    vocabulary: int = 50_257
    batch: int = 64
    steps: int = 1000
    size: str = "small"
    shrunk: bool = False  # to a tiny network, to try a script

    @property
    def shape(self) -> tuple[int, int, int]:
        """Width, depth and heads."""
        return (32, 2, 2) if self.shrunk else SIZES[self.size]

    def tiny(self) -> "Setting":
        """A tiny setting, to try a script."""
        return replace(
            self,
            length=max(4, self.length // 64),
            vocabulary=max(16, self.vocabulary // 512),
            batch=min(self.batch, 4),
            steps=min(self.steps, 8),
            shrunk=True,
        )


def body(setting: Setting, context: float, wanted: float) -> float:
    """Operations per token of the network up to its features.

    Each weight of a linear layer has two operations: 24 width² per layer. The scores and sums of attention over
    `context` tokens have 4 · context · width per layer. The part of the last layer after its attention (18 width²) is
    needed only at the share `wanted` of the tokens. Norms, activations, rotation and the embedding are left out. So is
    adaLN, which is the same for all tokens if there is no time conditioning.
    """
    width, depth, _ = setting.shape
    spared = 18 * width**2 * (1 - wanted)
    return depth * (24 * width**2 + 4 * context * width) - spared


def head(setting: Setting) -> int:
    """Operations of one projection onto the vocabulary."""
    return 2 * setting.shape[0] * setting.vocabulary


def loss(setting: Setting) -> float:
    """Operations per token of a bound. Half of the tokens are masked, and only these need logits."""
    return body(setting, setting.length, wanted=0.5) + head(setting) / 2


def training(setting: Setting) -> float:
    """Operations per token of a training step: three times those of the bound.

    Recomputation in the backward pass is not counted, such as the scores of flash attention and the logits of a fused
    head.
    """
    return 3 * loss(setting)


def filling(setting: Setting, calls: float) -> float:
    """Operations to fill a row in `calls` network calls. The logits of each token are needed once."""
    call = body(setting, setting.length, wanted=1 / calls)
    return setting.length * (calls * call + head(setting))


def decoding(setting: Setting) -> float:
    """Operations to generate a row from left to right with a cache. A token reads half a row on average."""
    return setting.length * (body(setting, setting.length / 2, wanted=1.0) + head(setting))


def decoding_bytes(setting: Setting) -> float:
    """Bytes that decoding reads per row: the weights once per token for the whole batch, and the row's cache.

    A number has two bytes. The embedding is looked up and not counted.
    """
    width, depth, _ = setting.shape
    weights = 12 * depth * width**2 + width * setting.vocabulary
    cache = 2 * depth * width * setting.length / 2
    return 2 * setting.length * (weights / setting.batch + cache)


def against(found: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Operations per second, their share of the machine's matrix rate, and the floor of a measurement.

    The floor is the shortest possible time on this machine: operations over its matrix rate, or bytes over its
    bandwidth if that is longer.
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

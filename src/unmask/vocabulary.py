"""Which ids mean something special: the one rule for where MASK lives."""

from dataclasses import dataclass

from unmask.errors import UnmaskError


@dataclass(frozen=True)
class Vocabulary:
    """The ids a network reads and writes: `size` of them, MASK included."""

    size: int
    mask_id: int
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None

    def __post_init__(self) -> None:
        named = {"mask": self.mask_id, "pad": self.pad_id, "bos": self.bos_id, "eos": self.eos_id}
        for name, token in named.items():
            if token is not None and not 0 <= token < self.size:
                raise UnmaskError(f"{name} id {token} lies outside a vocabulary of {self.size}")
            if name != "mask" and token == self.mask_id:
                raise UnmaskError(
                    f"{name} id equals the mask id ({token}): every {name} would be read as noise"
                )

    @classmethod
    def over(
        cls,
        tokens: int,
        mask_id: int | None = None,
        pad_id: int | None = None,
        bos_id: int | None = None,
        eos_id: int | None = None,
    ) -> "Vocabulary":
        """A vocabulary over a tokenizer's `tokens` ids; MASK becomes the next id if it has none."""
        if mask_id is None:
            return cls(tokens + 1, tokens, pad_id, bos_id, eos_id)
        return cls(tokens, mask_id, pad_id, bos_id, eos_id)

"""Which ids mean something special: the one rule for where MASK lives."""

from dataclasses import asdict, dataclass
from typing import Any

from unmask.errors import UnmaskError

MOST_IDS = 2**24  # a file may claim any number, and a table has a row for each


@dataclass(frozen=True)
class Vocabulary:
    """The ids a network reads and writes: `size` of them, MASK included."""

    size: int
    mask_id: int
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    label_ids: tuple[int, ...] = ()  # the class tokens

    def __post_init__(self) -> None:
        object.__setattr__(self, "label_ids", tuple(self.label_ids))  # JSON has lists
        ids = (self.size, self.mask_id, self.pad_id, self.bos_id, self.eos_id)
        if not all(token is None or type(token) is int for token in ids):
            raise UnmaskError(f"a vocabulary's ids are whole numbers, not {ids}")
        if not 0 < self.size <= MOST_IDS:
            raise UnmaskError(
                f"a vocabulary of {self.size:,} ids; at most {MOST_IDS:,} are possible"
            )
        named = {"mask": self.mask_id, "pad": self.pad_id, "bos": self.bos_id, "eos": self.eos_id}
        for name, token in named.items():
            if token is not None and not 0 <= token < self.size:
                raise UnmaskError(f"{name} id {token} lies outside a vocabulary of {self.size}")
            if name != "mask" and token == self.mask_id:
                raise UnmaskError(
                    f"{name} id equals the mask id ({token}): every {name} would be read as noise"
                )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them; `Vocabulary(**…)` reads them."""
        fields = asdict(self)
        if not self.label_ids:
            del fields["label_ids"]
        return fields

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

"""Which ids mean something special: the one rule for where MASK lives."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from unmask.errors import UnmaskError

MOST_IDS = 2**24  # a file may claim any number, and a table has a row for each


@dataclass(frozen=True)
class Vocabulary:
    """The ids a network reads and writes: `size` of them, MASK included.

    `complement_ids` has a partner for every id, as A is T's in DNA; the partner of a partner is the id.
    """

    size: int
    mask_id: int
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    label_ids: tuple[int, ...] = ()  # the class tokens
    complement_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label_ids", tuple(self.label_ids))  # JSON has lists
        ids = (self.size, self.mask_id, self.pad_id, self.bos_id, self.eos_id)
        if not all(token is None or type(token) is int for token in ids):
            raise UnmaskError(f"a vocabulary's ids are whole numbers, not {ids}")
        if not all(type(label) is int and 0 <= label < self.size for label in self.label_ids):
            raise UnmaskError(f"label ids {self.label_ids} lie outside a vocabulary of {self.size}")
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
        if self.complement_ids is not None:
            self._check_partners(self.complement_ids)
            object.__setattr__(self, "complement_ids", tuple(self.complement_ids))  # JSON has lists

    def _check_partners(self, partners: Any) -> None:
        known = isinstance(partners, list | tuple) and len(partners) == self.size
        known = known and all(type(token) is int and 0 <= token < self.size for token in partners)
        if not known or any(partners[other] != token for token, other in enumerate(partners)):
            raise UnmaskError(
                f"complement_ids must hold a partner for each of {self.size} ids, and the partner of a "
                "partner must be the id itself"
            )

    def extended(self, size: int, pad_id: int | None = None) -> "Vocabulary":
        """The vocabulary with more ids behind its own, each its own partner.

        Args:
            size: ids in all.
            pad_id: the id of PAD, where the vocabulary has none yet.
        """
        partners = self.complement_ids
        if partners is not None:
            partners = (*partners, *range(self.size, size))
        pad_id = self.pad_id if pad_id is None else pad_id
        return replace(self, size=size, pad_id=pad_id, complement_ids=partners)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a JSON file has them, without labels and partners where there are none."""
        content = asdict(self)
        if not self.label_ids:
            del content["label_ids"]
        if self.complement_ids is None:
            del content["complement_ids"]
        return content

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

"""The vocabulary: its size and its special ids, MASK among them."""

from dataclasses import asdict, dataclass, replace
from typing import Any

from unmask.errors import UnmaskError

MOST_IDS = 2**24  # limit for untrusted files, since the embedding has a row for each id


@dataclass(frozen=True)
class Vocabulary:
    """The token ids of a network: their number `size`, which includes MASK, and the special ids.

    `complement_ids` has the complement of each id, such as T for A in DNA. The complement of a
    complement is the id itself.
    """

    size: int
    mask_id: int
    pad_id: int | None = None
    bos_id: int | None = None
    eos_id: int | None = None
    label_ids: tuple[int, ...] = ()  # ids of the class labels
    complement_ids: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "label_ids", tuple(self.label_ids))  # JSON has lists
        ids = (self.size, self.mask_id, self.pad_id, self.bos_id, self.eos_id)
        if not all(token is None or type(token) is int for token in ids):
            raise UnmaskError(f"the ids of a vocabulary must be integers, not {ids}")
        if not all(type(label) is int and 0 <= label < self.size for label in self.label_ids):
            raise UnmaskError(f"label ids {self.label_ids} lie outside a vocabulary of {self.size}")
        if not 0 < self.size <= MOST_IDS:
            raise UnmaskError(f"the vocabulary has {self.size:,} ids: choose 1 to {MOST_IDS:,}")
        named = {"mask": self.mask_id, "pad": self.pad_id, "bos": self.bos_id, "eos": self.eos_id}
        for name, token in named.items():
            if token is not None and not 0 <= token < self.size:
                raise UnmaskError(f"{name} id {token} lies outside a vocabulary of {self.size}")
            if name != "mask" and token == self.mask_id:
                raise UnmaskError(
                    f"{name} id equals the mask id ({token}): choose another {name} id"
                )
        if self.complement_ids is not None:
            self._check_complements(self.complement_ids)
            object.__setattr__(self, "complement_ids", tuple(self.complement_ids))  # JSON has lists

    def _check_complements(self, complements: Any) -> None:
        valid = isinstance(complements, list | tuple) and len(complements) == self.size
        valid = valid and all(
            type(token) is int and 0 <= token < self.size for token in complements
        )
        if not valid or any(complements[other] != token for token, other in enumerate(complements)):
            raise UnmaskError(
                f"complement_ids must hold a complement for each of {self.size} ids, and the "
                "complement of a complement must be the id itself"
            )

    def extended(self, size: int, pad_id: int | None = None) -> "Vocabulary":
        """The vocabulary with more ids at its end, each its own complement.

        Args:
            size: New number of ids.
            pad_id: The id of PAD, if the vocabulary has none.

        Returns:
            The larger vocabulary.

        Example:
            >>> Vocabulary(10, mask_id=9).extended(12, pad_id=11).pad_id
            11
        """
        complements = self.complement_ids
        if complements is not None:
            complements = (*complements, *range(self.size, size))
        pad_id = self.pad_id if pad_id is None else pad_id
        return replace(self, size=size, pad_id=pad_id, complement_ids=complements)

    def to_dict(self) -> dict[str, Any]:
        """The fields for a JSON file.

        Returns:
            The fields by name, without empty `label_ids` and `complement_ids`.

        Example:
            >>> Vocabulary(10, mask_id=9).to_dict()
            {'size': 10, 'mask_id': 9, 'pad_id': None, 'bos_id': None, 'eos_id': None}
        """
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
        """The vocabulary of a tokenizer with `tokens` ids; without `mask_id`,
        MASK becomes the last id.
        """
        if mask_id is None:
            return cls(tokens + 1, tokens, pad_id, bos_id, eos_id)
        return cls(tokens, mask_id, pad_id, bos_id, eos_id)

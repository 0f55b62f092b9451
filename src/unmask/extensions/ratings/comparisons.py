"""Comparisons of two texts: of two models for a prompt,
and attention checks with a known answer.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import combinations
from typing import Any

from unmask.errors import UnmaskError

PASSAGES = 12  # of attention.txt
REAL, NONSENSE = "real text", "shuffled words"  # the two sides of an attention check


@dataclass(frozen=True)
class Comparison:
    """Two texts to compare. An attention check has a real text first and its
    words shuffled second.
    """

    prompt: str
    names: tuple[str, str]  # models
    texts: tuple[str, str]
    number: int = 0  # of the prompt
    check: bool = False

    @property
    def id(self) -> str:
        """A name that depends on the content only and reveals no model."""
        content = json.dumps(asdict(self), sort_keys=True).encode()
        return hashlib.sha256(content).hexdigest()[:16]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> "Comparison":
        """The comparison of a record that `asdict` made."""
        pairs = {name: tuple(record[name]) for name in ("names", "texts")}
        return cls(**{**record, **pairs})


def compare_texts(texts: Mapping[str, Sequence[str]], prompts: Sequence[str]) -> list[Comparison]:
    """The comparisons of every pair of models.

    Args:
        texts: the texts of each model by its name, one for each prompt.
        prompts: the prompts; an empty one is a text without a prompt.

    Returns:
        For each prompt a comparison of each pair of models, with the names in alphabetical order.

    Example:
        >>> [one] = compare_texts({"a": ["Tom ran."], "b": ["Tom sat."]}, ["Tom"])
        >>> one.names
        ('a', 'b')
    """
    return [
        Comparison(prompt, (a, b), (texts[a][number], texts[b][number]), number)
        for number, prompt in enumerate(prompts)
        for a, b in combinations(sorted(texts), 2)
    ]


def attention_checks(
    count: int, passages: Sequence[str] | None = None, seed: int = 0
) -> list[Comparison]:
    """Comparisons of a real text with the same words in random order.

    Args:
        count: the number of checks.
        passages: real texts; None takes short English passages of this package.
        seed: the seed of the choice and of the order of words.

    Returns:
        The checks.

    Example:
        >>> [check] = attention_checks(1)
        >>> sorted(check.texts[0].split()) == sorted(check.texts[1].split())
        True
    """
    if count < 0:
        raise UnmaskError(f"the number of attention checks must be 0 or more, not {count}")
    if passages is None:
        passages = files(__package__).joinpath("attention.txt").read_text("utf-8").splitlines()
    usable = [text for text in passages if len(set(text.split())) > 4]
    if len(usable) < count:
        raise UnmaskError(
            f"{count} attention checks need {count} real texts of five different words or more, and "
            f"there are {len(usable)}: give fewer checks or more real texts"
        )
    dice = random.Random(seed)
    chosen = dice.sample(usable, count)
    return [
        Comparison("", (REAL, NONSENSE), (text, _shuffled(text, dice)), number, check=True)
        for number, text in enumerate(chosen)
    ]


def _shuffled(text: str, dice: random.Random) -> str:
    words = text.split()
    while (other := dice.sample(words, len(words))) == words:
        pass
    return " ".join(other)

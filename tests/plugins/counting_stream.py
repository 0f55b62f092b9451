"""An endless source, `sums:SEED`: each document is a sum that depends on its number."""

from collections.abc import Iterator
from itertools import count
from random import Random

from unmask.data.documents.fields import Fields
from unmask.data.sources.corpus import SOURCES, Corpus, Source
from unmask.errors import UnmaskError


@SOURCES.register("sums:")
class Sums(Source):
    """Endless sums such as 3+4=7, by a seed: sums:SEED."""

    anywhere = True  # the same sums on every machine

    @classmethod
    def open(cls, spec: str, fields: Fields) -> Corpus:
        if not spec.isdecimal():
            raise UnmaskError(f"sums:{spec} has no seed: give a whole number, as in sums:3")

        def documents(start: int) -> Iterator[str]:
            for number in count(start):
                dice = Random(f"{spec}/{number}")
                a, b = dice.randrange(100), dice.randrange(100)
                yield f"{a}+{b}={a + b}"

        return Corpus.stream(f"sums:{spec}", documents)

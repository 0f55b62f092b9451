"""What may be written at a place is what some completion of the row has there: all of them listed."""

import re
from collections.abc import Collection, Mapping
from itertools import product

import pytest
import torch

from unmask.constraints import Constraint
from unmask.constraints.tokens import MOST_DENSE
from unmask.vocabulary import Vocabulary

# one vocabulary of overlapping pieces, one of broken characters; then BOS, EOS, PAD, MASK
WORDS = [b"a", b"ab", b"b"]
HALVES = [b"a", b"\xc3", b"\xa9", "é".encode()]
LENGTH = 4  # BOS and three places
CASES = [
    (WORDS, Constraint(), ()),
    (WORDS, Constraint("a+b*"), ()),
    (WORDS, Constraint("(ab)*"), ()),
    (WORDS, Constraint("a?b?a?|bb"), (4,)),
    (WORDS, Constraint(ban=("ba", "aa")), (3, 4, 5)),
    (WORDS, Constraint(ban=("abb",), include=("bab",)), ()),
    (WORDS, Constraint(include=("aa", "ba")), (1,)),
    (WORDS, Constraint("(a|b){3}", allowed={2: {0, 2}}), ()),
    (
        WORDS,
        Constraint("a.*", ban=("bb",), include=("b",), allowed={1: {0, 1}, 3: {1, 4, 5}}),
        (2,),
    ),
    (WORDS, Constraint(allowed={2: {1}, 3: {1, 4}}), (4,)),
    (HALVES, Constraint("é+a?"), ()),
    (HALVES, Constraint("[^a]*", ban=("éé",)), ()),
    (HALVES, Constraint(include=("é",)), (5,)),
    (HALVES, Constraint(ban=("�",)), ()),
]


def listing(pieces, constraint: Constraint, never: Collection[int]) -> Mapping:
    """Every full row that satisfies the constraint, by its tokens."""
    bos = len(pieces)
    eos = bos + 1

    def good(row: tuple[int, ...]) -> bool:
        text = row[1 : row.index(eos, 1)] if eos in row[1:] else row[1:]
        raw = b"".join(pieces[t] for t in text if t < bos)
        shown = raw.decode("utf-8", "replace")
        if constraint.regex is not None and (
            shown.encode() != raw or not re.fullmatch(constraint.regex, shown)
        ):
            return False
        return (
            not any(phrase in shown for phrase in constraint.ban)
            and all(phrase in shown for phrase in constraint.include)
            and all(row[column] in ids for column, ids in constraint.allowed.items())
        )

    every = product([bos], *[range(bos + 3)] * (LENGTH - 1))
    return {row: None for row in every if good(row)}


def expected(row, column: int, rows, special: range, eos: int, never) -> set[int]:
    """The tokens of completions at a place: none in `never`, special ones behind the end only."""
    found = set()
    for full in rows:
        written = [i for i in range(LENGTH) if row[i] == special[-1]]
        ends = full.index(eos, 1) if eos in full[1:] else LENGTH
        if all(full[i] == row[i] for i in range(LENGTH) if i not in written) and not any(
            full[i] in never or (full[i] in special and full[i] != eos and i < ends)
            for i in written
        ):
            found.add(full[column])
    return found


@pytest.mark.parametrize(("pieces", "constraint", "never"), CASES)
def test_allowed_is_what_some_completion_has(pieces, constraint, never):
    bos = len(pieces)
    special = range(bos, bos + 4)
    eos, mask = bos + 1, special[-1]
    vocabulary = Vocabulary(bos + 4, mask, bos + 2, bos, eos)
    compiled = constraint.compile([*pieces, None, None, None, None], vocabulary, never)
    rows = listing(pieces, constraint, never)
    # the middle place also holds BOS or PAD: shown as nothing
    partial = list(
        product([bos], [*range(bos), eos, mask], range(bos + 4), [*range(bos), eos, mask])
    )
    z = torch.tensor(partial)
    at = (z == mask).nonzero(as_tuple=True)
    allowed = compiled.allowed(z, at, 1)
    possible = compiled.machine.feasible(z, 1).tolist()
    answers = {}
    for r, column, tokens in zip(at[0].tolist(), at[1].tolist(), allowed.tolist(), strict=True):
        answers[r, column] = {token for token, may in enumerate(tokens) if may}
        assert answers[r, column] == expected(partial[r], column, rows, special, eos, never), (
            partial[r],
            column,
        )
        assert possible[r] == bool(answers[r, column])
    for r, row in enumerate(partial):
        if mask not in row:
            assert possible[r] == (row in rows)
    assert len({frozenset(tokens) for tokens in answers.values()}) > 1


def test_no_place_asked_for():
    compiled = Constraint("a*").compile([b"a", None, None], Vocabulary(3, 2, eos_id=1))
    none = torch.zeros(0, dtype=torch.long)
    assert compiled.allowed(torch.tensor([[2, 2]]), (none, none), 0).shape == (0, 3)


def test_large_machines_agree_with_small_ones():
    """Beyond MOST_DENSE states products are sparse; the answer for the same question is the same."""
    vocabulary = Vocabulary(4, 3, eos_id=2)
    pieces = [b"a", b"aaaa", None, None]
    z = torch.full((2, 90), 3)
    z[1, 40:50] = 0
    at = torch.tensor([0, 1, 1]), torch.tensor([70, 30, 89])
    for most in (60, MOST_DENSE + 40):  # of letters: with 90 tokens, fewer than 90 need EOS
        compiled = Constraint(f"a{{{most},{most}}}").compile(pieces, vocabulary)
        assert (len(compiled.machine.accepting) > MOST_DENSE) == (most > MOST_DENSE)
        compiled.check(z, 0)
        for _ in range(3):
            allowed = compiled.allowed(z, at, 0)
            assert allowed.any(1).all() and not allowed[:, 3].any()
    # 296 letters in 90 tokens: 68 or 69 tokens of four, so that no row can end early
    few = Constraint("a{360}").compile(pieces, vocabulary)
    assert few.allowed(z[:1], (at[0][:1], at[1][:1]), 0).tolist() == [[False, True, False, False]]

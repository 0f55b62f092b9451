"""The allowed tokens at a position are those of some valid completion of the row,
checked by enumeration.
"""

import re
from itertools import product

import pytest
import torch

from unmask.constraints.compiled import compile_constraint
from unmask.constraints.constraint import Constraint
from unmask.constraints.transition import MOST_DENSE
from unmask.vocabulary import Vocabulary

# one vocabulary of overlapping pieces, one of broken characters; then BOS, EOS, PAD, MASK
WORDS = [b"a", b"ab", b"b"]
HALVES = [b"a", b"\xc3", b"\xa9", "é".encode()]
LENGTH = 4  # BOS and three positions
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


class Listing:
    """Every full row of a vocabulary that satisfies a constraint."""

    def __init__(self, pieces: list[bytes], constraint: Constraint, never: tuple[int, ...]) -> None:
        self.pieces, self.constraint, self.never = pieces, constraint, never
        self.bos = len(pieces)
        self.eos, self.pad, self.mask = self.bos + 1, self.bos + 2, self.bos + 3
        every = product([self.bos], *[range(self.mask)] * (LENGTH - 1))
        self.rows = {row for row in every if self.good(row)}

    def end(self, row: tuple[int, ...]) -> int:
        return row.index(self.eos, 1) if self.eos in row[1:] else LENGTH

    def good(self, row: tuple[int, ...]) -> bool:
        constraint = self.constraint
        raw = b"".join(self.pieces[t] for t in row[1 : self.end(row)] if t < self.bos)
        text = raw.decode("utf-8", "replace")
        whole = text.encode() == raw
        return (
            (constraint.regex is None or (whole and bool(re.fullmatch(constraint.regex, text))))
            and not any(phrase in text for phrase in constraint.ban)
            and all(phrase in text for phrase in constraint.include)
            and all(row[column] in ids for column, ids in constraint.allowed.items())
        )

    def tokens(self, row: tuple[int, ...], column: int) -> set[int]:
        """Tokens of all completions at a position: none of `never`;
        BOS and PAD only after the end.
        """
        open_ = [i for i, token in enumerate(row) if token == self.mask or i == column]
        return {
            full[column]
            for full in self.rows
            if all(i in open_ or full[i] == token for i, token in enumerate(row))
            and not any(full[i] in self.never for i in open_)
            and all(i > self.end(full) for i in open_ if full[i] in (self.bos, self.pad))
        }


@pytest.mark.parametrize(("pieces", "constraint", "never"), CASES)
def test_allowed_tokens_are_those_of_some_completion(pieces, constraint, never):
    truth = Listing(pieces, constraint, never)
    vocabulary = Vocabulary(truth.mask + 1, truth.mask, truth.pad, truth.bos, truth.eos)
    compiled = compile_constraint(constraint, [*pieces, None, None, None, None], vocabulary, never)
    # the middle position also holds BOS or PAD, which add no text
    outer = [*range(truth.bos), truth.eos, truth.mask]
    partial = list(product([truth.bos], outer, range(truth.mask + 1), outer))
    z = torch.tensor(partial)
    rows, columns = (z[:, 1:] >= 0).nonzero(as_tuple=True)  # every position, open or not
    allowed = compiled.machine.allowed(z, (rows, columns + 1), 1)
    possible = compiled.machine.feasible(z, 1).tolist()
    answers = set()
    for r, column, may in zip(rows.tolist(), columns.tolist(), allowed.tolist(), strict=True):
        answer = {token for token, yes in enumerate(may) if yes}
        assert answer == truth.tokens(partial[r], column + 1), (partial[r], column + 1)
        if partial[r][column + 1] == truth.mask:
            assert possible[r] == bool(answer)
        answers.add(frozenset(answer))
    assert len(answers) > 1
    for row, can in zip(partial, possible, strict=True):
        if truth.mask not in row:
            assert can == (row in truth.rows)


def test_a_call_without_positions():
    compiled = compile_constraint(Constraint("a*"), [b"a", None, None], Vocabulary(3, 2, eos_id=1))
    none = torch.zeros(0, dtype=torch.long)
    assert compiled.machine.allowed(torch.tensor([[2, 2]]), (none, none), 0).shape == (0, 3)


def test_large_automata_agree_with_small_ones():
    """Above MOST_DENSE states products are sparse.
    Both forms of "more than 90 letters" must agree.
    """
    vocabulary = Vocabulary(4, 3, eos_id=2)
    pieces = [b"a", b"aaa", None, None]
    z = torch.full((2, 40), 3)
    z[1, 5:36] = 0
    at = torch.tensor([0, 1, 1]), torch.tensor([20, 3, 39])
    for most in (120, MOST_DENSE + 40):  # 40 tokens have at most 120 letters
        compiled = compile_constraint(Constraint(f"a{{50,{most}}}"), pieces, vocabulary)
        assert (len(compiled.machine.accepting) > MOST_DENSE) == (most > MOST_DENSE)
        assert compiled.machine.feasible(z, 0).tolist() == [True, True]
        assert compiled.machine.allowed(z, at, 0).int().tolist() == [
            [1, 1, 1, 0],  # 20 tokens of three letters suffice
            [1, 1, 0, 0],
            [1, 1, 1, 0],
        ]
    tight = compile_constraint(Constraint(f"a{{{3 * 9 + 31 - 1},300}}"), pieces, vocabulary)
    assert tight.machine.allowed(z, at, 0)[1:].int().tolist() == [[0, 1, 0, 0], [0, 1, 0, 0]]

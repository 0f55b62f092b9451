"""Impossible constraints are refused in one line, and phrases are placed where they fit."""

import pytest
import torch

from unmask.constraints.budget import LIMITS, Budget
from unmask.constraints.byte_automaton import ByteMachine, banned, containing, product
from unmask.constraints.compiled import compile_constraint
from unmask.constraints.constraint import Constraint
from unmask.constraints.regex import regex
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

# tokens of one or two characters, then BOS, EOS, MASK
PIECES = [*(bytes([byte]) for byte in b"abcdefgh 0123456789\n"), b"ab", b" cafe", "é".encode()]
BOS, EOS, MASK = range(len(PIECES), len(PIECES) + 3)
MOST_STATES = LIMITS["states"]
VOCABULARY = Vocabulary(MASK + 1, MASK, None, BOS, EOS)
ALL = [*PIECES, None, None, None]


def row(text: str, room: int, after: str = "") -> torch.Tensor:
    """BOS, a fixed text of single characters, open positions, more fixed text."""
    ids = [[PIECES.index(c.encode()) for c in part] for part in (text, after)]
    return torch.tensor([[BOS, *ids[0], *[MASK] * room, *ids[1]]])


REFUSED = [
    (Constraint(r"\d{10}"), row("", 6), (), "the regular expression needs at least 10 tokens and there is room for 6"),
    (Constraint("abc"), row("", 1), (), "the regular expression needs at least 2 tokens and there is room for 1"),
    (Constraint("[ab]{3}"), row("", 6), (EOS,), "the regular expression takes at most 3 tokens and there are 6 to fill"),
    (Constraint("(cc)*"), row("", 3), (EOS,), "the regular expression fits 2 or 4 tokens, but not 3"),
    (Constraint("[xyz]+"), row("", 3), (), "no text in this vocabulary satisfies the regular expression"),
    (Constraint(r"\d+"), row("a", 3), (), "the regular expression does not fit beside the fixed text 'a…'"),
    (Constraint(ban=("h", "dea")), row("dead", 2), (), "the fixed text contains 'dea', which is banned"),
    (Constraint(include=("0123",)), row("", 3), (), "the phrase '0123' needs at least 4 tokens and there is room for 3"),
    (Constraint(include=("0123",)), row("abc", 3), (), "the phrase '0123' does not fit beside the fixed text 'abc…'"),
    (Constraint("[a-c]*", include=("d",)), row("", 4), (), "no text of 4 tokens satisfies the regular expression, the phrase 'd' together"),
    (Constraint("a+", allowed={2: {1}}), row("", 2), (), "no text of 2 tokens satisfies the regular expression, the allowed tokens together"),
    (Constraint("c*", ban=("cc",)), row("c", 1, "c"), (EOS,), "no text of 3 tokens satisfies the regular expression, the banned phrases together beside the fixed text 'c…c'"),
    (Constraint(allowed={1: {0}}), row("", 1), (0,), "no text of 1 token satisfies the allowed tokens"),
    (Constraint(allowed={7: {0}}), row("", 3), (), "position 7 lies outside a row of 4 tokens: choose 0 to 3"),
    (Constraint(allowed={-1: {0}}), row("", 3), (), "position -1 lies outside a row of 4 tokens: choose 0 to 3"),
    (Constraint(allowed={1: {1, 2}}), row("a", 3), (), "position 1 is fixed to token 0, which is not allowed there: allow it"),
]  # fmt: skip


@pytest.mark.parametrize(("constraint", "z", "never", "message"), REFUSED)
def test_an_unsatisfiable_constraint_is_refused_with_the_reason(constraint, z, never, message):
    with pytest.raises(UnmaskError) as error:
        compile_constraint(constraint, ALL, VOCABULARY, never).check(z, 1)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Constraint(ban=("",)), "is empty: leave it out"),
        (lambda: Constraint(include=("a", "")), "is empty: leave it out"),
        (lambda: Constraint(ban=("\ud800",)), "lone surrogate"),
        (lambda: Constraint(ban=("oo",), include=("foo",)), "'foo' is to be included and contains 'oo', which is banned"),
        (lambda: Constraint(allowed={3: set()}), "the set of tokens allowed at position 3 is empty"),
        (lambda: Constraint(allowed={3: {0, 99}}), "token 99, allowed at position 3, is MASK or outside a vocabulary of 26"),
        (lambda: Constraint(allowed={3: {MASK}}), "token 25, allowed at position 3, is MASK or outside"),
        (lambda: Constraint(ban=("a" * MOST_STATES,)), f"the banned phrases need more than {MOST_STATES} states: shorten repeats and phrases.* --constraint-budget, here 1"),
        (lambda: Constraint("[ab]{0,150}", include=("b" * 149,)), f"the constraints need more than {MOST_STATES} states"),
    ],
)  # fmt: skip
def test_meaningless_constraints_are_refused(make, message):
    with pytest.raises(UnmaskError, match=message):
        compile_constraint(make(), ALL, VOCABULARY).check(row("", 200), 1)


def test_a_tokenizer_without_pieces_supports_only_token_sets():
    with pytest.raises(UnmaskError, match="with characters, bytes, a byte-level BPE"):
        compile_constraint(Constraint("a"), None, VOCABULARY)
    compiled = compile_constraint(Constraint(allowed={2: {3, 4}}), None, VOCABULARY)
    at = torch.tensor([0, 0]), torch.tensor([1, 2])
    free, bound = compiled.machine.allowed(row("", 3), at, 1)
    assert bound.nonzero()[:, 0].tolist() == [3, 4] and free[5]


def test_an_empty_constraint_is_false():
    assert not Constraint() and Constraint("") and Constraint(allowed={1: {0}})


def test_a_fixed_end_closes_the_text():
    compiled = compile_constraint(Constraint("ab"), PIECES, VOCABULARY, (EOS,))
    z = torch.tensor([[BOS, MASK, MASK, EOS, MASK]])
    allowed = compiled.machine.allowed(z, (torch.tensor([0, 0]), torch.tensor([1, 4])), 1)
    assert allowed[0].nonzero()[:, 0].tolist() == [0] and allowed[1].sum() > 20
    compiled.check(z, 1)
    with pytest.raises(UnmaskError, match="at most 2 tokens and there are 3 to fill"):
        compiled.check(torch.tensor([[BOS, MASK, MASK, MASK, EOS]]), 1)


def of(make, phrases: list[bytes]) -> ByteMachine:
    return make(phrases, Budget(), "the phrases")


def test_automata_of_phrases():
    phrases = [b"abab", b"ba", b"c"]
    no, some = of(banned, phrases), of(containing, phrases)
    for text in (b"", b"aab", b"aba", b"xabab", b"ac", b"bbb"):
        holds = any(phrase in text for phrase in (b"abab", b"ba", b"c"))
        assert some.accepts(text) == holds and no.accepts(text) != holds
    both = product(of(containing, [b"aab"]), of(containing, [b"aba"]), Budget())
    assert both.accepts(b"aaba") and not both.accepts(b"aab")


def test_automata_are_minimal():
    assert len(regex("(a|b)*abb").table) == 5  # four states of the textbook, and the dead state
    assert len(product(of(banned, [b"a"]), of(banned, [b"ba", b"a"]), Budget()).table) == 2
    assert len(product(of(containing, [b"a"]), of(banned, [b"a"]), Budget()).table) == 1


def spell(text: str) -> list[int]:
    return [PIECES.index(c.encode()) for c in text]


def place(compiled, z, ways, seed=0):
    uniforms = torch.rand(
        len(z), len(ways), z.shape[1], generator=torch.Generator().manual_seed(seed)
    )
    return compiled.place(z, 1, ways, uniforms.double())


def test_phrases_are_placed_evenly_where_they_fit():
    compiled = compile_constraint(
        Constraint("0*[a-f]*0*", include=("abc",)), ALL, VOCABULARY, (EOS,)
    )
    z = row("0", 5, "d0").repeat(300, 1)  # the d forbids a zero between
    placed = place(compiled, z, [[spell("abc")]])
    where = (placed == spell("a")[0]).int().argmax(1)
    counts = where.bincount(minlength=7).tolist()
    assert counts[:2] == [0, 0] and counts[5:] == [0, 0] and min(counts[2:5]) > 75
    assert ((placed == z) | (z == MASK)).all()
    assert compiled.machine.feasible(placed, 1).all()
    # the position in a row depends only on the random numbers of the row
    assert (place(compiled, z[:1], [[spell("abc")]]) == placed[:1]).all()


def test_the_first_placement_that_fits_is_chosen():
    compiled = compile_constraint(Constraint(include=("cafe",)), ALL, VOCABULARY)
    ways = [spell("cafg"), [PIECES.index(b" cafe")], spell("cafe")]
    placed = place(compiled, row("a", 6), [ways])[0].tolist()
    assert PIECES.index(b" cafe") in placed and placed.count(MASK) == 5
    begun = place(compiled, row("", 4), [ways[2:]])
    assert begun.tolist() == [[BOS, *spell("cafe")]]


def test_phrases_that_occur_already_or_fit_nowhere_are_not_placed():
    compiled = compile_constraint(Constraint(include=("abc", "fed")), ALL, VOCABULARY)
    z = row("abc", 3)
    assert (
        place(compiled, z, [[spell("abc")], [spell("fed")]]).tolist() == row("abcfed", 0).tolist()
    )
    alone = compile_constraint(Constraint(include=("abc",)), ALL, VOCABULARY)
    rows = torch.cat([row("abc", 5), row("", 8)])
    assert [ids.count(MASK) for ids in place(alone, rows, [[spell("abc")]]).tolist()] == [5, 5]
    with_sets = compile_constraint(
        Constraint(include=("fed",), allowed={2: spell("ab")}), ALL, VOCABULARY
    )
    assert (place(with_sets, row("", 4), [[spell("fed")]]) == row("", 4)).all()


def test_a_phrase_leaves_room_for_the_others():
    compiled = compile_constraint(Constraint(include=("hh0", "gg1")), ALL, VOCABULARY, (EOS,))
    half = torch.cat([row("hh0", 3), row("", 6).repeat(40, 1)])
    placed = place(compiled, half, [[spell("hh0")], [spell("gg1")]]).tolist()
    written = ["".join(PIECES[token].decode() for token in ids[1:]) for ids in placed]
    assert written[0] == "hh0gg1" and set(written) == {"hh0gg1", "gg1hh0"}


def test_a_phrase_is_placed_before_the_end_of_the_text():
    compiled = compile_constraint(Constraint(include=("abc",)), ALL, VOCABULARY)
    z = torch.tensor([[BOS, *[MASK] * 3, EOS, *[MASK] * 5]]).repeat(20, 1)
    assert place(compiled, z, [[spell("abc")]])[:, 1:4].tolist() == [spell("abc")] * 20

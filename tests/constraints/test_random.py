"""Random constraints, checked on every text with Python's own `re` and `in`."""

import random
import re
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.constraints.compiled import compile_constraint
from unmask.constraints.constraint import Constraint
from unmask.constraints.regex import regex
from unmask.errors import UnmaskError
from unmask.vocabulary import Vocabulary

ATOMS = ("a", "b", "ab", ".", "[ab]", "[^a]", r"\d", r"\w", r"\s", r"\.", "é", "日", "[à-ü]", " ")
FLAGS = ("", "(?i)", "(?s)", "(?a)", "(?ai)", "(?x) ", "(?is)")
TEXTS = st.text(st.sampled_from("ab1 .\nAÉé日٣K\u212a\U0001f600"), max_size=4)
# whole words, letters, halves of "é", then the special tokens
PIECES = [
    b"a",
    b"b",
    b"ab",
    b"ba",
    b" a",
    b" ",
    b"1",
    b"\n",
    "é".encode(),
    b"\xc3",
    b"\xa9",
    b"a1 b",
]
BOS, EOS, PAD, MASK = range(len(PIECES), len(PIECES) + 4)
VOCABULARY = Vocabulary(len(PIECES) + 4, MASK, PAD, BOS, EOS)


def patterns(
    atoms: tuple[str, ...], flags: tuple[str, ...], leaves: int = 5
) -> st.SearchStrategy[str]:
    """Sequences, alternatives, groups and repeats of atoms, after inline flags."""
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?", "{0,2}?"])
    body = st.recursive(
        st.sampled_from(atoms),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
            st.tuples(inner, repeats).map(lambda pair: f"({pair[0]}){pair[1]}"),
        ),
        max_leaves=leaves,
    )
    return st.tuples(st.sampled_from(flags), body).map("".join)


@settings(max_examples=80)
@given(patterns(ATOMS, FLAGS), st.lists(TEXTS, min_size=10, max_size=40))
def test_an_automaton_accepts_the_texts_of_fullmatch(pattern, texts):
    machine = regex(pattern)
    for text in texts:
        assert machine.accepts(text.encode()) == bool(re.fullmatch(pattern, text)), text


def shown(row: list[int], start: int) -> bytes:
    """The bytes of a full row up to EOS."""
    text = row[start:]
    text = text[: text.index(EOS)] if EOS in text else text
    return b"".join(PIECES[token] for token in text if token < BOS)


def satisfies(constraint: Constraint, row: list[int], start: int) -> bool:
    raw = shown(row, start)
    text = raw.decode("utf-8", "replace")
    whole = constraint.regex is None or text.encode() == raw
    return (
        whole
        and (constraint.regex is None or bool(re.fullmatch(constraint.regex, text)))
        and not any(phrase in text for phrase in constraint.ban)
        and all(phrase in text for phrase in constraint.include)
        and all(row[column] in ids for column, ids in constraint.allowed.items())
    )


def completions(row: list[int], never: set[int]):
    """All ways to fill the open positions, with special tokens only after the end of the text."""
    choices = [[t for t in range(MASK) if t not in never] if t == MASK else [t] for t in row]
    for full in product(*choices):
        ended = (any(t == EOS for t in full[1:i]) for i, t in enumerate(full) if row[i] == MASK and t in (BOS, PAD))  # fmt: skip
        if all(ended):
            yield list(full)


PHRASES = st.lists(st.text(st.sampled_from("ab1 é"), min_size=1, max_size=3), max_size=2).map(tuple)
STRICT = patterns(("a", "b", "ab", ".", "[^a]", r"\d", "é", "1", " "), ("", "(?s)"), 3)
LOOSE = st.tuples(STRICT, st.sampled_from([".*", "[^1]*", "[ab]*é?.*"])).map("".join)


@st.composite
def requests(draw):
    """The parts of a constraint, a row that begins with BOS, and tokens that must not be drawn."""
    length = draw(st.integers(1, 6))
    tokens = st.one_of(*[st.just(MASK)] * 5, st.integers(0, MASK))
    row = [BOS, *draw(st.lists(tokens, min_size=length, max_size=length))]
    sets = st.dictionaries(
        st.integers(1, length),
        st.sets(st.integers(0, MASK - 1), min_size=1, max_size=6),
        max_size=2,
    )
    never = draw(st.sets(st.integers(0, MASK - 1), max_size=3))
    include = draw(PHRASES)
    ban = tuple(ban for ban in draw(PHRASES) if not any(ban in phrase for phrase in include))
    pattern = draw(st.none() | STRICT | LOOSE)
    return (pattern, ban, include, draw(st.just({}) | sets)), row, never


@settings(max_examples=150)
@given(requests(), st.integers(0, 2**32))
def test_every_row_satisfies_its_constraint_or_is_refused(request, seed):
    parts, row, never = request
    constraint = Constraint(*parts)
    fillable = [t for t in range(MASK) if t not in never]
    enumerable = len(fillable) ** row.count(MASK) <= 300
    try:
        compiled = compile_constraint(
            constraint, [*PIECES, None, None, None, None], VOCABULARY, never
        )
        z = torch.tensor([row])
        compiled.check(z, 1)
    except UnmaskError as error:
        assert "\n" not in str(error)
        if enumerable:
            assert not any(satisfies(constraint, full, 1) for full in completions(row, never))
        return
    rng = random.Random(seed)
    places = [column for column, token in enumerate(row) if token == MASK]
    rng.shuffle(places)
    passes = compiled.passes(1)
    for number, column in enumerate(places):
        at = torch.tensor([0]), torch.tensor([column])
        allowed = passes.allowed(z, at)
        # the same as without a cache
        assert torch.equal(allowed, compiled.machine.allowed(z, at, 1))
        (choices,) = allowed[0].nonzero(as_tuple=True)
        z[0, column] = rng.choice(choices.tolist())
        if number == 2:  # a position is masked again
            z[0, places[0]] = MASK
            assert compiled.machine.feasible(z, 1).all()
            at = torch.tensor([0]), torch.tensor([places[0]])
            z[0, places[0]] = rng.choice(passes.allowed(z, at)[0].nonzero()[:, 0].tolist())
    full = z[0].tolist()
    assert MASK not in full and not never & {full[column] for column in places}
    assert satisfies(constraint, full, 1), full


def test_the_check_of_texts_can_fail():
    row = [BOS, 0, 1, EOS]
    assert satisfies(Constraint("ab", ("b1",), ("b",), {1: {0}}), row, 1)
    for wrong in [Constraint("a"), Constraint(ban=("b",)), Constraint(include=("1",)), Constraint(allowed={1: {1}})]:  # fmt: skip
        assert not satisfies(wrong, row, 1)


@pytest.mark.parametrize(("row", "text"), [([BOS, 0, EOS, 1], b"a"), ([BOS, 0, PAD, 1], b"ab")])
def test_shown_bytes_are_the_decoded_text(row, text):
    assert shown(row, 1) == text

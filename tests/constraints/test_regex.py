"""The automaton of a pattern accepts the texts of `re.fullmatch`, and names unsupported syntax in its error."""

import re

import pytest

from unmask.constraints.budget import LIMITS, Budget
from unmask.constraints.regex import regex
from unmask.errors import UnmaskError


@pytest.mark.parametrize(
    "pattern",
    [
        r"\w", r"\W", r"\d", r"\S", ".", "(?s).", "(?i)k", "(?i)[^k]", "(?i)ß", "(?a)\\w", "[^é]",
        "(?i)[à-ö]", "(?i:k)|k", "(?i)(?-i:k)", "(?a:\\d)", r"[\d_\u0100-\uffff]", r"\U0010ffff",
    ],
)  # fmt: skip
def test_one_character_sets_are_exact(pattern):
    characters = [chr(code) for code in range(0x3000)] + [
        chr(code + near)
        for code in (0xD7FF, 0xE000, 0xFFFD, 0x10000, 0x1D7CE, 0x1F600, 0x40000, 0x10FFFE)
        for near in (0, 1)
        if not 0xD800 <= code + near < 0xE000
    ]
    machine, compiled = regex(pattern), re.compile(pattern)
    for character in characters:
        assert machine.accepts(character.encode()) == bool(compiled.fullmatch(character)), character


@pytest.mark.parametrize("pattern", ["(?s).*", r"[\w\W]*", "[^a]*"])
def test_only_whole_characters_are_accepted(pattern):
    machine = regex(pattern)
    assert machine.accepts("é日\U0001f600".encode())
    broken = [b"\xc3", b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"]
    assert not any(machine.accepts(text) for text in broken)


@pytest.mark.parametrize(
    "pattern", ["^ab$", r"\Aab\Z", "^ab|ac$", "(^a|b$)", "^(?:^ab$)$", "(?m)^ab$", "", "^$", "a|"]
)
def test_anchors_at_the_outer_ends(pattern):
    machine = regex(pattern)
    for text in ("", "a", "b", "ab", "ac", "ab\n", "\n", "xab"):
        assert machine.accepts(text.encode()) == bool(re.fullmatch(pattern, text)), text


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("(?=a)b", "lookaround"), ("a(?!b)", "lookaround"), ("(?<=a)b", "lookaround"),
        ("(?!)", "lookaround"), (r"(a)\1", "a backreference"), ("(?P<x>a)(?P=x)", "a backreference"),
        (r"\bword", "a word boundary"), (r"a\B", "a word boundary"),
        ("(a)?(?(1)b|c)", "a conditional group"), ("(?>a)b", "an atomic group"),
        ("a++", "a possessive repeat"), ("a^b", r"\^ inside"), ("a$b", r"\$ inside"),
        (r"a\Ab", r"\\A inside"), ("(a$)*", r"\$ inside"), (r"(\Z|a)b", r"\\Z inside"),
    ],
)  # fmt: skip
def test_unsupported_syntax_is_named(pattern, name):
    with pytest.raises(UnmaskError, match=f"with {name} is not supported: use literals"):
        regex(pattern)


def test_a_set_that_python_warns_about_gives_no_warning():
    assert regex("[[a]").accepts(b"[") and regex("[[a]").accepts(b"a")


@pytest.mark.parametrize("pattern", ["(a", "[b-a]", "a{2,1}", "*", "(?z)", "a{99999999999}", "\\"])
def test_invalid_patterns(pattern):
    with pytest.raises(UnmaskError, match="is not valid: "):
        regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "limit"),
    [
        ("(a|b)*a(a|b){30}", "states"),
        ("(a{1000}){1000}", "NFA states"),
        (r"\w{100}", "NFA states"),
        (f"a{{{LIMITS['states']}}}", "states"),
        ("A" * 200_000, "characters"),
        ("(?:a?){4000}", "steps"),
        ("(?:(?:(?:a{0,9}){0,9}){0,9}){0,4}", "steps"),
        ("".join(f"[^{chr(code)}]" for code in range(0x4E00, 0x5200)), "steps"),
    ],
)  # fmt: skip
def test_too_large_patterns_name_the_limit_and_the_option_that_raises_it(pattern, limit):
    expected = f"needs more than {LIMITS[limit]} {limit}: .*, or raise --constraint-budget, here 1"
    with pytest.raises(UnmaskError, match=expected):
        regex(pattern)


@pytest.mark.parametrize(
    "pattern", ["(" * 500 + "a" + ")" * 500, "(?:" * 200 + "a" + "b|c)*" * 200]
)
def test_deep_patterns_are_refused(pattern):
    with pytest.raises(UnmaskError, match="more than 100 nested levels"):
        regex(pattern)


def test_a_part_that_matches_only_the_empty_text_is_built_once():
    assert regex("(?:(?:){9999}){9999}a").accepts(b"a")


def test_long_patterns_within_the_limits():
    """Rounds of the refinement look at few states, so a chain of 4000 costs no square of that."""
    for pattern in ("A" * 4000, f"(?:{'A' * 4000})*"):
        budget = Budget()
        machine = regex(pattern, budget)
        assert machine.accepts(b"A" * 4000) and not machine.accepts(b"A" * 3999)
        assert budget.counts["cells"] < 10 * 4000 * 4000 // 100

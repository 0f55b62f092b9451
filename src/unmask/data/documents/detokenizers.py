"""Detokenizers: undo the word splitting of benchmark corpora.

A zero-shot perplexity depends on the detokenizer. These reproduce those of the MDLM authors with
their oddities, which the page of the zero-shot sets lists. `text8` normalises text instead.
"""

import re
from string import ascii_lowercase
from typing import Protocol

from unmask.registry import Registry


class Detokenizer(Protocol):
    """A function from the text of a corpus to the text that is tokenised."""

    def __call__(self, text: str) -> str: ...


DETOKENIZERS: Registry[Detokenizer] = Registry("detokenizer")

_LONE_N = re.compile(r"(?<= )N(?= )")
# brackets or quotes around a text; the group leaves out spaces next to them
_ENCLOSED = tuple(
    re.compile(rf"\{first}\s*([^\{last}]*?)\s*\{last}")
    for first, last in ("()", "[]", "{}", '""', "''")
)
_CLITIC = re.compile(r" '(\w+)")
_FULL_STOPS = (re.compile(r" (\w+) \. "), r" \1. "), (re.compile(r" (\w+) \.$"), r" \1.")
_PAIRS = (  # the same, but only with one space on either side
    (re.compile(r'" ([^"]+) "'), r'"\1"'),
    (re.compile(r"' ([^']+) '"), r"'\1'"),
    (re.compile(r"\( ([^()]+) \)"), r"(\1)"),
    (re.compile(r"\[ ([^\[\]]+) \]"), r"[\1]"),
)


@DETOKENIZERS.register("ptb")
class PennTreebank:
    """Penn Treebank: clitics rejoined, the number N becomes 1 and <unk> a question mark."""

    def __call__(self, text: str) -> str:
        text = text.replace(" 's", "'s").replace("s ' ", "s' ").replace(" n't", "n't")
        text = text.replace(" \n ", "\n").replace("\\/", "/")
        # only between spaces: an N at the end of a line stays
        text = _LONE_N.sub("1", text)
        return text.replace("$ 1", "$1").replace("# 1", "#1").replace("<unk>", "?")


@DETOKENIZERS.register("wikitext")
class WikiText:
    """WikiText: @-@ becomes -; spaces before punctuation and inside brackets and
    quotes are removed.
    """

    def __call__(self, text: str) -> str:
        text = text.replace("s '", "s'")
        for sign in "-,.":
            text = text.replace(f" @{sign}@ ", sign)
        for mark in ":;.!?,":  # the order matters: of two adjacent marks only one is joined
            text = text.replace(f" {mark} ", f"{mark} ")
        for pair in _ENCLOSED:
            text = pair.sub(_without_spaces, text)
        for level in (4, 3, 2):
            text = text.replace(" ".join("=" * level), "=" * level)
        text = text.replace(" \N{DEGREE SIGN} ", "\N{DEGREE SIGN}")
        text = text.replace(" \n", "\n").replace("\n ", "\n")
        return text.replace(" N ", " 1 ").replace(" 's", "'s")


@DETOKENIZERS.register("lm1b")
class OneBillionWords:
    """One Billion Words: spaces at clitics, punctuation, brackets,
    quotes and currency are removed.
    """

    def __call__(self, text: str) -> str:
        text = text.replace("http : / / ", "http://").replace("https : / / ", "https://")
        text = _CLITIC.sub(r"'\1", text)
        for pattern, closed in _FULL_STOPS:
            text = pattern.sub(closed, text)
        for mark in "?!":
            text = text.replace(f" {mark} ", f"{mark} ")
            text = re.sub(rf" \{mark}$", mark, text)
        for mark in ",:;":
            text = text.replace(f" {mark} ", f"{mark} ")
        text = text.replace(" / ", "/")
        for pattern, closed in _PAIRS:
            text = pattern.sub(closed, text)
        return text.replace("$ ", "$").replace("£ ", "£")


@DETOKENIZERS.register("lambada")
class Lambada:
    """LAMBADA: curly quotes become straight, and each passage begins on a new line."""

    def __call__(self, text: str) -> str:
        return "\n" + text.replace("“", '"').replace("”", '"').strip()


@DETOKENIZERS.register("scientific_papers")
class ScientificPapers:
    """Scientific papers (arXiv, PubMed): WikiText's rules, then One Billion Words'."""

    def __call__(self, text: str) -> str:
        return OneBillionWords()(WikiText()(text))


_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_SPELLED = {str(digit).encode(): f" {name} ".encode() for digit, name in enumerate(_DIGITS)}
_LETTERS = bytes(code if code in ascii_lowercase.encode() else ord(" ") for code in range(256))


@DETOKENIZERS.register("text8")
class Text8:
    """The form of text8: lower case, digits spelled out, one space in place of other characters."""

    def __call__(self, text: str) -> str:
        plain = text.lower().encode("ascii", "replace")  # bytes are much faster than str here
        for digit, name in _SPELLED.items():
            plain = plain.replace(digit, name)
        return b" ".join(plain.translate(_LETTERS).split()).decode()


def _without_spaces(match: re.Match[str]) -> str:
    whole = match[0]
    return whole[0] + match[1] + whole[-1]

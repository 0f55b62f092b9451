"""Draws text forming out of masks as an animated picture, from the frames of a real generation.

    python docs/images/make_forming.py stories --seed 8

writes forming.svg beside this file. A viewer that does not play animations shows the middle of it.
"""

import argparse
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import torch

import unmask

COLUMNS = 76
CELL, LINE, MARGIN = 9.03, 23, 22  # of a monospaced font of 15 pixels
SECONDS, START, END = 14, 0.06, 0.72  # a round, and the part of it in which tokens appear


class Token(NamedTuple):
    """A piece of text, where it stands, and at which share of the generation it appeared."""

    text: str
    line: int
    column: int
    appeared: float  # 0 for what was given, 1 for the last one


def generate(
    model: unmask.Model, prompt: str, length: int, seed: int
) -> tuple[list[int], list[int]]:
    """The ids of a text, and the frame in which each appeared (0: it was given)."""
    appeared = torch.zeros(length, dtype=torch.int64)
    for number, frame in enumerate(model.stream(prompt, length=length, seed=seed), start=1):
        appeared[frame.changed[0].nonzero()[:, 0]], tokens = number, frame.tokens[0]
    end = model.tokenizer.vocabulary.eos_id
    ids = tokens.tolist()
    size = ids.index(end) if end in ids else length
    return ids[:size], appeared[:size].tolist()


def pieces(model: unmask.Model, ids: list[int]) -> Iterator[str]:
    """The text that each token adds."""
    before = ""
    for end in range(1, len(ids) + 1):
        text = model.tokenizer.decode(ids[:end])
        yield text.removeprefix(before) if text.startswith(before) else "?"
        before = text


def lay_out(texts: list[str], appeared: list[int]) -> Iterator[Token]:
    """Tokens on lines of at most COLUMNS characters; white space is shown as one space."""
    line = column = 0
    for text, frame in zip(texts, appeared, strict=True):
        text = re.sub(r"\s+", " ", text)
        text = "".join(letter if letter.isprintable() else "·" for letter in text)
        if column + len(text) > COLUMNS:
            line, column = line + 1, 0
        yield Token(text, line, column, frame / max(appeared))
        column += len(text)


def draw(tokens: list[Token]) -> str:
    """The picture."""
    width = 2 * MARGIN + COLUMNS * CELL
    height = 2 * MARGIN + (tokens[-1].line + 1) * LINE
    body = "\n".join(element for token in tokens if token.text for element in marks(token))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}">
<title>Text forming out of masks</title>
<style>text {{ font: 15px ui-monospace, Menlo, Consolas, monospace }}</style>
<rect width="100%" height="100%" rx="10" fill="#10151c"/>
{body}
</svg>
"""


def marks(token: Token) -> Iterator[str]:
    """A token's mask, which goes, and its text, which comes."""
    x, y = MARGIN + token.column * CELL, MARGIN + token.line * LINE
    wide = len(token.text) * CELL
    colour = "#8fdf9f" if token.appeared else "#ffffff"
    show, hide = int(token.appeared <= 0.5), int(token.appeared > 0.5)
    if token.appeared:
        yield (
            f'<rect x="{x + 1:.1f}" y="{y + 2:.1f}" width="{wide - 2:.1f}" height="{LINE - 5}" '
            f'rx="3" fill="#36414f" opacity="{hide}">{fade(token.appeared, "1;1;0;0;1")}</rect>'
        )
    if word := token.text.strip():
        x += (len(token.text) - len(token.text.lstrip())) * CELL
        yield (
            f'<text x="{x:.1f}" y="{y + LINE - 7:.1f}" textLength="{len(word) * CELL:.1f}" '
            f'fill="{colour}" opacity="{show}">{escape(word)}'
            f"{fade(token.appeared, '0;0;1;1;0') if token.appeared else ''}</text>"
        )


def fade(appeared: float, values: str) -> str:
    """An opacity that changes when the token appears, and back before the next round."""
    at = START + (END - START) * appeared
    times = f"0;{at - 0.015:.3f};{at:.3f};0.985;1"
    return (
        f'<animate attributeName="opacity" values="{values}" keyTimes="{times}" '
        f'dur="{SECONDS}s" repeatCount="indefinite"/>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", help="a run folder or an exported model")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--length", type=int, default=128, help="most tokens")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("forming.svg"))
    args = parser.parse_args()
    model = unmask.load(args.model)
    ids, appeared = generate(model, args.prompt, args.length, args.seed)
    tokens = list(lay_out(list(pieces(model, ids)), appeared))
    args.out.write_text(draw(tokens), encoding="utf-8")
    print(f"{args.out}: {len(ids)} tokens, {max(appeared)} frames")
    print(model.tokenizer.decode(ids))


if __name__ == "__main__":
    main()

"""Options of a dataclass as arguments of a command: types, lists, ranges, choices, defaults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from unmask.cli.parser import Parser, add_options
from unmask.errors import UnmaskError
from unmask.options import changed_options, option, options_of


@dataclass(frozen=True)
class Options:
    """One option of each type."""

    top_k: int | None = option(None, ge=1, help="Tokens to draw from.")
    share: float = option(0.5, gt=0, le=1, help="Part of the text, in %.", group="measurement")
    steps: list[int] = option([8, 16], ge=1, help="Denoising steps.", group="measurement")
    names: tuple[str, ...] = option((), help="Names.")
    files: list[Path] | None = option(None, help="Files.")
    mode: Literal["fast", "slow"] = option("fast", help="Speed.")
    loud: bool = option(False, help="Say more.")
    stop: bool = option(True, help="Stop early.")
    secret: int = option(3, on=("http",))


def parsed(*argv: str) -> Options:
    parser = Parser(prog="unmask test")
    add_options(parser, options_of(Options, "cli"))
    return Options(**vars(parser.parse_args(argv)))


def test_each_type_is_read_and_an_absent_option_keeps_its_default():
    assert parsed() == Options() and changed_options(parsed()) == {}
    argv = "--top-k 3 --share 1 --steps 4,5 --names a b,c --files x --mode slow --loud --no-stop"
    found = parsed(*argv.split())
    changed = {
        "top_k": 3, "share": 1.0, "steps": [4, 5], "names": ["a", "b,c"], "files": [Path("x")],
        "mode": "slow", "loud": True, "stop": False,
    }  # fmt: skip
    assert changed_options(found) == changed
    assert parsed("--top_k=3", "--no_stop") == Options(top_k=3, stop=False)


def test_help_has_groups_defaults_and_choices():
    parser = Parser(prog="unmask test")
    add_options(parser, options_of(Options, "cli"))
    page = parser.format_help()
    assert "measurement:\n  --share X" in page and "Part of the text, in %. (0.5)" in page
    for part in ("--steps N,N", "(8,16)", "--mode fast|slow", "--names NAMES", "--no-stop"):
        assert part in page
    assert "secret" not in page


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("--top-k 0", "top_k must be 1 or more, not 0"),
        ("--top-k x", "argument --top-k: invalid int value: 'x'"),
        ("--share nan", "share must lie in (0, 1], not nan"),
        ("--steps 4,0", "steps must be 1 or more, not 0"),
        ("--steps 4,x", "argument --steps: '4,x' is no list of numbers: give one such as 8,16,32"),
        ("--mode slwo", "unknown mode 'slwo'; did you mean 'slow'?"),
        ("--secret 1", "unrecognized arguments: --secret 1"),
        ("--shar 1", "unrecognized arguments: --shar 1; did you mean '--share'?"),
    ],
)
def test_a_wrong_value_is_refused(argv, message):
    with pytest.raises(UnmaskError) as caught:
        parsed(*argv.split())
    assert str(caught.value).removesuffix("; see 'unmask test --help'") == message


def test_a_name_that_the_command_has_is_refused():
    parser = Parser(prog="unmask test")
    parser.add_argument("loud", nargs="?")
    with pytest.raises(UnmaskError, match="unmask test has an option loud already"):
        add_options(parser, options_of(Options, "cli"))

"""Sampling options are declared once, and each interface has exactly the options declared for it."""

import argparse
from typing import Literal, get_args, get_type_hints

import pytest

from unmask.cli import build_parser
from unmask.config.values import read_option
from unmask.errors import UnmaskError
from unmask.generation.context import CONTEXT_SOURCES
from unmask.generation.sampling_params import SamplingParams, attachment_options
from unmask.options import Option, options_of
from unmask.samplers.core.token_sampler import STRATEGIES
from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine
from unmask.serve.schemas import Completing, Filling, Watching

# arguments of commands, requests and the harness that are not options of Sampling
COMMANDS = {
    *("help", "model", "device", "json", "watch", "time", "precision", "compile", "out", "format"),
    *("prompt", "length", "stop", "text", "file", "remask", "remask_span", "remask_uncertain"),
    *("style", "remask_style", "help_all"),
}


def declared(surface: str) -> set[str]:
    parts = attachment_options() if surface == "cli" else []
    return {one.name for one in [*options_of(SamplingParams, surface), *parts]}


@pytest.mark.parametrize("command", ["generate", "fill", "edit"])
def test_the_command_line_has_the_declared_options_and_shows_their_help(command):
    parser = build_parser(["unmask.cli.commands.generate"])[1].choices[command]
    flags = {action.dest: action for action in parser._actions}
    kinds = [CONTEXT_SOURCES[name].Options for name in CONTEXT_SOURCES]
    context = {one.name for kind in kinds for one in options_of(kind, "cli")}
    assert flags.keys() - COMMANDS - context == declared("cli")
    for one in options_of(SamplingParams, "cli"):
        assert one.help and one.help in flags[one.name].help
        assert flags[one.name].default is argparse.SUPPRESS


def test_requests_have_the_declared_options_with_help_and_range(model):
    with Engine({"tiny": model}) as engine:
        schemas = create_app(engine).openapi()["components"]["schemas"]
    for request in (Completing, Filling, Watching):
        fields = schemas[request.__name__]["properties"]
        assert fields.keys() == {*request.model_fields, *declared("http")}
        for one in options_of(SamplingParams, "http"):
            assert fields[one.name]["description"].startswith(one.help)
    top_k, top_p, strategy = (fields[name] for name in ("top_k", "top_p", "strategy"))
    assert top_k["anyOf"][0] == {"type": "integer", "minimum": 1, "maximum": 2**31}
    assert top_p["anyOf"][0] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    assert strategy["enum"] == list(STRATEGIES) and strategy["default"] == "stochastic"


def test_an_option_of_the_python_api_only_is_in_no_other_interface():
    hidden = {one.name for one in options_of(SamplingParams) if not one.on}
    assert hidden == {"batch", "allowed", "json_schema", "attachments", "processors"}
    assert get_args(get_type_hints(SamplingParams)["strategy"]) == STRATEGIES


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": ["a"]}, "label must be text, not ['a']"),
        ({"processors": {"typcal": {"mass": 1}}}, "unknown option 'typcal.mass'"),
        ({"typcal.mass": 1}, "unknown option 'typcal.mass'"),
    ],
)
def test_a_wrong_value_is_one_line(options, message):
    with pytest.raises(UnmaskError) as caught:
        SamplingParams.of(options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("hint", "text", "value"),
    [
        (int | None, "3", 3),
        (bool, "true", True),
        (Literal[1, 2], "2", 2),
        (list[float], ["0.5", 1], [0.5, 1.0]),
        (str | None, "none", "none"),  # a label may have this name
        (Literal["a", "b"], "b", "b"),
    ],
)
def test_an_option_of_any_type_is_read_from_text(hint, text, value):
    assert read_option(Option("x", hint, None), text) == value

"""Keys of --model_args: each sets its option, and a wrong key is a one-line error."""

from typing import get_type_hints

import pytest
from tiny_models import one_line

from unmask.errors import UnmaskError
from unmask.extensions.lm_eval.model_args import Options, decoding
from unmask.generation.sampling_params import SamplingParams
from unmask.options import options_of

GREEDY = {"sampler": "confidence", "strategy": "deterministic"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "x", "drws": 4}, "unknown key in model_args: 'drws'; did you mean 'draws'?"),
        ({"path": "x", "sampeler": "x"}, "did you mean 'sampler'?"),
        ({"path": "x", "n": 4}, "unknown key in model_args: 'n'"),  # a request has one text
        ({"path": "x", "sampling": {}}, "unknown key in model_args: 'sampling'"),
        ({"draws": 4}, "model_args has no path: give path=MODEL"),
        ({"path": "x", "draws": "many"}, "model_args draws: 'many' is not a whole number"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    with pytest.raises(UnmaskError) as caught:
        Options.of(arguments)
    assert words in one_line(caught)


def test_each_key_sets_its_option():
    options = Options.of(
        {
            "path": "runs/demo",
            "device": "cuda:0",
            "precision": "bf16",
            "batch_size": 7,
            "bound_steps": 100.0,
            "steps": 12,
            "sampler": "remask",
        }
    )
    assert options.loading == {"device": "auto", "precision": "bf16", "compile": False}
    assert Options.of({"path": "x", "device": "cuda"}).loading["device"] == "cuda"
    assert options.how == {"estimator": None, "steps": 100, "order": None, "orders": None}
    assert options.sampling == {"steps": 12, "sampler": "remask"}
    assert options.batch == 7


@pytest.mark.parametrize(
    ("size", "most", "batch"), [("auto", 12, 12), ("auto:4", 12, 12), ("5", 12, 5), (5, None, 5)]
)
def test_the_batch_size_is_the_requested_one(size, most, batch):
    arguments = {"path": "x", "batch_size": size}
    assert Options.of(arguments | ({"max_batch_size": most} if most else {})).batch == batch
    with pytest.raises(UnmaskError, match="model_args batch_size: 'x' is not a whole number"):
        Options.of({"path": "x", "batch_size": "x"}).batch  # noqa: B018


@pytest.mark.parametrize(
    ("own", "asked", "changed"),
    [
        ({}, {}, {}),
        ({}, {"do_sample": False, "temperature": 0.7}, {}),
        ({}, {"do_sample": True, "temperature": 0.0}, {}),
        ({}, {"do_sample": True, "top_k": 0}, {"strategy": "stochastic"}),
        ({}, {"temperature": 0.7}, {"strategy": "stochastic", "temperature": 0.7}),
        ({"steps": 8}, {"do_sample": False}, {"steps": 8}),
        ({"temperature": 0}, {"do_sample": True, "temperature": 0.7}, {}),
        (
            {"temperature": 0.5, "sampler": "ancestral"},
            {"do_sample": False, "temperature": 0.0},
            {"strategy": "stochastic", "temperature": 0.5, "sampler": "ancestral"},
        ),
        (
            {"top_p": 0.9},
            {"do_sample": True, "temperature": 0.7, "top_p": 1.0, "top_k": 5},
            {"strategy": "stochastic", "temperature": 0.7, "top_p": 0.9, "top_k": 5},
        ),
        ({"strategy": "hybrid"}, {"do_sample": True}, {"strategy": "hybrid"}),
    ],
)
def test_model_args_override_the_options_of_the_task(own, asked, changed):
    assert decoding(GREEDY, own, asked) == GREEDY | changed


def test_the_harness_takes_the_declared_options_and_no_other():
    for one in options_of(SamplingParams):
        arguments = {"path": "x", one.name: 1}
        if "harness" in one.on:
            assert Options.of(arguments).sampling == {one.name: 1}
        elif one.name not in get_type_hints(Options):
            with pytest.raises(UnmaskError, match="unknown key in model_args"):
                Options.of(arguments)

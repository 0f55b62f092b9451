"""Documentation of the public functions: signatures, docstrings, examples, suggestions of names."""

import doctest
import inspect
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from tiny_models import TEXTS

import unmask
from unmask.generation.sampling_params import SamplingOptions, SamplingParams
from unmask.options import options_of

WRITERS = [unmask.Model.generate, unmask.Model.fill, unmask.Model.edit, unmask.Model.stream]
EXPLAINED = [*WRITERS, unmask.Model.perplexity, unmask.Model.save]
EXPLAINED += [unmask.train, unmask.load, unmask.evaluate]


def test_type_checkers_know_every_option():
    assert list(get_type_hints(SamplingOptions)) == [field.name for field in fields(SamplingParams)]


@pytest.mark.parametrize("function", WRITERS, ids=lambda f: f.__name__)
def test_every_option_is_in_the_signature_and_the_docstring(function):
    shown = inspect.signature(function).parameters
    for one in options_of(SamplingParams):
        if one.name not in ("attachments", "processors"):
            assert shown[one.name].default == one.default
            assert f"\n            {one.name}: " in function.__doc__
    assert "options" not in shown and "the fields of" not in function.__doc__


@pytest.mark.parametrize("function", EXPLAINED, ids=lambda f: f.__name__)
def test_arguments_result_and_an_example_are_documented(function):
    text = function.__doc__
    for name in inspect.signature(function).parameters.keys() - {"self"}:
        assert f" {name}: " in text
    assert "Args:" in text and "Example:" in text
    assert "Returns:" in text or function is unmask.Model.save


@pytest.mark.parametrize("function", EXPLAINED, ids=lambda f: f.__name__)
def test_the_examples_run(function, model):
    names = {**vars(unmask), "model": model}
    [test] = doctest.DocTestFinder(recurse=False).find(function, function.__name__, globs=names)
    assert test.examples
    assert not doctest.DocTestRunner(verbose=False).run(test).failed


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        *[("max_tokens", "length"), ("max_new_tokens", "length"), ("temprature", "temperature")],
        *[("num_return_sequences", "n"), ("samplr", "sampler"), ("prompt", "prompts")],
    ],
)
def test_an_unknown_option_suggests_the_nearest(wrong, right, model):
    with pytest.raises(
        unmask.UnmaskError, match=f"unknown option {wrong!r}; did you mean {right!r}"
    ):
        model.generate("The", **{wrong: 3})


def test_a_misspelled_model_suggests_the_nearest(monkeypatch):
    monkeypatch.setattr("unmask.shipped.names", lambda: ["stories", "wiki"])
    with pytest.raises(unmask.UnmaskError, match="no model 'storys'; did you mean 'stories'"):
        unmask.load("storys")


def test_models_and_results_show_what_they_are(model):
    assert repr(model).startswith("Model(method=mdlm, backbone=dit, parameters=")
    assert "<td>mdlm</td>" in model._repr_html_()
    [result] = model.generate("The <b>", length=12, seed=1)
    assert repr(result) == f"Result({result.text!r}, calls={result.calls}, seed={result.seed})"
    assert "&lt;b&gt;" in result._repr_html_()
    assert model.watch(model.stream(length=8, steps=2)) is None


def test_training_takes_a_recipe_a_dict_or_a_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("\n".join(TEXTS))
    small = {"training.steps": 2, "training.batch": 4, "training.device": "cpu", "data.length": 16}
    small |= {"backbone.width": 16, "backbone.depth": 1, "backbone.heads": 2}
    small |= {"data": {"train": "notes.txt", "separator": "line", "cache": "cache"}}
    small |= {"data.tokenizer.kind": "characters", "training.validation_rows": 4}
    quiet = {"say": lambda line: None}
    first = unmask.train(
        "demo", overrides=small | {"method": {"name": "mdlm", "steps": 8}}, **quiet
    )
    assert Path("runs/demo/config.yaml").is_file()
    assert first.config.training.steps == 2 and first.config.method.config.steps == 8
    again = unmask.train(first.config, "runs/other", overrides={"seed": 1}, **quiet)
    assert again.config.seed == 1 and again.config.data == first.config.data
    with pytest.raises(unmask.UnmaskError, match="the run needs a folder"):
        unmask.train({"seed": 1}, **quiet)


def test_a_suite_measures_from_python(run):
    [row] = unmask.evaluate(run, draws=2)
    assert row.bound.certificate == "upper"
    with pytest.raises(unmask.UnmaskError, match="unknown option of likelihood 'drawz'"):
        unmask.evaluate(run, drawz=2)

"""The configuration: exact round trips, no stale values, and errors that name the field."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask import recipes
from unmask.backbones.backbone import BACKBONES
from unmask.config.run_config import (
    Choice,
    RunConfig,
    config_class,
    defaults,
    dump_yaml,
    flatten,
    from_dict,
    load_recipe,
    resolve,
    to_dict,
)
from unmask.data.data_config import DataConfig
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.diffusion.schedule import SCHEDULES
from unmask.diffusion.time_sampler import TIME_SAMPLERS
from unmask.errors import UnmaskError
from unmask.methods.method import METHODS
from unmask.training.training_config import TrainingConfig

REGISTRIES = {
    "method": METHODS,
    "schedule": SCHEDULES,
    "time_sampler": TIME_SAMPLERS,
    "backbone": BACKBONES,
}


def reread(config: RunConfig, folder: Path) -> RunConfig:
    """A configuration, written to a YAML file and read again."""
    path = folder / "config.yaml"
    path.write_text(dump_yaml(config), encoding="utf-8")
    return resolve(load_recipe(str(path)))


def complaint(*overrides: tuple[str, str], recipe: dict[str, Any] | None = None) -> str:
    with pytest.raises(UnmaskError) as caught:
        resolve(recipe or {}, overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def choices(section: str) -> st.SearchStrategy[Choice]:
    registry = REGISTRIES[section]
    return st.sampled_from(list(registry)).map(
        lambda name: Choice(name, config_class(registry[name])())
    )


text = st.text(min_size=1).filter(lambda value: value.strip() != "")
sections = {
    "seed": st.integers(0, 2**63 - 1),
    **{section: choices(section) for section in REGISTRIES},
    "data": st.builds(
        DataConfig,
        train=text,
        valid=st.text(),
        separator=text,
        holdout=st.floats(1e-9, 0.99),
        tokenizer=st.builds(TokenizerConfig, size=st.integers(260, 10**9), path=st.text()),
    ),
    "training": st.builds(
        TrainingConfig,
        steps=st.integers(1, 10**12),
        lr=st.floats(1e-30, 1e30),
        betas=st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)),
        compile=st.booleans(),
        precision=st.sampled_from(["auto", "fp32", "bf16"]),
    ),
}


@settings(max_examples=60, deadline=None)
@given(config=st.builds(RunConfig, **sections))
def test_yaml_reads_back_to_the_same_configuration(config, tmp_path_factory):
    assert reread(config, tmp_path_factory.mktemp("round")) == config
    assert from_dict(to_dict(config)) == config


@settings(max_examples=30, deadline=None)
@given(config=st.builds(RunConfig, **sections))
def test_every_number_can_be_given_on_the_command_line(config):
    given_fields = {
        dotted: str(value)
        for dotted, value in flatten(config).items()
        if isinstance(value, bool | int | float) or dotted.endswith(".name")
    }
    resolved = flatten(resolve({}, list(given_fields.items())))
    assert {dotted: str(resolved[dotted]) for dotted in given_fields} == given_fields


@pytest.mark.parametrize("section", REGISTRIES)
def test_every_registered_component_can_be_chosen(section):
    for name in REGISTRIES[section]:
        choice = getattr(resolve({}, [(section, name)]), section)
        assert choice == Choice(name, config_class(REGISTRIES[section][name])())


def test_changing_a_name_drops_the_values_of_the_old_component():
    recipe = {"schedule": {"name": "loglinear", "eps": "1e-2"}, "backbone": {"depth": "3"}}
    assert resolve(recipe).schedule.config.eps == 1e-2
    assert resolve(recipe, [("schedule", "cosine")]).schedule.config == SCHEDULES.build("cosine")
    # a depth without a name belongs to the default backbone, so another backbone drops it
    causal = resolve(recipe, [("backbone", "causal")]).backbone
    assert causal == Choice("causal", BACKBONES["causal"].Config())


@pytest.mark.parametrize("order", [1, -1])
def test_a_field_given_beside_a_new_name_applies_in_either_order(order):
    overrides = [("schedule", "cosine"), ("schedule.eps", "0.01")][::order]
    chosen = resolve({"schedule": {"name": "polynomial", "power": "3"}}, overrides).schedule
    assert chosen == Choice("cosine", SCHEDULES.build("cosine", eps=0.01))


def test_repeating_the_name_keeps_the_values():
    recipe = {"schedule": {"eps": "1e-2"}}
    assert resolve(recipe, [("schedule", "loglinear")]).schedule.config.eps == 1e-2
    assert resolve(recipe, [("schedule.name", "loglinear")]).schedule.config.eps == 1e-2


@pytest.mark.parametrize(
    ("dotted", "text", "value"),
    [
        ("training.steps", "1_000", 1000),
        ("training.steps", "1e3", 1000),
        ("training.lr", "1e-3", 1e-3),
        ("training.lr", "1", 1.0),
        ("training.compile", "yes", True),
        ("training.compile", "Off", False),
        ("training.betas", "0.9, 0.95", (0.9, 0.95)),
        ("data.valid", "no", "no"),
        ("data.tokenizer.kind", "bytes", "bytes"),
        ("data.tokenizer.path", "1e-3", "1e-3"),
    ],
)
def test_a_text_is_read_by_the_type_of_its_field(dotted, text, value, tmp_path):
    *sections_, leaf = dotted.split(".")
    path = tmp_path / "recipe.yaml"
    body = f"{leaf}: [{text}]" if isinstance(value, tuple) else f"{leaf}: {text}"
    path.write_text("".join(f"{s}: {{" for s in sections_) + body + "}" * len(sections_))
    for config in (resolve({}, [(dotted, text)]), resolve(load_recipe(str(path)))):
        for part in (*sections_, leaf):
            config = getattr(config, part)
        assert config == value
        assert type(config) is type(value)


@pytest.mark.parametrize(
    ("dotted", "text", "message"),
    [
        ("training.stepz", "1", "unknown setting 'training.stepz'; did you mean 'training.steps'?"),
        ("seed", "-1", "seed must be 0 or more"),
        ("trainign.steps", "1", "unknown setting 'trainign.steps'; did you mean 'training.steps"),
        ("steps", "1", "unknown setting 'steps'; did you mean "),
        ("training.width", "1", "unknown setting 'training.width'; did you mean 'backbone.width'?"),
        (
            "qqqq.zzzz",
            "1",
            "unknown setting 'qqqq.zzzz'; 'unmask config RECIPE' prints all settings",
        ),
        ("method", "sed", "unknown method 'sed'; did you mean 'sedd'?"),
        ("training.steps", "ten", "training.steps: 'ten' is not a whole number"),
        ("training.steps", "1.5", "training.steps: '1.5' is not a whole number"),
        ("training.steps", "inf", "training.steps: 'inf' is not a whole number"),
        ("training.lr", "fast", "training.lr: 'fast' is not a number"),
        ("training.lr", "nan", "training.lr: 'nan' is not a number"),
        ("training.compile", "maybe", "training.compile: 'maybe' is not true or false"),
        ("training.betas", "0.9", "training.betas: 1 values are given, but 2 are expected"),
        ("training.betas", "a,b", "training.betas: 'a' is not a number"),
        ("training.steps", "0", "training.steps must be 1 or more, not 0"),
        (
            "training.batch",
            "2e9",
            "training.batch must be 1 or more, and 1,048,576 at most, not 2000000000",
        ),
        ("schedule.eps", "0.7", "schedule.eps must lie in [0, 0.5), not 0.7"),
        ("data.tokenizer.kind", "bpo", "data.tokenizer: unknown tokenizer kind 'bpo'; did you"),
        ("data.tokenizer.size", "3", "data.tokenizer.size is 3; a byte-level BPE needs at least"),
        (
            "training",
            "fast",
            "training must be a section, but is the value fast; set a field of it, such",
        ),
        (
            "data.tokenizer",
            "gpt2",
            "data.tokenizer must be a section, but is the value gpt2; set a field",
        ),
        ("seed.x", "1", "seed: a list or a section is given, but a whole number is expected"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(dotted, text, message):
    assert complaint((dotted, text)).startswith(message)


def test_fields_of_another_component_are_unknown():
    message = complaint(("schedule", "linear"), ("schedule.eps", "0.1"))
    assert message.startswith("unknown setting 'schedule.eps'; did you mean ")
    assert "'schedule.eps'?" not in message


def test_a_value_cannot_be_a_section_too():
    assert "as a value and as a section" in complaint(("seed", "1"), ("seed.x", "1"))


def test_empty_sections_change_nothing():
    assert resolve({"training": None, "method": None}) == RunConfig()


def test_flatten_names_every_field():
    flat = flatten(RunConfig())
    assert flat["training.steps"] == TrainingConfig().steps
    assert flat["data.tokenizer.kind"] == TokenizerConfig().kind
    assert flat["method.name"] == "mdlm"
    assert sum(name.startswith("training.") for name in flat) == len(fields(TrainingConfig))


# Recipes


@pytest.mark.parametrize("name", recipes.names())
def test_shipped_recipes_resolve_and_have_a_summary(name):
    assert isinstance(resolve(load_recipe(name)), RunConfig)
    assert len(recipes.summaries()[name]) > 20


def test_the_papers_recipes_hold_the_papers_numbers():
    for name, length, packing, detokenizer in [
        ("lm1b", 128, "pad", "lm1b"),
        ("owt", 1024, "wrap", ""),
        ("text8", 256, "wrap", "text8"),
    ]:
        config = resolve(load_recipe(name))
        assert (config.data.length, config.data.packing) == (length, packing)
        assert config.data.detokenizer == detokenizer
        training, backbone = config.training, config.backbone.config
        assert (training.steps, training.batch, training.lr) == (1_000_000, 512, 3e-4)
        assert (training.warmup, training.ema, training.precision) == (2500, 0.9999, "auto")
        assert (backbone.width, backbone.depth, backbone.heads) == (768, 12, 12)


def test_a_recipe_is_laid_over_its_base(tmp_path):
    (tmp_path / "mine.yaml").write_text("base: demo\ntraining: {steps: 7}\nschedule: cosine\n")
    (tmp_path / "yours.yaml").write_text("base: mine.yaml\nseed: 3\n")
    config, demo = resolve(load_recipe(str(tmp_path / "yours.yaml"))), resolve(load_recipe("demo"))
    assert config == replace(
        demo,
        seed=3,
        schedule=Choice("cosine", SCHEDULES.build("cosine")),
        training=replace(demo.training, steps=7),
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"training: {steps: 1", "is not YAML"),
        (b"training: \xff\xfe", "is not UTF-8 text"),
        (b"training: \x00", "is not YAML: it holds control characters"),
        (b"just words", "should hold sections such as 'training:'"),
        (b"seed: 1\nseed: 2", "gives 'seed' twice, again at line 2"),
        (b"base: bad.yaml", "its own base"),
        (b"base: dmo", "unknown recipe 'dmo'; did you mean 'demo'?"),
    ],
)
def test_a_broken_recipe_file_is_one_line(body, message, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(body)
    with pytest.raises(UnmaskError) as caught:
        load_recipe(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_recipes_are_named():
    with pytest.raises(UnmaskError, match="unknown recipe 'dem'; did you mean 'demo'"):
        load_recipe("dem")
    with pytest.raises(UnmaskError, match=r"there is no recipe file nowhere\.yaml"):
        load_recipe("nowhere.yaml")


def test_defaults_are_those_of_the_chosen_components():
    config = resolve({"method": "d3pm"}, [("method.steps", "7"), ("training.lr", "1")])
    found = defaults(config)
    assert (found["method"]["steps"], found["training"]["lr"]) == (1000, 3e-4)
    assert found["data"]["tokenizer"]["size"] == config.data.tokenizer.size
    assert found.keys() <= to_dict(config).keys()

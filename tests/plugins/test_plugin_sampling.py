"""A sampler and a logits processor, each a plugin of one file, in every interface."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from builders import MASK_SAMPLERS
from fastapi.testclient import TestClient
from plugins import plugged, plugin_file
from tiny_models import LENGTH, one_line

import unmask
from unmask.cli import main
from unmask.config.components import build_method
from unmask.config.run_config import resolve
from unmask.data.tokenizers.characters import CharacterTokenizer
from unmask.errors import UnmaskError
from unmask.generation.logits_processor import LOGITS_PROCESSORS, LogitsProcessor
from unmask.serve.app import create_app
from unmask.serve.execution.engine import Engine

TYPICAL = {"typical": {"mass": 0.3}}
OUTSIDE = {"sampler": "outside_in:per_step=3"}
OPTIONS = {"length": 20, "seed": 4}


@pytest.fixture(scope="module", autouse=True)
def _plugins() -> Iterator[None]:
    with plugged("typical", "outside_in"):
        yield


@pytest.fixture(scope="module")
def client(model) -> Iterator[TestClient]:
    router = pytest.importorskip("unmask.extensions.play.page_routes").router
    with Engine({"tiny": model}) as engine:
        app = create_app(engine, routers=[router(engine)])
        with TestClient(app, base_url="http://localhost") as client:
            yield client


@pytest.fixture(scope="module")
def scores() -> unmask.Model:
    """An untrained model of scores, which the sampler analytic needs."""
    choices = {"method": "sedd", "backbone.time_conditioning": "true", "data.length": str(LENGTH)}
    choices |= {"data.tokenizer.kind": "characters", "data.packing": "split"}
    choices |= {"backbone.width": "16", "backbone.depth": "1", "backbone.heads": "2"}
    config, tokenizer = resolve({}, list(choices.items())), CharacterTokenizer("abcdefgh")
    return unmask.Model(build_method(config, tokenizer.vocabulary), tokenizer, config)


def texts(results) -> list[str]:
    return [str(result) for result in results]


def written(capsys, *argv: str) -> list[str]:
    assert main(list(argv)) == 0
    return [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]


def failure(capsys, *argv: str) -> str:
    assert main(list(argv)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


# The distribution


@pytest.mark.parametrize(
    ("mass", "kept"), [(0.2, [1]), (0.25, [1]), (0.7, [0, 1]), (0.8, [0, 1, 2])]
)
def test_typical_tokens_are_those_nearest_to_the_entropy(mass, kept):
    """H = 1.208 nats; |H + log p| is 0.515, 0.178, 0.689 and 1.095, so the order is 1, 0, 2, 3."""
    kind = LOGITS_PROCESSORS["typical"]
    log_probs = torch.tensor([[0.5, 0.25, 0.15, 0.1]]).log()
    found = kind(kind.Options(mass))(log_probs, None, None)
    assert found.isfinite()[0].nonzero()[:, 0].tolist() == kept
    assert torch.equal(found[:, kept], log_probs.log_softmax(-1)[:, kept])


@pytest.fixture
def evens(monkeypatch) -> list[torch.Size]:
    """A processor that excludes odd ids and, against the rule, allows all even ones. Returns the shapes of its rows."""
    monkeypatch.setattr(
        LOGITS_PROCESSORS, "_entries", {name: LOGITS_PROCESSORS[name] for name in LOGITS_PROCESSORS}
    )
    seen = []

    @LOGITS_PROCESSORS.register("evens")
    class Evens(LogitsProcessor):
        """Draws even ids."""

        Options = LOGITS_PROCESSORS["typical"].Options

        def __call__(self, log_probs, ids, at):
            assert len(log_probs) == len(at[0])
            seen.append(ids.shape)
            odd = torch.arange(log_probs.shape[-1]) % 2 == 1
            return torch.zeros_like(log_probs).masked_fill(odd, -torch.inf)

    return seen


@pytest.mark.parametrize("name", [*MASK_SAMPLERS, "outside_in"])
@pytest.mark.parametrize("strategy", ["stochastic", "deterministic"])
def test_a_processor_works_with_every_sampler(name, strategy, evens, model, left_to_right, scores):
    options = {"evens": {"mass": 1}, "sampler": name, "strategy": strategy, "stop": False}
    asked = [scores] if name == "analytic" else [model]
    asked += [left_to_right] if name == "left_to_right" else []  # it decodes with a cache
    for one in asked:
        special = {one.tokenizer.vocabulary.mask_id, one.tokenizer.vocabulary.pad_id}
        (result,) = one.generate(length=14, **options)
        drawn = result.ids[1:]
        assert all(token % 2 == 0 for token in drawn) and not special & set(drawn)
    assert evens


def test_in_windows_a_processor_gets_whole_rows(evens, model):
    (result,) = model.generate(length=2 * LENGTH, evens={"mass": 1}, stop=False)
    assert all(token % 2 == 0 for token in result.ids[1:-1])
    assert {shape[1] for shape in evens} == {2 * LENGTH}


def test_it_is_active_if_one_of_its_options_is_given(model):
    plain, typical = (texts(model.generate(n=3, **OPTIONS, **more)) for more in ({}, TYPICAL))
    assert texts(model.generate(n=3, **OPTIONS, typical={})) == plain != typical
    assert texts(model.generate(n=3, **OPTIONS, typical={"mass": None})) == plain


def test_a_processor_that_excludes_all_tokens_is_one_line(model, monkeypatch):
    kind = LOGITS_PROCESSORS["typical"]
    monkeypatch.setattr(kind, "__call__", lambda self, p, ids, at: p - torch.inf)
    with pytest.raises(UnmaskError, match="a logits processor leaves no token") as caught:
        model.generate(**OPTIONS, **TYPICAL)
    one_line(caught)


# The sampler


def test_the_sampler_reveals_both_ends_first(model):
    mask = model.tokenizer.vocabulary.mask_id
    frames = list(model.stream(length=11, stop=False, sampler="outside_in:per_step=4"))
    open_places = [(frame.tokens[0] == mask).nonzero()[:, 0].tolist() for frame in frames]
    assert open_places == [[3, 4, 5, 6, 7, 8], [5, 6], []]
    assert frames[-1].calls.tolist() == [3]


# Surfaces


def test_every_interface_generates_the_same_text(model, run, client, capsys):
    asked = {**OPTIONS, **OUTSIDE}
    expected = texts(model.generate("The", **asked, **TYPICAL))
    assert expected != texts(model.generate("The", **asked))
    assert texts(model.generate("The", **asked, **{"typical.mass": "0.3"})) == expected
    flags = ["--prompt", "The", "--length", "20", "--seed", "4", "--sampler", OUTSIDE["sampler"]]
    assert (
        written(capsys, "generate", str(run), "--json", *flags, "--typical.mass", "0.3") == expected
    )
    question = {"prompt": "The", **asked, **TYPICAL}
    lines = client.post("/v1/stream", json=question).text.splitlines()
    assert json.loads(lines[-2].removeprefix("data: "))["texts"] == expected
    page = {"model": "tiny", "text": "The", **asked, "temperature": 1, "typical.mass": 0.3}
    steps = client.post("/play/stream", json=page).text.strip().split("\n\n")
    spelled = {}
    for step in steps:
        changes = json.loads(step.removeprefix("data: ")).get("changes", ())
        spelled |= {place: text for place, _, text, _ in changes}
    assert "".join(spelled.values()).startswith(expected[0])


def test_the_harness_takes_them(model):
    Options = pytest.importorskip("unmask.extensions.lm_eval.model_args").Options
    requests = pytest.importorskip("unmask.extensions.lm_eval.requests")

    def answer(**more):
        own = Options.of({"path": "unused", **OUTSIDE, **more})
        return requests.RequestRunner(model, own).generate_until([("The", {"until": ["."]})])

    drawn = answer(temperature=1)
    assert answer(**{"typical.mass": 0.3}) != drawn  # it draws, among fewer tokens
    assert answer(**{"typical.mass": 0.3, "temperature": 1}) == answer(**{"typical.mass": "0.3"})
    with pytest.raises(UnmaskError, match=r"did you mean 'typical.mass'\?"):
        Options.of({"path": "x", "typical.mas": 0.3})


def test_a_model_may_have_a_default_of_them(model, tmp_path):
    model.save(tmp_path / "saved", defaults={"typical.mass": "0.3"})
    saved = unmask.load(tmp_path / "saved", device="cpu")
    assert dict(saved.defaults) == {"typical.mass": 0.3}
    assert texts(saved.generate(**OPTIONS)) == texts(model.generate(**OPTIONS, **TYPICAL))
    other = {"typical": {"mass": 0.9}}
    assert texts(saved.fill("The [MASK:9]", **other)) == texts(model.fill("The [MASK:9]", **other))


def test_the_command_reads_plugin_files(run, model):
    plugins = [
        part for name in ("typical", "outside_in") for part in ("--plugin", plugin_file(name))
    ]
    options = [
        "--length",
        "20",
        "--seed",
        "4",
        "--sampler",
        OUTSIDE["sampler"],
        "--typical.mass",
        ".3",
    ]
    command = [sys.executable, "-m", "unmask", *plugins, "generate", run, "--json", *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    expected = texts(model.generate(**OPTIONS, **OUTSIDE, **TYPICAL))
    assert [json.loads(line)["text"] for line in done.stdout.splitlines()] == expected


# Lists


def test_help_and_lists_show_them(capsys):
    with pytest.raises(SystemExit):
        main(["generate", "--help-all"])
    found = capsys.readouterr().out
    assert "--typical.mass X" in found and "share of the probability to keep (0.95)" in found
    assert "Keeps the tokens whose information is nearest" in found
    assert main(["list", "samplers", "outside_in"]) == 0
    assert "outside_in:per_step=  tokens revealed in each step (1)" in capsys.readouterr().out


def test_the_schema_shows_them(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for request in ("Completing", "Filling", "Watching"):
        fields = schemas[request]["properties"]
        assert fields["typical"]["anyOf"][0] == {"$ref": "#/components/schemas/typical"}
        assert (
            "outside_in (per_step: tokens revealed in each step)"
            in fields["sampler"]["description"]
        )
    mass = {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.95}
    about = {"title": "Mass", "description": "share of the probability to keep"}
    assert schemas["typical"]["properties"] == {"mass": mass | about}
    assert schemas["typical"]["additionalProperties"] is False
    assert "<code>typical.mass</code>" in client.get("/docs").text


def test_the_playground_has_controls_for_them(client):
    menu = client.get("/play/menu").json()
    (control,) = [one for one in menu["options"] if one["name"] == "typical.mass"]
    assert control["kind"] == "float" and (control["min"], control["max"]) == (0, 1)
    (sampler,) = [one for one in menu["samplers"] if one["name"] == "outside_in"]
    (field,) = sampler["fields"]
    assert (field["name"], field["kind"], field["default"]) == ("per_step", "int", 1)
    assert field["help"] == "tokens revealed in each step"


# Mistakes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"typical": {"mas": 0.3}}, "unknown option of typical 'mas'; did you mean 'mass'?"),
        ({"typical.mas": 0.3}, "unknown option of typical 'mas'; did you mean 'mass'?"),
        ({"typical": {"mass": 0}}, "typical.mass must lie in (0, 1], not 0"),
        ({"typical": {"mass": "x"}}, "typical.mass: 'x' is not a number"),
        ({"typical": 0.3}, "typical takes its options by name"),
        ({"typcal.mass": 0.3}, "did you mean 'typical.mass'?"),
        ({"sampler": "outside_in:per_step=0"}, "outside_in:per_step must be 1 or more"),
        ({"sampler": "outside_in:per_stp=2"}, "did you mean 'per_step'?"),
    ],
)
def test_a_mistake_is_one_line(model, options, message):
    with pytest.raises(UnmaskError) as caught:
        model.generate(**options)
    assert message in one_line(caught)


def test_a_mistake_on_the_command_line_is_one_line(run, capsys):
    assert "did you mean '--typical.mass'?" in failure(
        capsys, "generate", str(run), "--typical.mas", "1"
    )
    assert "must lie in (0, 1]" in failure(capsys, "generate", str(run), "--typical.mass", "7")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mas": 0.3}, "typical: unknown option of typical 'mas'; did you mean 'mass'?"),
        ({"mass": 7}, "typical.mass: Input should be less than or equal to 1"),
        ({"mass": "0.3"}, "typical.mass: Input should be a valid number"),
    ],
)
def test_a_mistake_over_http_is_one_line(client, fields, message):
    answer = client.post("/v1/fill", json={"text": "The [MASK]", "typical": fields})
    assert answer.status_code == 400
    assert message == answer.json()["error"]["message"]


def test_a_mistake_on_the_page_is_one_line(client):
    answer = client.post("/play/stream", json={"model": "tiny", "typical.mas": 0.3})
    assert answer.status_code == 400
    assert "did you mean 'typical.mass'?" in answer.json()["error"]["message"]

"""Models of pairs, trained in seconds: generation and likelihood of targets,
and refusals.
"""

import json
import re
from dataclasses import replace

import pytest
from pair_runs import LETTERS, OWN, SEEN, SETTINGS, SHAPE, UNSEEN, turned, write_pairs
from rich.console import Console
from tiny_models import one_line

import unmask
from unmask.cli import main
from unmask.config.run_config import resolve
from unmask.errors import UnmaskError
from unmask.evaluation.suites.sample_quality import compare
from unmask.generation.display import MASK, Picture


@pytest.mark.parametrize("method", OWN)
def test_a_tiny_model_reverses_unseen_words(method, pair_models):
    texts = [
        str(result) for result in pair_models[method].generate(UNSEEN, strategy="deterministic")
    ]
    right = sum(text == turned(word) for text, word in zip(texts, UNSEEN, strict=True))
    assert right > 0.7 * len(UNSEEN)  # chance is one in hundreds
    lengths = sum(len(text) == len(word) for text, word in zip(texts, UNSEEN, strict=True))
    assert lengths > 0.7 * len(UNSEEN)  # the model also learns the length of a target


def test_one_held_out_pair_is_enough_for_samples(tmp_path):
    few = {"data.train": write_pairs(tmp_path / "few.jsonl", SEEN[:8]), "data.valid": ""}
    settings = {**SETTINGS, **few, "data.cache": str(tmp_path / "cache"), "data.holdout": 0.01}
    settings |= {"training.steps": 2, "training.sample_every": 1, "training.batch": 2}
    settings |= {f"backbone.{name}": value for name, value in SHAPE.items()}
    config = resolve({}, [(name, str(value)) for name, value in settings.items()])
    unmask.train(config, tmp_path / "run", say=lambda line: None)
    for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines():
        assert len(json.loads(line)["samples"]) == 1


@pytest.mark.parametrize("method", OWN)
def test_the_perplexity_is_of_targets_with_one_end_each(method, pair_models):
    model = pair_models[method]
    bound = model.perplexity()
    assert bound.tokens == sum(len(word) + 1 for word in UNSEEN)
    assert bound.characters == sum(map(len, UNSEEN))
    pairs = [(word, turned(word)) for word in UNSEEN]
    assert model.perplexity(pairs) == bound
    assert bound.nats < 0.4  # a random letter costs more than 2
    wrong = model.perplexity([(word, turned(word)[::-1]) for word in UNSEEN if word != word[::-1]])
    assert wrong.nats > 2 * bound.nats


def test_left_to_right_a_target_and_its_end_are_measured_exactly(pair_mdlm):
    bound = pair_mdlm.perplexity([("abc", "CBA")], order="left_to_right")
    assert (bound.certificate, bound.tokens) == ("exact", 4)
    with pytest.raises(UnmaskError, match="left_to_right, which is exact"):
        pair_mdlm.perplexity([("abc", "CBA")], order="random")


def test_pairs_that_do_not_fit_are_reported_with_the_perplexity(
    pair_mdlm, pair_runs, tmp_path, capsys
):
    assert pair_mdlm.perplexity([("abc", "CBA"), ("abcdefg", "GFEDCBA")]).left_out == 1
    data = write_pairs(tmp_path / "long.jsonl", ["ab", "abcdefg", "abcdefgh"])
    assert main(["evaluate", str(pair_runs["mdlm"]), "--data", data, "--draws", "2"]) == 0
    assert "left out           │ 2 pairs longer than a row" in capsys.readouterr().out
    assert main(["evaluate", str(pair_runs["mdlm"]), "--draws", "2"]) == 0
    assert "left out" not in capsys.readouterr().out


def test_unknown_tokens_are_counted(pair_mdlm, pair_runs, tmp_path, capsys):
    """One token replaces any unknown text, so bits per byte belong to another text: no bound,
    not exact.
    """
    unknown = "中文"  # in the target; unknown text in the source is not predicted
    assert pair_mdlm.perplexity([("abc", unknown), (f"a{unknown}", "A")], draws=2).unknown == 2
    assert pair_mdlm.perplexity([("abc", "CBA")], draws=2).unknown == 0
    file = tmp_path / "foreign.jsonl"
    file.write_text(json.dumps({"word": "abc", "turned": unknown}))
    how = ["--data", str(file), "--order", "left_to_right"]
    assert main(["evaluate", str(pair_runs["mdlm"]), *how]) == 0
    shown = capsys.readouterr().out
    assert "2 unknown tokens" in shown
    assert re.search(r"bits per byte +│ ≈ [\d.]+ ", shown)
    assert main(["evaluate", str(pair_runs["mdlm"]), *how, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unknown"] == 2


def test_a_target_does_not_depend_on_its_batch(pair_mdlm):
    together = pair_mdlm.generate(UNSEEN[:4], seed=[5, 6, 7, 8], sampler="ancestral")
    alone = [pair_mdlm.generate(UNSEEN[i], seed=[5 + i])[0] for i in range(4)]
    assert [(a.text, a.ids, a.calls) for a in together] == [(b.text, b.ids, b.calls) for b in alone]


def test_the_end_of_a_target_may_be_drawn_first(pair_mdlm):
    """It takes one call for the end and one for each letter,
    instead of one for each position of the row.
    """
    how = {"sampler": "confidence", "strategy": "deterministic"}
    found = pair_mdlm.generate(UNSEEN, ending="first", **how)
    assert all(result.calls == len(result.ids) for result in found)  # EOS is one of them
    lengths = sum(len(str(text)) == len(word) for text, word in zip(found, UNSEEN, strict=True))
    assert lengths > 0.7 * len(UNSEEN)
    free = pair_mdlm.generate(UNSEEN, **how)
    assert sum(result.calls for result in found) < 0.9 * sum(result.calls for result in free)


def test_a_result_is_the_target_alone(pair_mdlm):
    (result,) = pair_mdlm.generate("abc", strategy="deterministic")
    v = pair_mdlm.tokenizer.vocabulary
    assert not set(result.text) & set(LETTERS)
    assert result.ids[:-1] == pair_mdlm.tokenizer.encode(result.text)
    assert result.ids[-1] == v.eos_id
    assert len(pair_mdlm.generate("abc", n=3)) == 3


def test_frames_keep_the_source(pair_mdlm):
    source = pair_mdlm.tokenizer.encode("abc")
    frames = list(pair_mdlm.stream(["abc"], seed=1))
    assert all(frame.tokens[0, 1:4].tolist() == source for frame in frames)
    assert not (frames[-1].tokens == pair_mdlm.tokenizer.vocabulary.mask_id).any()


def test_a_constraint_applies_to_the_target(pair_mdlm):
    texts = pair_mdlm.generate("abc", n=4, regex="[A-C]{2}D?")
    assert all(text.text[:2].strip("ABC") == "" and len(text.text) in (2, 3) for text in texts)
    with pytest.raises(UnmaskError) as caught:
        pair_mdlm.generate(["ab", "abc"], ban=["A"])
    assert one_line(caught) == "targets are constrained for one source at a time: give one source"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda model: model.generate(), "the source is empty"),
        (lambda model: model.generate(["ab", " "]), "the source is empty"),
        (lambda model: model.generate("abcdefgh"), "leaves no room for a target in a row of 10"),
        (lambda model: model.generate("ab", length="auto"), "share a row of 10 tokens"),
        (lambda model: model.generate("ab", length=11), "share a row of 10 tokens"),
        (lambda model: model.generate("ab", sampler="semi_autoregressive"), "without windows"),
        (lambda model: model.generate("ab", ending="last"), "unknown ending 'last'"),
        (
            lambda model: model.generate("ab", ending="first", sampler="remask"),
            "a sampler that revises may change where a text ends: give ending free",
        ),
        (
            lambda model: model.generate("ab", ending="first", ban=["A"]),
            "a constraint may need a longer text than ending first fixes: give ending free",
        ),
        (
            lambda model: model.generate("ab", ending="first", stop=False),
            "ending first is for diffusion models of pairs",
        ),
        (
            lambda model: text_model(model).generate(ending="first"),
            "ending first is for diffusion models of pairs",
        ),
        (lambda model: model.fill("a[MASK]"), "cannot fill: use generate instead"),
        (lambda model: model.edit("ab", remask=0.5), "cannot edit: use generate instead"),
        (lambda model: model.perplexity(["text"]), "this model was trained on pairs"),
        (lambda model: model.perplexity(packing="split"), "set data.packing to pad"),
    ],
)
def test_unsupported_calls_of_a_model_of_pairs_are_one_line(ask, message, pair_mdlm):
    with pytest.raises(UnmaskError) as caught:
        ask(pair_mdlm)
    assert message in one_line(caught)


def text_model(model: unmask.Model) -> unmask.Model:
    """A model of text with the same weights."""
    data = replace(model.config.data, source_field="", target_field="")
    return unmask.Model(model.method, model.tokenizer, replace(model.config, data=data))


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (
            lambda model: compare(model),
            "it generates no text without a source; score it with 'unmask evaluate translation MODEL'",
        ),
        (
            lambda model: compare(text_model(model), judge=model),
            "give a model of text as the judge",
        ),
    ],
)
@pytest.mark.parametrize("method", OWN)
def test_a_model_of_pairs_is_not_measured_as_one_of_text(method, measure, message, pair_models):
    with pytest.raises(UnmaskError) as caught:
        measure(pair_models[method])
    assert one_line(caught).startswith(f"a model of pairs writes targets for sources: {message}")


def test_a_model_of_pairs_is_refused_before_a_judge_is_fetched(pair_runs, monkeypatch, capsys):
    monkeypatch.setattr(
        "unmask.evaluation.judges.load_judge.load_judge", lambda *args, **options: pytest.fail()
    )
    command = ["evaluate", "generation", str(pair_runs["mdlm"]), "--judge", "no/judge"]
    assert main(command) == 2
    assert "a model of pairs writes targets for sources" in capsys.readouterr().err


def test_a_diffusion_model_needs_filled_targets(tmp_path):
    settings = {
        **SETTINGS,
        "data.train": write_pairs(tmp_path / "train.jsonl", SEEN),
        "data.fill_target": "false",
        "data.cache": str(tmp_path / "cache"),
    }
    config = resolve({}, [(name, str(value)) for name, value in settings.items()])
    with pytest.raises(UnmaskError, match=r"set data\.fill_target true"):
        unmask.train(config, tmp_path / "run")


def test_samples_show_source_and_target(pair_runs):
    (record,) = map(json.loads, (pair_runs["mdlm"] / "samples.jsonl").read_text().splitlines())
    assert [sample.split(" → ")[0] for sample in record["samples"]] == UNSEEN[:2]


def test_the_command_writes_targets_and_shows_them_forming(pair_runs, capsys, pair_mdlm):
    command = ["generate", str(pair_runs["mdlm"]), "--prompt", "abc", "--strategy", "deterministic"]
    assert main(command) == 0
    printed = capsys.readouterr().out.strip()
    assert printed == str(pair_mdlm.generate("abc", strategy="deterministic")[0])
    assert main([*command, "--watch"]) == 0
    assert capsys.readouterr().out.strip() == printed


def test_a_picture_shows_the_target(pair_mdlm):
    v = pair_mdlm.tokenizer.vocabulary
    target = [*pair_mdlm.tokenizer.encode("CB"), v.mask_id, v.eos_id, v.eos_id]
    ids = [v.bos_id, *pair_mdlm.tokenizer.encode("abc"), v.eos_id, *target]
    new, confidence = [False] * 5 + [True] * 5, [0.0] * 5 + [0.9] * 5
    text = Picture(pair_mdlm.tokenizer, Console(), conditional=True).row(ids, new, confidence)
    assert text.plain == f"CB{MASK}"
    assert "bold green" in str(text.spans[0].style)  # new tokens with high confidence


def test_a_card_has_targets_of_the_first_sources(pair_runs, tmp_path):
    run, folder = pair_runs["mdlm"], tmp_path / "turner"
    valid = str(run.parent / "valid.jsonl")
    assert main(["export", str(run), str(folder)]) == 0
    card = ["card", str(folder), "--data", valid, "--about", "Words.", "--licence", "CC0"]
    assert main([*card, "--draws", "1", "--device", "cpu"]) == 0
    facts, page = json.loads((folder / "card.json").read_text()), (folder / "README.md").read_text()
    assert [sample["source"] for sample in facts["samples"]] == UNSEEN[:10]
    [target] = unmask.load(run).generate(UNSEEN[4], seed=4)
    assert facts["samples"][4]["text"] == target.text
    assert facts["texts"] == [] and facts["bound"]["nats"] > 0
    assert f"> {UNSEEN[4]} → {target.text}" in page and 'model.generate("SOURCE")' in page

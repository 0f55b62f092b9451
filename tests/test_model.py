"""Functions of a model: generation, filling gaps and perplexity."""

import math
import re

import pytest
import torch
from tiny_models import LENGTH, PROMPTS, TEXTS, content, one_line

import unmask
from unmask.errors import UnmaskError
from unmask.generation import generator as running
from unmask.samplers.ancestral import Ancestral
from unmask.samplers.left_to_right import LeftToRight

# Generating: seeds


def test_a_row_of_a_batch_equals_the_row_alone(either):
    together = either.generate(PROMPTS, seed=7)
    assert len({result.seed for result in together}) == len(PROMPTS)
    assert len({result.text for result in together}) > 1
    for prompt, result in zip(PROMPTS, together, strict=True):
        assert content(either.generate(prompt, seed=result.seed)[0]) == content(result)


@pytest.mark.parametrize("batch", [1, 3, 64])
def test_the_batch_size_changes_nothing(either, batch):
    ours = either.generate("The", n=5, seed=3, batch=batch)
    assert [content(r) for r in ours] == [content(r) for r in either.generate("The", n=5, seed=3)]


def test_texts_are_yielded_as_soon_as_they_are_finished(either, monkeypatch):
    monkeypatch.setattr(running, "_CPU_BATCH_TOKENS", 2 * LENGTH + 1)  # tokens of two rows
    written, batch = [], running.Generator._batch
    monkeypatch.setattr(
        running.Generator,
        "_batch",
        lambda *args, **how: written.append(args[1]) or batch(*args, **how),
    )
    texts = either.texts("The", n=5, seed=3)
    first = next(texts)
    together = 2 if not either.method.capabilities.causal else 5
    assert [len(rows) for rows in written] == [together]
    ours = [first, *texts]
    assert sum(len(rows) for rows in written) == 5
    assert [content(r) for r in ours] == [content(r) for r in either.generate("The", n=5, seed=3)]
    assert list(either.texts([])) == either.generate([]) == []


def test_filled_and_edited_texts_are_yielded_one_by_one_too(model):
    gaps, text = "The [MASK:3] on the mat.", TEXTS[0]
    assert [*map(content, model.texts(fill=gaps, n=3, seed=2))] == [
        *map(content, model.fill(gaps, n=3, seed=2))
    ]
    assert [*map(content, model.texts(edit=text, remask=0.5, n=3, seed=2))] == [
        *map(content, model.edit(text, remask=0.5, n=3, seed=2))
    ]


@pytest.mark.parametrize("verb", ["texts", "stream"])
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"fill": "a [MASK] b", "length": 5}, "unknown option 'length'"),
        ({"fill": "a [MASK] b", "stop": False}, "unknown option 'stop'"),
        ({"fill": "a [MASK] b", "remask": 0.5}, "unknown option 'remask'"),
        ({"edit": "a b", "remask": 0.5, "length": 5}, "unknown option 'length'"),
        ({"edit": "a b", "remaks": 0.5}, "unknown option 'remaks'; did you mean 'remask'?"),
        ({"prompts": "a", "remask": 0.5}, "unknown option 'remask'"),
        ({"prompts": "a", "lenght": 5}, "unknown option 'lenght'; did you mean 'length'?"),
        ({"prompts": [], "fill": "a [MASK]"}, "give one of prompts, fill, edit"),
        ({"prompts": "a", "edit": "a b", "remask": 0.5}, "give one of prompts, fill, edit"),
        ({"fill": "a [MASK]", "edit": "a b"}, "give one of prompts, fill, edit"),
    ],
)
def test_iterators_refuse_the_options_that_the_function_refuses(model, verb, asked, told):
    with pytest.raises(UnmaskError) as caught:
        getattr(model, verb)(**asked)
    refusal = one_line(caught)
    assert refusal.startswith(told)
    (source, text), *options = asked.items()
    if refusal.startswith("unknown"):
        itself = model.generate if source == "prompts" else getattr(model, source)
        with pytest.raises(UnmaskError, match=re.escape(refusal)):
            itself(text, **dict(options))
        name = refusal.split("'")[1]
        assert f"did you mean {name!r}" not in refusal


def test_no_prompts_give_no_texts_but_mistakes_are_reported(model):
    for write in (model.generate, lambda prompts, **options: list(model.texts(prompts, **options))):
        assert write([], length=5, stop=False) == []
        with pytest.raises(UnmaskError, match="unknown option 'remask'"):
            write([], remask=0.5)


def test_a_seed_is_an_int_or_a_list_with_one_per_row(model):
    first = model.generate("The", n=3, seed=5)
    again = model.generate("The", n=3, seed=[result.seed for result in first])
    assert [content(result) for result in again] == [content(result) for result in first]
    assert first[0].seed == 5
    same = model.generate("The", n=3, seed=[9, 9, 9])
    assert len({result.text for result in same}) == 1
    assert [result.text for result in model.generate("The", n=3, seed=6)] != [
        result.text for result in first
    ]


def test_every_prompt_gets_n_texts_in_order(model):
    results = model.generate(["The cat", "The dog"], n=2)
    assert [str(result)[:7] for result in results] == ["The cat", "The cat", "The dog", "The dog"]


# Generating: results


def test_the_prompt_stays_verbatim(either):
    v = either.tokenizer.vocabulary
    results = either.generate(PROMPTS, length=20, stop=False)
    for prompt, result in zip(PROMPTS, results, strict=True):
        begun = [v.bos_id, *either.tokenizer.encode(prompt)]
        assert result.ids[: len(begun)] == begun
        assert str(result).startswith(prompt)
        assert len(result.ids) == 20
        assert v.mask_id not in result.ids


def test_the_text_ends_at_its_first_eos(either):
    eos = either.tokenizer.vocabulary.eos_id
    ended = [result for result in either.generate(n=40) if eos in result.ids]
    assert ended
    for result in ended:
        assert result.ids.index(eos) == len(result.ids) - 1
        assert str(result) == either.tokenizer.decode(result.ids)


def test_calls_are_at_most_the_steps_and_the_tokens(model, left_to_right):
    few = model.generate("The", steps=3, n=4)
    assert all(1 <= result.calls <= 3 for result in few)
    assert all(result.calls <= LENGTH - 1 for result in model.generate(n=4, steps=1000))
    whole = left_to_right.generate(["", "The"], stop=False)
    assert {result.calls for result in whole} == {23, 20}
    for result in left_to_right.generate(n=4):  # nothing is computed after the end
        assert result.calls == len(result.ids) - 1
    assert all(result.seconds > 0 for result in few)


@pytest.mark.parametrize("length", [LENGTH + 1, 2 * LENGTH, 61])
def test_text_longer_than_the_model_is_written_in_windows(either, length):
    v = either.tokenizer.vocabulary
    results = either.generate(["The cat", "The"], length=length, seed=2, stop=False)
    for prompt, result in zip(["The cat", "The"], results, strict=True):
        assert len(result.ids) == length
        assert str(result).startswith(prompt)
        assert not {v.mask_id, v.eos_id} & set(result.ids)
        alone = either.generate(prompt, length=length, seed=result.seed, stop=False)[0]
        assert content(alone) == content(result)


def test_samplers_by_name_and_as_objects(model):
    by_name = model.generate("The", sampler="ancestral", steps=6, seed=1)
    as_object = model.generate("The", sampler=Ancestral(steps=6), seed=1)
    assert content(by_name[0]) == content(as_object[0])
    in_order = model.generate("The", sampler="left_to_right", stop=False)[0]
    assert in_order.calls == LENGTH - 1 - len(model.tokenizer.encode("The"))
    whole = model.generate("The", sampler="semi_autoregressive", stop=False)[0]
    assert len(whole.ids) == LENGTH
    longer = model.generate("The", sampler=LeftToRight(), length=40, stop=False)[0]
    assert len(longer.ids) == 40


def test_temperature_zero_takes_the_likeliest_token_for_every_seed(left_to_right):
    texts = {str(r) for r in left_to_right.generate("The", n=4, temperature=0.0, length=12)}
    assert len(texts) == 1
    assert texts == {str(r) for r in left_to_right.generate("The", n=2, top_k=1, length=12)}


# Filling


def test_fill_keeps_the_text_around_the_gaps(model):
    template = "The [MASK] sat on the [MASK:3]."
    results = model.fill(template, n=6, seed=4)
    assert len({str(result) for result in results}) > 1
    for result in results:
        assert re.fullmatch(r"The.* sat on the.*\.", str(result), re.DOTALL)
        again = model.fill(template, seed=result.seed)[0]
        assert content(again) == content(result)


def test_fill_changes_only_gaps_and_fills_them_with_words(model):
    v = model.tokenizer.vocabulary
    encode = model.tokenizer.encode
    around = [v.bos_id, *encode("The"), *[v.mask_id] * 9, *encode(" sat."), v.eos_id]
    for result in model.fill(
        "The [MASK:9] sat.", n=64, temperature=1e6
    ):  # all tokens are equally likely
        assert len(result.ids) == len(around)
        for token, given in zip(result.ids, around, strict=True):
            if given == v.mask_id:
                assert token not in (v.mask_id, v.bos_id, v.eos_id, v.pad_id)
            else:
                assert token == given
        assert 1 <= result.calls <= 9


def test_several_texts_are_filled_and_edited_in_order(model):
    gaps = ["The [MASK:2] on the mat.", "A [MASK]."]
    apart = [content(one) for text in gaps for one in model.fill(text, n=2, seed=3)]
    assert [content(one) for one in model.fill(gaps, n=2, seed=3)] == apart
    apart = [content(model.edit(text, remask=0.5, seed=3)[0]) for text in TEXTS[:2]]
    assert [content(one) for one in model.edit(TEXTS[:2], remask=0.5, seed=3)] == apart


def test_the_network_and_its_logits_are_at_hand(model):
    ids = model.tokenizer.encode("The cat sat.")
    logits = model.logits(ids)
    assert logits.shape == (1, len(ids), model.tokenizer.vocabulary.size)
    torch.testing.assert_close(model.logits([ids, ids])[1:], logits, rtol=0, atol=1e-5)
    before = content(model.generate("The", seed=1)[0])
    assert model.to("cpu") is model and content(model.generate("The", seed=1)[0]) == before


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda model: unmask.train("demo", steps=3), "overrides={'training.steps': 3}"),
        (lambda model: unmask.load("stories", dtype="bf16"), "give precision"),
        (lambda model: unmask.load("gpt2"), "'hf:gpt2' of the Hugging Face hub"),
        (lambda model: model.perplexity(__file__), "give pathlib.Path"),
        (lambda model: model.generate("x", sampler="latent_ddim"), "or one of analytic, "),
    ],
)
def test_a_wrong_argument_is_told_the_right_one(model, call, hint):
    with pytest.raises(UnmaskError) as caught:
        call(model)
    assert hint in one_line(caught)


def test_an_autoregressive_model_does_not_fill(left_to_right):
    with pytest.raises(UnmaskError) as caught:
        left_to_right.fill("The [MASK] sat.")
    assert "diffusion model" in one_line(caught)


# Perplexity


def test_perplexity_counts_every_token_of_short_and_long_texts(either):
    short, long = "The cat sat.", " ".join(TEXTS[:6])
    bound = either.perplexity([short, long], draws=2)
    body, tokens = LENGTH - 2, [len(either.tokenizer.encode(text)) for text in (short, long)]
    assert tokens[0] <= body < tokens[1]
    rows = sum(-(-count // body) for count in tokens)
    assert bound.tokens == sum(tokens) + 2 * rows  # each row has its BOS and EOS
    assert bound.bytes == bound.characters == len(short + long)
    assert 1 < bound.perplexity < 1000


def test_training_text_is_likelier_than_noise(either):
    assert either.perplexity(TEXTS).nats < 0.7 * either.perplexity(["zqx wvk jyp"] * 3).nats


def test_perplexity_of_the_validation_text_and_of_a_file(model, tmp_path):
    held_out = model.perplexity()
    assert held_out.tokens > 0
    assert model.perplexity() == held_out
    assert model.perplexity(seed=1).nats != held_out.nats
    file = tmp_path / "text.txt"
    file.write_text(TEXTS[0])
    alone = model.perplexity([TEXTS[0]])
    assert model.perplexity(file) == model.perplexity(TEXTS[0]) == alone
    assert model.perplexity(source=str(file)) == alone


def test_one_row_and_one_draw_have_an_unknown_error(model):
    assert model.perplexity(["The cat."], draws=1).error == math.inf

"""Context: passages before a prompt, which the result leaves out."""

from unmask.generation.prompts import context_ids

PASSAGES = [
    "Zebras eat grass on the plain.",
    "The moon has no air and no water.",
    "The library opens at nine.",
    "A zebra has black and white stripes on the plain.",
]


def test_the_context_has_the_best_passage_last_and_fits(model):
    tokenizer = model.tokenizer
    eos = tokenizer.vocabulary.eos_id
    best, second = (tokenizer.encode(text) for text in PASSAGES[:2])
    both = [*second, eos, *best, eos]
    assert context_ids(tokenizer, PASSAGES[:2], 1000) == both
    cut = context_ids(tokenizer, PASSAGES[:2], len(both) - 3)
    assert cut == [*second[:-3], eos, *best, eos]
    assert context_ids(tokenizer, PASSAGES, 1) == []
    assert context_ids(tokenizer, ["", PASSAGES[0]], 1000) == [*best, eos]
    assert all(len(context_ids(tokenizer, PASSAGES, most)) <= most for most in range(60))


def test_the_context_is_read_and_left_out_of_the_result(either):
    options = {"length": 12, "n": 8, "seed": 0, "stop": False}
    plain, again = (either.generate("The", context=given, **options) for given in ((), []))
    assert [one.ids for one in plain] == [one.ids for one in again]
    for passage in PASSAGES:
        found = either.generate("The", context=passage, **options)
        for result in found:
            assert len(result.ids) == len(plain[0].ids)
            assert result.text.startswith("The")
            assert result.ids[0] == plain[0].ids[0]
        assert [one.ids for one in found] != [one.ids for one in plain]  # the network has read it


def test_a_context_is_the_same_as_fixed_tokens_before_the_prompt(model):
    """The text is that of a row whose prompt begins with the context."""
    tokenizer, v = model.tokenizer, model.tokenizer.vocabulary
    context = context_ids(tokenizer, PASSAGES[:1], model.length // 2)
    prompt = [v.bos_id, *context, *tokenizer.encode("The")]
    options = {"seed": 3, "stop": False, "sampler": "confidence", "steps": 4}
    [whole] = model.generate([prompt], length=10 + len(context), **options)
    [cut] = model.generate("The", context=PASSAGES[0], length=10, **options)
    assert cut.ids == [v.bos_id, *whole.ids[1 + len(context) :]]


def test_a_regex_and_windows_hold_for_the_text_without_its_context(model):
    [result] = model.generate("The", context=PASSAGES, length=12, regex=r"The[a-z ]*")
    assert result.text.startswith("The")
    assert set(result.text[3:]) <= set("abcdefghijklmnopqrstuvwxyz ")
    longer = model.length + 8
    [result] = model.generate("The", context=PASSAGES, length=longer, stop=False, steps=2)
    assert len(result.ids) == longer

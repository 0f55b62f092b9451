"""Chats: the template of transformers, the tokens that end an answer, and answers of every family."""

import io
import json

import pytest
import torch
from chat_models import CHATML, HEADERS, TALK, write_model
from transformers import AutoTokenizer

import unmask
from unmask.cli import main
from unmask.data.tokenizers.chat_format import chat_format
from unmask.errors import UnmaskError
from unmask.generation.answers.growing_text import GrowingText

MARKED = (
    "{{ strftime_now('%Y') }} {% for m in messages %}{% if loop.index > 9 %}{% break %}{% endif %}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}"
    "{% else %}[{{ m | tojson }}]{% endif %}{% endfor %}"
)
FAMILIES = ("llama", "llada", "Dream", "sdar", "Fast_dLLM_Qwen")


@pytest.fixture(scope="module", params=FAMILIES)
def talker(request, tmp_path_factory) -> unmask.Model:
    return unmask.load(write_model(tmp_path_factory.mktemp("chat"), request.param))


@pytest.mark.parametrize("template", [CHATML, HEADERS, MARKED])
@pytest.mark.parametrize("answering", [True, False])
def test_the_ids_of_a_chat_are_those_of_transformers(template, answering, tmp_path):
    write_model(tmp_path, "llama", template)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    ids = theirs.apply_chat_template(TALK, add_generation_prompt=answering, return_dict=False)
    assert chat_format(unmask.load(tmp_path).tokenizer).ids(TALK, answering) == ids


@pytest.mark.parametrize(
    ("template", "settings", "ends"),
    [
        (CHATML, {}, (3, 1)),
        (CHATML, {"eos_token": "<|im_end|>", "bos_token": None}, (3,)),
        (HEADERS, {}, (3, 1)),
        (MARKED, {}, (1,)),
        ("{{ messages[0].content }}", {}, (1,)),
    ],
)
def test_an_answer_ends_where_the_template_ends_it_or_at_eos(template, settings, ends, tmp_path):
    write_model(tmp_path, "llama", template, **settings)
    assert chat_format(unmask.load(tmp_path).tokenizer).ends == ends


def test_an_answer_satisfies_a_pattern_and_streams_to_the_same_text(talker):
    options = {"regex": "(Yes|No), [a-e]{3,9}[.]", "tokens": 20, "seed": 3}
    (answer,) = talker.chat(TALK, **options)
    assert "".join(talker.chat_stream(TALK, **options)) == answer.text
    assert answer.text.startswith(("Yes, ", "No, ")) and answer.text.endswith(".")
    (free,) = talker.chat("Hi", tokens=24, seed=1)
    assert "".join(talker.chat_stream("Hi", tokens=24, seed=1)) == free.text
    (form,) = talker.chat("Hi", tokens=30, json_schema={"enum": [{"a": 1}, [2]]})
    assert json.loads(form.text) in ({"a": 1}, [2])


@pytest.mark.parametrize("end", [1, 3])
def test_every_end_stops_an_answer(talker, end):
    (answer,) = talker.chat("Hi", tokens=30, allowed={5: [end]}, temperature=0)
    (row,) = list(talker.stream(chat="Hi", tokens=30, allowed={5: [end]}, temperature=0))[-1].tokens
    lead = len(row) - 30
    written = row[lead:].tolist()
    stop = min(written.index(one) for one in (1, 3) if one in written)
    assert stop <= 5 and answer.ids == written[: stop + 1]
    assert answer.text == talker.tokenizer.decode(written[:stop])
    pieces = list(talker.chat_stream("Hi", tokens=30, allowed={5: [end]}, temperature=0))
    assert "".join(pieces) == answer.text


def test_a_model_that_writes_onwards_does_not_compute_behind_the_end(tmp_path):
    model = unmask.load(write_model(tmp_path, "llama"))
    (answer,) = model.chat("Hi", allowed={3: [1]})
    assert answer.calls <= 4  # and the model has more than 100 tokens left
    (tmp_path / "blocks").mkdir()
    model = unmask.load(write_model(tmp_path / "blocks", "sdar"))
    (answer,) = model.chat("Hi", allowed={3: [1]})
    assert answer.calls <= 8


def test_a_final_part_is_sent_before_the_text_is_finished(talker):
    options = {"regex": "[a-e]{12}", "tokens": 12, "seed": 1}
    pieces = list(filter(None, talker.chat_stream("Hi", **options)))
    assert len(pieces) > 1
    growing, shown = GrowingText(talker.tokenizer, (1,), ("end",)), ""
    ids = talker.tokenizer.encode("an €end of")
    for ready in range(len(ids) + 1):
        shown += growing.more(ids, ready)
        assert "�" not in shown and not shown.endswith("e")
    assert shown == "an €" and growing.finish == "stop"


def test_a_text_alone_is_one_message_and_no_bos_is_added(tmp_path):
    model = unmask.load(write_model(tmp_path, "llama", bos_token=None))
    frame = next(iter(model.stream(chat="Hi", tokens=4)))
    ids = chat_format(model.tokenizer).ids([{"role": "user", "content": "Hi"}])
    assert frame.tokens[0, :-4].tolist() == ids and ids[0] == 2
    again = next(iter(model.stream(chat=ids, tokens=4)))
    assert torch.equal(frame.tokens, again.tokens)


LONG = [{"role": "user", "content": "a" * 250}]


@pytest.mark.parametrize(
    ("messages", "options", "reason"),
    [
        (LONG, {}, "has 288 tokens and the model reads 256: leave messages out"),
        ("Hi", {"tokens": 500}, "the answer can have 1 to 216 tokens"),
        ("Hi", {"tokens": 0}, "the answer can have 1 to"),
        ([], {}, "a chat is a text or a list of messages"),
        ([{"role": "user"}], {}, "message 1 of the chat needs a role and a content"),
        ([{"role": "tool", "content": "x"}], {}, "refuses the messages: no tools"),
    ],
)
def test_a_wrong_chat_is_one_line(messages, options, reason, tmp_path):
    template = HEADERS if "no tools" in reason else CHATML
    model = unmask.load(write_model(tmp_path, "llama", template))
    with pytest.raises(UnmaskError, match=reason):
        model.chat(messages, **options)


def test_a_model_without_a_template_does_not_chat(model, capsys, run):
    with pytest.raises(UnmaskError, match="no chat template: use generate"):
        model.chat("Hi")
    assert main(["chat", str(run)]) == 2
    assert capsys.readouterr().err.startswith("unmask: error: this model has no chat template")


def test_lines_of_a_terminal_are_answered_in_one_conversation(tmp_path, capsys, monkeypatch):
    write_model(tmp_path, "sdar")
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n\nAgain\n/new\nHi\n"))
    given = ["chat", str(tmp_path), "--system", "Be.", "--tokens", "12", "--regex", "[a-e]+"]
    assert main([*given, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    model = unmask.load(tmp_path)
    talk = [{"role": "system", "content": "Be."}, {"role": "user", "content": "Hi"}]
    (first,) = model.chat(talk, tokens=12, regex="[a-e]+")
    talk += [lines[0], {"role": "user", "content": "Again"}]
    (second,) = model.chat(talk, tokens=12, regex="[a-e]+")
    assert [line["content"] for line in lines] == [first.text, second.text, first.text]
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n" * 9))
    assert main(given) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{first.text}\n") and len(shown.out.splitlines()) == 9
    assert "2 messages are left out" in shown.err

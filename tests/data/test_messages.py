"""Chats as training data: only answers are predicted, and their ends are neither lost nor taught too often."""

import json
from pathlib import Path

import pytest
import torch
from chat_models import CHATML, HEADERS, TALK, write_tokenizer

from unmask.data.data_config import DataConfig
from unmask.data.load import load_data
from unmask.data.loader import AnswerTails, Loader
from unmask.data.tokenizers.chat_format import chat_format
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError

SHORT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
TALKS = [[*TALK, {"role": "assistant", "content": "22 or 4"}], SHORT]


def written(folder: Path, talks: list, template: str | None = CHATML, **settings) -> DataConfig:
    """Chats in a file, and a tokenizer beside them."""
    (folder / "tokenizer").mkdir()
    write_tokenizer(folder / "tokenizer", template, **settings)
    lines = [json.dumps({"id": 1, "messages": talk}) for talk in talks]
    (folder / "chats.jsonl").write_text("\n".join(lines))
    file = str(folder / "chats.jsonl")
    tokenizer = TokenizerConfig("hf", path=str(folder / "tokenizer"))
    return DataConfig(
        file,
        file,
        tokenizer=tokenizer,
        length=192,
        packing="pad",
        messages_field="messages",
        cache=str(folder),
    )


@pytest.mark.parametrize("template", [CHATML, HEADERS])
def test_only_answers_and_their_ends_are_predicted(template, tmp_path):
    data = load_data(written(tmp_path, TALKS, template))
    form = chat_format(data.tokenizer)
    x, valid = data.train[range(2)]
    given = data.train.given(range(2))
    for row, talk in enumerate(TALKS):
        predicted = valid[row] & ~given[row]
        ids = x[row][valid[row]].tolist()
        assert form.ids(talk, answering=False)[: len(ids)] == ids and ids[-1] == 3
        answers = [one["content"] for one in talk if one["role"] == "assistant"]
        assert data.tokenizer.decode(x[row][predicted]) == "".join(answers)
        assert (x[row][predicted] == 3).sum() == len(answers)
        first = int(predicted.int().argmax())
        asked = talk[: [one["role"] for one in talk].index("assistant")]
        assert ids[:first] == form.ids(asked)  # as in a chat with the model
    assert data.train.counted(range(2)).tolist() == [2 + 8, 3]
    assert data.train.tokens == 13 and data.train.bytes == len("222 or 4Yo")


def test_a_template_without_an_end_gets_eos(tmp_path):
    plain = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    plain += "{% if add_generation_prompt %}assistant: {% endif %}"
    data = load_data(written(tmp_path, [SHORT], plain))
    x, valid = data.train[[0]]
    predicted = valid & ~data.train.given([0])
    assert data.tokenizer.decode(x[predicted]) == "Yo\n" and x[valid][-1] == 1


def test_chats_share_rows_and_long_ones_are_cut(tmp_path):
    long = [SHORT[0], {"role": "assistant", "content": "a" * 300}]
    late = [{"role": "user", "content": "b" * 300}, SHORT[1]]
    config = written(tmp_path, [SHORT] * 9 + [long, late])
    data = load_data(config)
    assert (len(data.train), data.train.cut, data.train.left_out) == (10, 2, 1)
    x, valid = data.train[[9]]
    assert valid.all() and x[0, -1] not in (1, 3)  # a cut answer has no end
    (tmp_path / "packed").mkdir()
    config = written(tmp_path / "packed", [SHORT] * 9)
    packed = load_data(DataConfig(**{**vars(config), "packing": "fit"})).train
    assert len(packed) < 9 and packed.tokens == 9 * 3
    x, valid = packed[range(len(packed))]
    assert int((valid & ~packed.given(range(len(packed)))).sum()) == 27


def test_tails_weigh_as_one_token_and_have_every_length(tmp_path):
    data = load_data(written(tmp_path, [SHORT] * 40))
    loader = AnswerTails(Loader(data.train, 40, seed=3), eos_id=1)
    lengths = []
    for step in range(20):
        (x, valid), given = loader.batch(step, range(40)), loader.given(step, range(40))
        plain, text = loader.loader.batch(step, range(40))
        tail, weights = valid & ~text, loader.weights(step, range(40))
        assert (x[tail] == 1).all() and torch.equal(x[text], plain[text]) and not given[tail].any()
        assert (weights[~tail] == 1).all()
        assert loader.count(step, range(40)) == 40 * 3 + int(tail.any(1).sum())
        torch.testing.assert_close((weights * tail).sum(1), tail.any(1).float())
        lengths += tail.sum(1).tolist()
        half = loader.batch(step, range(20, 40))
        assert torch.equal(half[0], x[20:])
    room = 192 - int(text[0].sum())
    assert min(lengths) < room / 20 and max(lengths) > room * 19 / 20
    assert abs(sum(lengths) / len(lengths) - room / 2) < room / 10


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"text": "x"}, "has no field 'messages'; it has text: set data.messages_field"),
        ({"messages": "Hi"}, "no list of messages"),
        ({"messages": [{"role": "user"}]}, "needs a role and a content"),
        ({"messages": SHORT[:1]}, "has no message of the assistant"),
    ],
)
def test_a_wrong_chat_is_one_line(record, reason, tmp_path):
    config = written(tmp_path, [])
    (tmp_path / "chats.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(UnmaskError, match=reason):
        load_data(DataConfig(**{**vars(config), "corrupt": 0.0}))


def test_what_does_not_go_with_chats_is_one_line(tmp_path):
    with pytest.raises(UnmaskError, match="needs whole chats"):
        DataConfig(messages_field="messages")
    with pytest.raises(UnmaskError, match="goes with no pairs, labels"):
        DataConfig(messages_field="messages", packing="pad", label_field="x")
    with pytest.raises(UnmaskError, match="no chat template"):
        load_data(written(tmp_path, TALKS, None))
    (tmp_path / "other").mkdir()
    twice = "{% for m in messages %}{{ loop.length }}{{ m.content }}</s>{% endfor %}"
    with pytest.raises(UnmaskError, match="give chats with one answer"):
        load_data(written(tmp_path / "other", TALKS, twice))

"""A judge with its own tokenizer: figures by hand, independent of the batch,
one-line errors if it is missing.
"""

import math
import shutil
import socket
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_judge import CONTEXT, PREFIX, SENTENCE, fast_tokenizer, save_gguf, save_judge

from unmask.errors import UnmaskError
from unmask.evaluation.judges.causal_lm import CausalJudge, usual_prefix, windows_of
from unmask.evaluation.judges.judge import Sample
from unmask.evaluation.judges.load_judge import causal_judge
from unmask.evaluation.metrics.text_quality import measure

CPU = torch.device("cpu")
TEXTS = [
    "the cat sat on the mat",
    "",
    "naïve dögs — 猫 sat",
    "a literal <|endoftext|> in a text",
    "one \ufffd two",
    " ".join([SENTENCE] * 6),  # longer than the judge reads at a time
]


@pytest.fixture(scope="module")
def judge(judge_folder) -> CausalJudge:
    return causal_judge(judge_folder, CPU)


def samples(texts: list[str]) -> list[Sample]:
    return [Sample(list(range(len(text))), text) for text in texts]


@torch.inference_mode()
def by_hand(judge: CausalJudge, ids: list[int]) -> torch.Tensor:
    """Nats of each token after the prefix, for a single text."""
    first = judge.tokenizer.get_vocab()[judge.prefix]
    logits = judge.network(torch.tensor([[first, *ids]])).logits[0].double().log_softmax(-1)
    return -logits[torch.arange(len(ids)), ids]


def encoded(judge: CausalJudge, text: str) -> list[int]:
    return judge.tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


# Figures


def test_only_the_texts_own_tokens_are_counted(judge):
    read = judge.read(samples(TEXTS[:-1]))
    for number, text in enumerate(TEXTS[:-1]):
        ids = encoded(judge, text)
        assert read.tokens[number] == len(ids)
        assert float(read.nats[number]) == pytest.approx(float(by_hand(judge, ids).sum()), rel=1e-5)
    # in a text it is not the special token
    assert judge.tokenizer.get_vocab()[PREFIX] not in encoded(judge, TEXTS[3])
    assert read.tokens[1] == 0


def test_bits_per_byte_by_hand(judge):
    texts = [TEXTS[0], TEXTS[1], TEXTS[2]]
    quality = measure(samples(texts), judge)
    nats = sum(float(by_hand(judge, encoded(judge, text)).sum()) for text in texts)
    tokens = sum(len(encoded(judge, text)) for text in texts)
    assert quality.nats.value == pytest.approx(nats / tokens)
    size = len((TEXTS[0] + TEXTS[2]).encode())
    assert size > len(TEXTS[0] + TEXTS[2])  # bytes, not characters
    assert quality.bits_per_byte.value == pytest.approx(nats / math.log(2) / size)
    assert (quality.tokens, quality.certificate, quality.mauve) == (tokens, "exact", None)


def test_a_long_text_is_read_in_windows_that_overlap_by_half(judge):
    ids = encoded(judge, TEXTS[-1])
    assert len(ids) > 2 * CONTEXT
    read = judge.read_texts([TEXTS[-1]])[0]
    assert len(read.nats) == len(read.ends) == len(ids)
    body, half = CONTEXT - 1, (CONTEXT - 1) // 2
    assert read.nats[:body] == pytest.approx(by_hand(judge, ids[:body]), rel=1e-4)
    second = by_hand(judge, ids[half : half + body])  # the tokens of the second window
    assert read.nats[body : body + half] == pytest.approx(second[-half:], rel=1e-4)


@pytest.mark.parametrize("length", [0, 1, 6, 7, 8, 9, 10, 23, 24])
@pytest.mark.parametrize("context", [2, 3, 8])
def test_windows_count_every_token_once(length, context):
    ids = list(range(100, 100 + length))
    windows = list(windows_of(5, ids, 0, context))
    assert [i for window in windows for i in window.ids[1 + window.overlap :]] == ids
    assert all(window.ids[0] == 0 and len(window.ids) <= context for window in windows)
    for window in windows[1:]:
        assert window.overlap == context - 1 - max((context - 1) // 2, 1)


def test_the_feature_is_the_last_state_of_the_last_token(judge):
    ids = encoded(judge, TEXTS[0])
    first = judge.tokenizer.get_vocab()[PREFIX]
    with torch.inference_mode():
        states = judge.network.transformer(torch.tensor([[first, *ids]])).last_hidden_state[0]
    features = judge.read(samples(TEXTS)).features
    assert features[0] == pytest.approx(states[-1], abs=1e-5)
    assert features[1] == pytest.approx(states[0], abs=1e-5)  # an empty text is its prefix


def test_the_batch_does_not_change_a_figure(judge, judge_folder):
    one = CausalJudge(judge.network, judge.tokenizer, "tiny", logits=1)
    together, alone = judge.read(samples(TEXTS)), one.read(samples(TEXTS))
    assert together.nats == pytest.approx(alone.nats, rel=1e-5)
    assert torch.equal(together.tokens, alone.tokens)
    assert together.features == pytest.approx(alone.features, abs=1e-4)
    assert torch.equal(together.nats, judge.read(samples(TEXTS)).nats)


# The prefix of a text


def test_the_prefix_is_a_rule_that_can_be_overridden(judge):
    endoftext = fast_tokenizer(bos_token="<im_start>", eos_token="<other>")
    assert usual_prefix(endoftext, "smollm") == PREFIX  # not its BOS
    for special, expected in [
        ({"bos_token": "a", "eos_token": "b"}, "a"),
        ({"eos_token": "b"}, "b"),
    ]:
        assert usual_prefix(Other(**special), "gemma") == expected
    with pytest.raises(UnmaskError, match="has neither BOS nor EOS as prefix"):
        usual_prefix(Other(), "odd")
    other = CausalJudge(judge.network, judge.tokenizer, "tiny", "<other>")
    assert other.digest != judge.digest
    assert not torch.isclose(other.read(samples(TEXTS)).nats[0], judge.read(samples(TEXTS)).nats[0])
    ids = encoded(judge, TEXTS[0])
    nats = float(other.read(samples(TEXTS)).nats[0])
    assert nats == pytest.approx(float(by_hand(other, ids).sum()), rel=1e-5)
    with pytest.raises(UnmaskError, match="has no token '<nope>'"):
        CausalJudge(judge.network, judge.tokenizer, "tiny", "<nope>")


class Other:
    """A tokenizer without <|endoftext|>."""

    def __init__(self, bos_token: str | None = None, eos_token: str | None = None) -> None:
        self.bos_token, self.eos_token = bos_token, eos_token

    def get_vocab(self) -> dict[str, int]:
        return {"a": 0, "b": 1}


# Mistakes


def one_line(spec, **options) -> str:
    with pytest.raises(UnmaskError) as caught:
        causal_judge(spec, CPU, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_empty_texts(judge):
    with pytest.raises(UnmaskError, match="all texts are empty"):
        measure(samples(["", ""]), judge)
    assert measure(samples(["a"]), judge).bits_per_byte.value > 0  # one byte


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """A folder without network, with some files that are no judges."""

    def unknown_host(*args, **options):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown_host)
    monkeypatch.setattr("unmask.files.hub.getproxies", dict)
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for name in ("runs", "empty", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").write_text("x")
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / "two" / name).write_bytes(b"GGUF?")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("openai-community/gpt2-large", "hub cannot be reached"),
        ("openai-community/gpt2-large", "--judge"),
        ("other/none", "hub cannot be reached"),
        ("none.gguf", "there is no such file"),
        *[
            (path, f"no judge '{path}': there is no such folder or file; ")
            for path in ("./none", "../none", "a/b/c", "none/", "~/none", "runs/none")
        ],
        ("notes.txt", "'notes.txt': it is a file, and no .gguf; give --judge"),
        ("./empty", "no judge './empty'"),
        ("./two", "holds 2 GGUF files"),
        ("two/a.gguf", "no judge"),
    ],
)
def test_a_judge_that_is_missing_is_one_line(offline, name, message, capfd):
    assert message in one_line(name)
    assert capfd.readouterr() == ("", "")


def test_a_judge_whose_package_or_prefix_is_missing(judge_folder, offline, monkeypatch):
    assert "has no token '<bos>'" in one_line(judge_folder, prefix="<bos>")
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "needs gguf: pip install -e '.[eval]'" in one_line("two/a.gguf")
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert "needs transformers: pip install -e '.[eval]'" in one_line(judge_folder)


def test_pickles_and_parts_are_refused(judge_folder, tmp_path):
    broken = shutil.copytree(judge_folder, tmp_path / "part")
    weights = load_file(broken / "model.safetensors")
    del weights["transformer.h.1.mlp.c_fc.weight"]
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    assert "weights are incomplete: transformer.h.1.mlp.c_fc" in one_line(broken)
    pickled = shutil.copytree(judge_folder, tmp_path / "pickle")
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    assert "no judge" in one_line(pickled)


def test_gguf_is_dequantised_once(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    network = save_gguf(tmp_path / "tiny.gguf").eval()
    judge = causal_judge(tmp_path, CPU)  # the only one in the folder
    assert (judge.name, judge.prefix) == ("tiny.gguf", PREFIX)
    x = torch.tensor([[0, 70, 80, 290]])
    with torch.inference_mode():
        assert judge.network(x).logits == pytest.approx(network(x).logits, abs=1e-5)
    plain = fast_tokenizer(eos_token=PREFIX)
    for text in TEXTS:
        ids = plain(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        assert encoded(judge, text) == ids
    monkeypatch.setitem(sys.modules, "gguf", None)  # the cached weights do not need it
    assert causal_judge(tmp_path / "tiny.gguf", CPU).digest == judge.digest
    assert capfd.readouterr() == ("", "")


def test_gguf_without_a_weight_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    save_gguf(tmp_path / "part.gguf", without="model.layers.1.mlp.up_proj.weight")
    for _ in range(2):  # nothing is cached
        assert "weights are incomplete: model.layers.1.mlp.up_proj" in one_line(
            tmp_path / "part.gguf"
        )
    assert list((tmp_path / "cache" / "judges").iterdir()) == []


def test_the_digest_depends_on_the_weights_and_on_no_path(judge, tmp_path):
    assert causal_judge(save_judge(tmp_path / "same"), CPU).digest == judge.digest
    assert causal_judge(save_judge(tmp_path / "other", seed=1), CPU).digest != judge.digest

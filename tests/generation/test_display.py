"""Animated text in a terminal: shown tokens, colours, and left-out frames."""

import io

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers

from unmask.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from unmask.data.tokenizers.subwords import SubwordTokenizer, train_bpe
from unmask.data.tokenizers.token_spans import shown, spans
from unmask.generation.display import MASK, Picture, watch
from unmask.samplers.core.canvas import Frame
from unmask.vocabulary import Vocabulary

BYTES = ByteTokenizer()
LETTERS = CharacterTokenizer("abcdefgh ")
BPE = train_bpe(["the cat sat on the mat", "the queen sat", "déjà vu 😀"], 300)
WORDS = ["[UNK]", "the", "cat", "sit", "##ting", "##s", ".", ",", "'"]


def word_pieces() -> SubwordTokenizer:
    """A tokenizer whose decoder puts spaces between words and none before a full stop."""
    backend = Backend(
        models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return SubwordTokenizer(backend, Vocabulary.over(len(WORDS)))


# Tokens to text


@pytest.mark.parametrize("tokenizer", [BYTES, LETTERS, BPE, word_pieces()], ids=lambda t: t.kind)
def test_spans_make_up_the_decoded_text(tokenizer):
    @given(st.lists(st.integers(0, tokenizer.vocabulary.size - 1), max_size=30))
    def check(ids: list[int]) -> None:
        found = spans(tokenizer, ids)
        assert len(found) == len(ids)
        assert "".join(found) == tokenizer.decode(ids)

    check()


@given(st.text(max_size=20))
def test_a_character_is_shown_when_it_is_whole(text):
    for tokenizer in (BYTES, BPE):
        ids = tokenizer.encode(text)
        done = ""
        for end, span in enumerate(spans(tokenizer, ids), start=1):
            done += span
            so_far = tokenizer.decode(ids[:end])
            assert text.startswith(done)
            assert done == so_far or so_far.endswith("\N{REPLACEMENT CHARACTER}")
        assert done == text


def test_each_token_adds_its_own_text():
    assert spans(BYTES, BYTES.encode("aé€")) == ["a", "", "é", "", "", "€"]
    assert spans(word_pieces(), [1, 3, 4, 6, 2, 5]) == ["the", " sit", "ting", ".", " cat", "s"]
    v = BPE.vocabulary
    assert spans(BPE, [v.bos_id, *BPE.encode("the cat"), v.pad_id]) == ["", "the", " cat", ""]


def test_a_decoder_that_looks_ahead_has_no_spans():
    class Backwards(ByteTokenizer):
        def decode(self, ids):
            return super().decode(ids)[::-1]

    assert spans(Backwards(), BYTES.encode("abc")) == ["", "", "cba"]


# Frames

MASK_ID, EOS = LETTERS.vocabulary.mask_id, LETTERS.vocabulary.eos_id


def frame(*texts: str, before: "Frame | None" = None, sure: float = 0.9, calls: int = 1) -> Frame:
    """A frame of texts in which _ is masked and | is the end. Changes are relative to `before`."""
    special = {"_": MASK_ID, "|": EOS}
    rows = [[special[c] if c in special else LETTERS.encode(c)[0] for c in text] for text in texts]
    tokens = torch.tensor(rows)
    changed = torch.zeros_like(tokens).bool() if before is None else tokens != before.tokens
    confidence = (tokens != MASK_ID).float()
    confidence[changed & (tokens != MASK_ID)] = sure
    t = torch.full((len(rows),), 0.5, dtype=torch.float64)
    return Frame(tokens, changed, confidence, torch.full((len(rows),), calls), t, 1.25)


def terminal(height: int = 20, width: int = 40) -> Console:
    return Console(
        file=io.StringIO(), record=True, force_terminal=True, width=width, height=height,
        color_system="standard", _environ={},
    )  # fmt: skip


def drawn(*frames: Frame, console: Console | None = None) -> str:
    """The picture of the last frame, with its colours."""
    console = console or terminal()
    picture = Picture(LETTERS, console)
    for one in frames:
        picture.add(one)
    console.print(picture.draw(frames[-1]))
    return console.export_text(styles=True)


def styled(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


@pytest.mark.parametrize(("sure", "code"), [(0.71, "1;32"), (0.31, "1;33"), (0.29, "1;31")])
def test_new_tokens_are_coloured_by_confidence(sure, code):
    before = frame("a_c_")
    out = drawn(frame("abc_", before=before, sure=sure))
    assert out.startswith("a" + styled(code, "b") + "c" + styled("2", MASK))


def test_remasked_tokens_are_coloured_masks():
    out = drawn(frame("a__", before=frame("ab_")))
    assert out.startswith("a" + styled("1;35", MASK) + styled("2", MASK))


def test_changes_of_skipped_frames_are_shown_as_new():
    first = frame("___")
    second = frame("a__", before=first)
    third = frame("ab_", before=second)
    assert drawn(second, third).startswith(styled("1;32", "a") + styled("1;32", "b"))
    picture = Picture(LETTERS, terminal())
    for one in (second, third):  # drawn in between
        picture.add(one)
        row, _ = picture.draw(one).split()
    assert [span.style for span in row.spans] == ["bold green", "dim"]


def test_nothing_is_shown_after_the_end():
    assert drawn(frame("ab|_c")).splitlines()[0] == "ab"
    tokenizer = ByteTokenizer()
    v = tokenizer.vocabulary
    tokenizer.vocabulary = Vocabulary(v.size, v.mask_id, bos_id=v.eos_id, eos_id=v.eos_id)
    assert shown([v.eos_id, 97, v.eos_id, 98], tokenizer) == [v.eos_id, 97]  # as GPT-2's
    assert shown([97, 98], tokenizer) == [97, 98]


def test_control_characters_of_a_text_are_not_printed():
    picture = Picture(BYTES, terminal())
    ids = BYTES.encode("a\x1b[2J\r\nb\tc")
    text = picture.row(ids, [False] * len(ids), [1.0] * len(ids)).plain
    assert text == "a\ufffd[2J\ufffd\nb\tc"


def test_as_many_texts_as_fit_and_the_rest_is_counted():
    texts = frame(*["abcdefgh" * 4] * 9)
    out = drawn(texts, console=terminal(height=20, width=80)).splitlines()
    assert out[-2] == "abcdefgh" * 4
    assert len(out) == 18  # nine texts with blank lines between, and the line below
    assert "not shown" not in out[-1]
    out = drawn(texts, console=terminal(height=13, width=80)).splitlines()
    assert len(out) == 10
    assert "not shown: 4 more" in out[-1]
    assert "the end" not in out[-1]
    out = drawn(texts, console=terminal(height=7, width=20)).splitlines()
    assert len(out) == 5  # two lines of a text, a blank one, and the first of the next
    wide = terminal(height=7, width=80)
    long = drawn(frame("abcdefgh" * 99), console=wide).splitlines()
    assert len(long) == 5
    assert "not shown: the end of a text" in long[-1]


# The whole display


def film() -> list[Frame]:
    frames = [frame("a___", "____", calls=1)]
    for texts in (("ab__", "h___"), ("a_c_", "h_g_"), ("abcd", "hg|a")):
        frames.append(frame(*texts, before=frames[-1], calls=len(frames) + 1))
    return frames


def test_a_terminal_sees_the_text_form_and_keeps_the_end():
    console, frames = terminal(), film()
    assert watch(iter(frames), LETTERS, console, pause=0) is frames[-1]
    out = console.export_text()
    assert MASK in out
    assert "frame 1 · calls 1 · t 0.50" in out
    assert out.endswith("abcd\n\nhg\nframe 4 · calls 4 · t 0.50 · 1.2 s\n")


def test_frames_within_the_pause_are_not_drawn():
    console, frames = terminal(), film()
    watch(iter(frames), LETTERS, console, pause=1000)
    out = console.export_text()
    assert "frame 1 ·" in out
    assert "frame 2 ·" not in out
    assert "abcd\n\nhg\n" in out


def test_brief_display_does_not_wait_and_prints_only_the_texts(monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("it waited"))
    console = terminal()
    watch(iter(film()), LETTERS, console, brief=True)
    out = console.export_text()
    assert "frame 1 · calls 1" in out
    assert "frame 2 ·" not in out  # it came too soon after the first
    assert out.endswith("abcd\n\nhg\n")


def test_a_pipe_gets_the_finished_texts_only():
    file = io.StringIO()
    watch(iter(film()), LETTERS, Console(file=file, width=2), pause=0)
    assert file.getvalue() == "abcd\n\nhg\n"


def test_without_frames_nothing_is_shown():
    for console in (terminal(), Console(file=io.StringIO())):
        assert watch(iter([]), LETTERS, console) is None
        assert "frame" not in console.file.getvalue()

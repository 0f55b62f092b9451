import json
import sys
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

from unmask.data.tokenizers.huggingface_tokenizer import hugging_face
from unmask.data.tokenizers.kinds import build_tokenizer, load_tokenizer
from unmask.data.tokenizers.tokenizer import TokenizerConfig
from unmask.errors import UnmaskError


def test_gpt2_layout(gpt2_folder):
    v = hugging_face(str(gpt2_folder)).vocabulary
    assert (v.bos_id, v.eos_id, v.mask_id, v.pad_id, v.size) == (300, 300, 301, None, 302)


def test_pad_has_the_id_after_mask(gpt2_folder, bert_folder):
    gpt2 = hugging_face(str(gpt2_folder)).with_pad()
    assert (gpt2.vocabulary.mask_id, gpt2.vocabulary.pad_id, gpt2.vocabulary.size) == (
        301,
        302,
        303,
    )
    assert gpt2.with_pad() is gpt2
    bert = hugging_face(str(bert_folder))
    assert bert.with_pad() is bert


@pytest.mark.parametrize("layout", ["bert_folder", "bert_json_folder"])
def test_bert_layouts(layout, request, bert_words):
    tokenizer = hugging_face(str(request.getfixturevalue(layout)))
    v = tokenizer.vocabulary
    assert (v.pad_id, v.bos_id, v.eos_id, v.mask_id, v.size) == (0, 3, 4, 5, len(bert_words))
    # Truncation and padding of the file are ignored; "[MASK]" stays text.
    words = [bert_words[i] for i in tokenizer.encode("The cat [MASK] sat on the mats.")]
    assert words == ["the", "cat", "[", "mask", "]", "sat", "on", "the", "mat", "##s", "."]
    assert tokenizer.encode("the") == [bert_words.index("the")]


def test_a_folder_of_the_hub_is_loaded_as_it_is(gpt2_folder):
    assert load_tokenizer(gpt2_folder).fingerprint == hugging_face(str(gpt2_folder)).fingerprint


def test_a_mask_that_is_also_text_is_an_error(tmp_path):
    backend = Backend(models.WordLevel({"[UNK]": 0, "a": 1, "[MASK]": 2}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = hugging_face(str(tmp_path))
    assert tokenizer.encode("a b") == [1, 0]
    with pytest.raises(
        UnmaskError, match=r"holds '\[MASK\]', which this tokenizer encodes as its mask token"
    ):
        tokenizer.encode("a [MASK]")


def _words(folder, words, **settings):
    backend = Backend(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=words[0]))
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return hugging_face(str(folder)).vocabulary


def test_missing_special_tokens_get_ids_after_mask(tmp_path):
    v = _words(tmp_path, ["?", "a", "b"])
    assert (v.mask_id, v.bos_id, v.eos_id, v.pad_id, v.size) == (3, 4, 5, None, 6)


def test_one_of_bos_and_eos_serves_as_both(tmp_path):
    v = _words(tmp_path, ["?", "a", "END"], eos_token="END", bos_token=None)
    assert (v.mask_id, v.bos_id, v.eos_id) == (3, 2, 2)


def test_pad_named_as_mask_is_refused(tmp_path):
    with pytest.raises(UnmaskError, match="pad id equals the mask id"):
        _words(tmp_path, ["?", "M"], pad_token="M", mask_token="M", eos_token="?")


def test_hub_names_go_through_transformers_without_remote_code(gpt2_folder, monkeypatch):
    def from_pretrained(name, trust_remote_code):
        assert (name, trust_remote_code) == ("owner/name", False)
        return SimpleNamespace(save_pretrained=save)

    def save(folder):
        for path in gpt2_folder.iterdir():
            (type(path)(folder) / path.name).write_bytes(path.read_bytes())

    auto = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=auto))
    found = build_tokenizer(TokenizerConfig("hf", path="owner/name"), [])
    assert found.fingerprint == hugging_face(str(gpt2_folder)).fingerprint


def test_hub_errors_are_one_line(monkeypatch):
    def from_pretrained(name, trust_remote_code):
        raise OSError("We couldn't connect\nand more")

    auto = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=auto))
    with pytest.raises(UnmaskError, match=r"^no tokenizer 'owner/name' .*: We couldn't connect$"):
        hugging_face("owner/name")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UnmaskError, match=r"pip install -e '\.\[data\]'"):
        hugging_face("owner/name")


def test_folder_errors(tmp_path):
    with pytest.raises(UnmaskError, match=r"it needs tokenizer.json, vocab.json with merges.txt"):
        hugging_face(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UnmaskError, match="cannot be read"):
        hugging_face(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(UnmaskError, match="is not JSON"):
        hugging_face(str(tmp_path))

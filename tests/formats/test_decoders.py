"""Decoders of transformers are read and written: folders of one file or of shards, and GGUF files."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from llama_models import WORDS, X, check, reference, write_tokenizer
from tokenizers import Tokenizer, models, normalizers

import unmask
from unmask.errors import UnmaskError
from unmask.formats.decoders.write_decoder import write_decoder
from unmask.formats.read import read_bundle


@pytest.mark.parametrize("family", ["llama", "llama, tied, wide heads", "qwen2", "qwen3", "llama3"])
@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_a_folder_of_transformers_is_read(family, shard, tmp_path):
    model = reference(family)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard == "20KB")
    write_tokenizer(tmp_path, chat="{{ messages }}")
    bundle = read_bundle(tmp_path)
    check(bundle, model)
    tokenizer, network = bundle.tokenizer, bundle.method.backbone
    assert tokenizer.chat_template == "{{ messages }}"
    assert (tokenizer.vocabulary.bos_id, tokenizer.vocabulary.eos_id) == (0, 1)
    assert tokenizer.vocabulary.mask_id == 45  # an id that the embedding has and no token uses
    assert network.longest == 64 and bundle.length == 64
    assert bundle.method.certificate == "exact"
    assert (network.head.weight is network.embedding.weight) == network.config.tied_head


def test_a_full_embedding_gets_a_row_for_mask_at_its_mean(tmp_path):
    model = reference("llama", vocab_size=45)
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    bundle = read_bundle(tmp_path)
    assert bundle.tokenizer.vocabulary.size == 46 == bundle.tokenizer.vocabulary.mask_id + 1
    for ours, theirs in (("embedding", "embed_tokens"), ("head", "lm_head")):
        table = dict(model.named_parameters())
        theirs = next(tensor for name, tensor in table.items() if theirs in name)
        ours = bundle.method.backbone.get_submodule(ours).weight
        torch.testing.assert_close(ours[45], theirs.mean(0))
    check(bundle, model, ids=45)


def edited(folder: Path, **settings: object) -> Path:
    """A written model whose config.json has other settings."""
    reference("llama").save_pretrained(folder)
    tree = json.loads((folder / "config.json").read_text()) | settings
    (folder / "config.json").write_text(json.dumps(tree))
    write_tokenizer(folder)
    return folder


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model_type": "gemma9"}, "model of type 'gemma9', which cannot be read"),
        ({"num_hidden_layers": 3}, r"model\.layers\.2\.\S+ is missing"),
        ({"num_hidden_layers": 1}, r"model\.layers\.1\.\S+ is not expected"),
        ({"intermediate_size": 40}, r"mlp\.0\.weight is .* instead of"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; only 'silu'"),
        ({"attention_bias": True}, "attention_bias is True; only False"),
        ({"sliding_window": 16}, "attention sees 16 tokens of at most 64"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "'longrope' is not supported"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 kv_heads"),
        ({"hidden_size": None}, "has no setting hidden_size"),
    ],
)
def test_settings_of_another_network_are_one_line(settings, reason, tmp_path):
    with pytest.raises(UnmaskError, match=reason) as found:
        read_bundle(edited(tmp_path, **settings))
    assert "\n" not in str(found.value)


def test_a_missing_shard_is_one_line(tmp_path):
    reference("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    write_tokenizer(tmp_path)
    next(tmp_path.glob("model-00002*")).unlink()
    with pytest.raises(UnmaskError, match=r"model-00002\S+") as found:
        read_bundle(tmp_path)
    assert "\n" not in str(found.value)


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "model.layers": "blk",
}


def write_gguf(path: Path, family: str, tokenizer: str = "gpt2", **fields: object) -> object:
    """A GGUF file of a tiny model, written with the library as llama.cpp's converter does."""
    gguf = pytest.importorskip("gguf")
    kind = family.split(",")[0]
    model = reference(family, vocab_size=45)
    writer, config = gguf.GGUFWriter(path, fields.get("architecture", kind)), model.config
    writer.add_context_length(64)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    writer.add_tokenizer_model(tokenizer)
    writer.add_tokenizer_pre(fields.get("words", "smollm"))
    merged = [*WORDS[:41], WORDS[0] + WORDS[1]]
    letters = ["▁", "a", "b", "▁a", "ab", "▁ab", *(f"<0x{i:02X}>" for i in range(36))]
    writer.add_token_list(["<s>", "</s>", "<unk>", *(merged if tokenizer == "gpt2" else letters)])
    writer.add_token_types([3, 3, 3, *[1] * 42])
    writer.add_token_scores([-float(i) for i in range(45)])
    writer.add_token_merges([f"{WORDS[0]} {WORDS[1]}"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(2)
    writer.add_chat_template("{{ messages }}")
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        if kind == "llama" and (count := heads.get(name.split(".")[-2])):
            halves = values.reshape(count, 2, -1, *values.shape[1:])
            values = halves.swapaxes(1, 2).reshape(values.shape)
        for old, new in GGUF_NAMES.items():
            name = name.replace(old, new)
        writer.add_tensor(name, np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


@pytest.mark.parametrize("family", ["llama", "llama, tied, wide heads", "qwen2", "qwen3"])
def test_a_gguf_file_has_the_logits_and_the_tokenizer_of_its_model(family, tmp_path):
    model = write_gguf(tmp_path / "tiny.gguf", family)
    bundle = read_bundle(tmp_path / "tiny.gguf")
    check(bundle, model, ids=45)
    tokenizer = bundle.tokenizer
    assert tokenizer.vocabulary.bos_id == 0 and tokenizer.vocabulary.mask_id == 45
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.encode('!"#') == [44, 5]
    assert tokenizer.decode([44, 5]) == '!"#'


def test_a_gguf_file_with_sentence_pieces_merges_by_score(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", "llama", tokenizer="llama")
    tokenizer = read_bundle(tmp_path / "tiny.gguf").tokenizer
    backend = Tokenizer(
        models.BPE(
            tokenizer.backend().get_vocab(),
            [("▁", "a"), ("a", "b"), ("▁", "ab"), ("▁a", "b")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    pieces = tokenizer.pieces()
    for text in ("ab a b", "aab", "a\nb"):
        ids = tokenizer.encode(text)
        assert ids == backend.encode(text).ids
        assert tokenizer.decode(ids) == text
        assert b"".join(pieces[id] for id in ids) == f" {text}".encode()
    assert pieces[0] is None and pieces[tokenizer.vocabulary.mask_id] is None


def test_a_pattern_constrains_a_model_with_sentence_pieces(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", "llama", tokenizer="llama")
    model = unmask.load(tmp_path / "tiny.gguf")
    for pattern in (r"a b( ab|b)+", r"(?i)^A B[ B]+$"):
        (text,) = model.generate(["a b"], length=16, seed=0, regex=pattern)
        assert re.fullmatch(pattern, str(text))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"architecture": "mamba"},
            "type 'mamba', which cannot be read; known in GGUF: llama, qwen2",
        ),
        ({"words": "tekken"}, "splits words as 'tekken'; known: default, gpt-2, smollm"),
        ({"tokenizer": "bert"}, "tokenizer of type 'bert'; known types: gpt2, llama"),
    ],
)
def test_unknown_gguf_files_are_one_line(fields, reason, tmp_path):
    write_gguf(tmp_path / "tiny.gguf", "llama", **fields)
    with pytest.raises(UnmaskError, match=reason):
        read_bundle(tmp_path / "tiny.gguf")
    (tmp_path / "other.gguf").write_bytes(b"GGUF and no more")
    with pytest.raises(UnmaskError, match=r"other\.gguf cannot be read"):
        read_bundle(tmp_path / "other.gguf")


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "yarn", "linear"])
@pytest.mark.parametrize("shard", [10**9, 20_000])
@torch.no_grad()
def test_a_written_decoder_is_opened_by_transformers(family, shard, tmp_path):
    import transformers

    (tmp_path / "theirs").mkdir()
    model = reference(family, vocab_size=45)  # MASK is a new row, which is not written
    model.save_pretrained(tmp_path / "theirs")
    write_tokenizer(tmp_path / "theirs", chat="{{ messages }}")
    bundle = read_bundle(tmp_path / "theirs")
    write_decoder(bundle, tmp_path / "ours", shard)
    opened = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert type(opened) is type(model)
    torch.testing.assert_close(opened(X).logits, model(X).logits, rtol=0, atol=0)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert tokenizer("!#").input_ids == bundle.tokenizer.encode("!#")
    assert (tokenizer.bos_token, tokenizer.chat_template) == ("<s>", "{{ messages }}")
    assert tokenizer.mask_token is None
    assert (len(list((tmp_path / "ours").glob("*.safetensors"))) == 1) == (shard == 10**9)
    again = read_bundle(tmp_path / "ours")
    assert again.tokenizer.vocabulary == bundle.tokenizer.vocabulary
    check(again, model, ids=45)


def test_other_networks_have_no_layout_of_a_decoder(tmp_path):
    with pytest.raises(UnmaskError, match="backbone modern_dit is not that of Llama"):
        write_decoder(read_bundle("stories"), tmp_path / "x")

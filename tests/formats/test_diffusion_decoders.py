"""Diffusion models with the networks of Llama and Qwen: names, mask, shift and attention of each family."""

import json
import re
from pathlib import Path

import pytest
import safetensors.torch
import torch
from llama_models import X, check, reference, write_tokenizer

import unmask
from unmask.backbones.layers.attention import Call
from unmask.backbones.layers.attention_rules import BlockRule, full_rule
from unmask.backbones.layers.state import ReadKVState
from unmask.errors import UnmaskError
from unmask.formats.format import FORMATS
from unmask.formats.read import read_bundle

# names in LLaDA's own code
LLADA = {
    "model.embed_tokens.weight": "model.transformer.wte.weight",
    "model.norm.weight": "model.transformer.ln_f.weight",
    "lm_head.weight": "model.transformer.ff_out.weight",
    "model.layers.": "model.transformer.blocks.",
    "input_layernorm": "attn_norm",
    "self_attn.o_proj": "attn_out",
    "self_attn.": "",
    "post_attention_layernorm": "ff_norm",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}
LLADA_CONFIG = {
    "model_type": "llada",
    "architectures": ["LLaDAModelLM"],
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 48,
    "max_sequence_length": 64,
    "embedding_size": 50,
    "vocab_size": 50,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "rope": True,
    "block_type": "llama",
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "multi_query_attention": None,
    "weight_tying": False,
    "mask_token_id": 44,
}


NAMED = ("llada", "Dream", "sdar", "Fast_dLLM_Qwen")  # config.json names MASK
BLOCKS = {"sdar": {"block_size": 5}, "Fast_dLLM_Qwen": {"bd_size": 4}}


class Full(torch.nn.Module):
    """A decoder of transformers with attention to all tokens; with `shift`, logits of the next token."""

    def __init__(self, model: torch.nn.Module, shift: bool) -> None:
        super().__init__()
        self.model, self.shift = model, shift

    def forward(self, x: torch.Tensor) -> object:
        found = self.model(x, attention_mask=torch.zeros(len(x), 1, x.shape[1], x.shape[1]))
        if self.shift:
            logits = found.logits
            found.logits = torch.cat([logits[:, :1], logits[:, :-1]], 1)
        return found


def write_family(folder: Path, kind: str) -> Full:
    """A tiny folder in the layout of a family."""
    bases = {"llada": "llama", "Dream": "qwen2", "a2d-qwen3": "qwen3", "a2d-llama": "llama"} | {
        "sdar": "qwen3",
        "Fast_dLLM_Qwen": "qwen2",
    }
    base = bases[kind]
    if kind == "llada":
        model = reference(
            base,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_theta": 500000.0, "rope_type": "default"},
        )
        tensors = {}
        for name, tensor in model.state_dict().items():
            for old, new in LLADA.items():
                name = name.replace(old, new)
            tensors[name] = tensor.clone()
        safetensors.torch.save_file(tensors, folder / "model.safetensors")
        tree = LLADA_CONFIG
    else:
        model = reference(base)
        model.save_pretrained(folder)
        tree = json.loads((folder / "config.json").read_text()) | {"model_type": kind}
        if kind in NAMED:
            tree["mask_token_id"] = 44
        tree |= BLOCKS.get(kind, {})
    (folder / "config.json").write_text(json.dumps(tree))
    write_tokenizer(folder)
    return Full(model, shift=kind in ("Dream", "Fast_dLLM_Qwen"))


KINDS = [*NAMED, "a2d-qwen3", "a2d-llama"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_family_is_recognised_read_and_written(kind, tmp_path):
    (tmp_path / "theirs").mkdir()
    model = write_family(tmp_path / "theirs", kind)
    bundle = read_bundle(tmp_path / "theirs")
    assert bundle.config.method.name == ("block_diffusion" if kind in BLOCKS else "mdlm")
    assert bundle.method.certificate == "upper"
    if kind in BLOCKS:
        (size,) = BLOCKS[kind].values()
        assert bundle.method.block == size and bundle.config.method.config.blocks == (size,)
    mask_id = 44 if kind in NAMED else 45  # of config.json, or the first free id
    assert bundle.tokenizer.vocabulary.mask_id == mask_id
    assert bundle.tokenizer.vocabulary.size == 50
    check(bundle, model)
    FORMATS["decoder"].write(bundle, tmp_path / "ours")
    tree = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert tree["model_type"] == ("llada" if kind == "a2d-llama" else kind)
    again = read_bundle(tmp_path / "ours")
    check(again, model)
    assert again.tokenizer.vocabulary == bundle.tokenizer.vocabulary
    theirs, ours = (
        safetensors.torch.load_file(tmp_path / side / "model.safetensors")
        for side in ("theirs", "ours")
    )
    if kind != "a2d-llama":
        assert theirs.keys() == ours.keys()
        assert all(torch.equal(theirs[name], ours[name]) for name in theirs)


@pytest.mark.parametrize("kind", list(BLOCKS))
@torch.no_grad()
def test_blocks_attend_to_themselves_and_to_earlier_ones(kind, tmp_path):
    model = write_family(tmp_path, kind)
    method = read_bundle(tmp_path).method
    number = torch.arange(X.shape[1]) // method.block
    hidden = torch.full((20, 20), -torch.inf).masked_fill(number <= number[:, None], 0.0)
    theirs = model.model(X, attention_mask=hidden.expand(2, 1, -1, -1)).logits
    if model.shift:
        theirs = torch.cat([theirs[:, :1], theirs[:, :-1]], 1)
    ours = method.backbone.logits(method.backbone.features(X, rule=BlockRule(method.block)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_a_shifted_network_predicts_at_the_token_itself(tmp_path):
    model = write_family(tmp_path, "Dream")
    backbone = read_bundle(tmp_path).method.backbone
    h = backbone.features(X)
    at = torch.tensor([0, 1, 21, 39])
    torch.testing.assert_close(backbone.features(X, at=at), h.flatten(0, 1)[at])
    plain = model.model.model(X, attention_mask=torch.zeros(2, 1, 20, 20)).last_hidden_state
    torch.testing.assert_close(h[:, 1:], plain[:, :-1], rtol=0, atol=1e-5)


def test_a_shifted_network_reads_the_token_before_a_block_from_its_cache(tmp_path):
    write_family(tmp_path, "Fast_dLLM_Qwen")
    backbone = read_bundle(tmp_path).method.backbone
    whole = backbone.features(X, rule=BlockRule(4))
    state = backbone.new_state(2, 20)
    first = backbone.features(X[:, :8], rule=BlockRule(4), state=state)
    draft = backbone.features(X[:, :4], rule=full_rule, state=state)  # is dropped again
    state.crop(8)
    rows = torch.tensor([1])
    read = backbone.features(X[rows, 8:12], rule=full_rule, state=ReadKVState(state, rows))
    rest = backbone.features(X[:, 8:], rule=BlockRule(4), state=state)
    torch.testing.assert_close(torch.cat([first, rest], 1), whole, rtol=0, atol=1e-5)
    torch.testing.assert_close(read, whole[rows, 8:12], rtol=0, atol=1e-5)
    assert not torch.allclose(draft, whole[:, :4])
    calls = [Call(X[:, :12], rule=None), Call(X[:1])]
    for h, call in zip(backbone.together(calls), calls, strict=True):
        torch.testing.assert_close(h, backbone.features(call.inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", NAMED)
def test_a_text_of_a_diffusion_family_satisfies_a_pattern(kind, tmp_path):
    write_family(tmp_path, kind)
    model = unmask.load(tmp_path)
    (text,) = model.generate(length=13, seed=0, regex='["#]+')
    assert re.fullmatch('["#]+', str(text))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"rope": False}, "rope is False; only True"),
        ({"block_type": "sequential"}, "block_type is 'sequential'; only 'llama'"),
        ({"mask_token_id": 70}, "50 ids, with MASK 70, and the tokenizer 45"),
    ],
)
def test_another_llada_is_one_line(settings, reason, tmp_path):
    write_family(tmp_path, "llada")
    (tmp_path / "config.json").write_text(json.dumps(LLADA_CONFIG | settings))
    with pytest.raises(UnmaskError, match=reason):
        read_bundle(tmp_path)

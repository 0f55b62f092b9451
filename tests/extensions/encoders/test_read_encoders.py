"""Encoders of transformers have the same outputs here, and begin a training."""

import json
from pathlib import Path

import pytest
import torch
import transformers
from hub_models import fill, logits, refused

import unmask
from unmask.config.run_config import from_dict

CLOSE = {"rtol": 0, "atol": 1e-5}


def change(file: Path, **settings: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def vocabulary(folder: Path, size: int, *special: str) -> None:
    words = [*special, "the", "cat", "sat", "on", "a", "mat"]
    words += [f"w{i}" for i in range(size - len(words))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")


DEBERTA = {  # the settings of version 3; 4 distances to one side are exact
    "relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"],
    "share_att_key": True, "norm_rel_ebd": "layer_norm", "position_biased_input": False,
}  # fmt: skip
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("family", "pad", "types"),
    [
        *[("Bert", 0, 2), ("Roberta", 1, 1), ("Roberta", 0, 1), ("Roberta", 3, 2)],
        *[("MPNet", 1, 0), ("DebertaV2", 0, 0), ("DebertaV2", 0, 2)],
    ],
)
def test_an_encoder_has_the_logits_of_transformers(tmp_path, family, pad, types):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=20, type_vocab_size=types, pad_token_id=pad,
        **(DEBERTA if family == "DebertaV2" else {}),
    )  # fmt: skip
    theirs = getattr(transformers, f"{family}ForMaskedLM")(config).eval()
    fill(theirs)
    theirs.save_pretrained(tmp_path)
    assert "so the id of [MASK] is unknown" in refused(lambda: unmask.load(tmp_path))
    vocabulary(tmp_path, 50, *BERT)
    model = unmask.load(tmp_path)
    backbone = model.method.backbone
    # the first position of RoBERTa and MPNet is their pad id + 1
    assert model.length == (20 if family in ("Bert", "DebertaV2") else 20 - pad - 1)
    x = torch.randint(5, 50, (3, model.length), generator=torch.Generator().manual_seed(0))
    valid = torch.arange(model.length) < torch.tensor([[model.length], [5], [2]])
    x[~valid] = pad
    with torch.no_grad():
        ours = backbone.logits(backbone.features(x, valid=valid))
        torch.testing.assert_close(
            ours[valid], theirs(x, attention_mask=valid.long()).logits[valid], **CLOSE
        )
    assert model.tokenizer.vocabulary.mask_id == 4
    assert str(model.fill("the [MASK] sat")[0]).startswith("the ")
    longest = torch.zeros(1, model.length + 1, dtype=torch.long)
    assert "positions" in refused(lambda: backbone.features(longest))
    vocabulary(tmp_path, 53, *BERT)  # a tokenizer with more words than the network
    grown = unmask.load(tmp_path)
    assert grown.tokenizer.vocabulary.size == len(grown.method.backbone.embedding.weight) == 53
    torch.testing.assert_close(logits(grown, x)[..., :50], logits(model, x))
    change(tmp_path / "config.json", pad_token_id=-4)
    assert family != "Roberta" or "positions" in refused(lambda: unmask.load(tmp_path))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("family", ["Bert", "Roberta", "MPNet", "DebertaV2"])
def test_an_encoder_without_a_head_gets_a_tied_one(tmp_path, family):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=20, **(DEBERTA if family == "DebertaV2" else {}),
    )  # fmt: skip
    theirs = getattr(transformers, f"{family}Model")(config).eval()
    fill(theirs)
    theirs.save_pretrained(tmp_path)
    vocabulary(tmp_path, 50, *BERT)
    model, again = unmask.load(tmp_path), unmask.load(tmp_path)
    backbone = model.method.backbone
    assert backbone.head.weight is backbone.embedding.weight
    assert torch.equal(backbone.dense.weight, again.method.backbone.dense.weight)
    x = torch.randint(5, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    second = (torch.arange(9) > 4).long().expand_as(x)
    types = {"token_type_ids": second} if family in ("Bert", "Roberta") else {}
    with torch.no_grad():
        torch.testing.assert_close(
            backbone.hidden(x, segments=second), theirs(x, **types).last_hidden_state, **CLOSE
        )
    assert model.perplexity(["the cat sat on a mat"]).certificate == "upper"


def test_an_mdlm_starts_from_an_encoder(tmp_path):
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=16,
    )  # fmt: skip
    encoder = tmp_path / "bert"
    transformers.BertForMaskedLM(config).save_pretrained(encoder)
    vocabulary(encoder, 50, *BERT)
    (tmp_path / "notes.txt").write_text("the cat sat on a mat\n" * 40)
    settings = {
        "init_from": str(encoder),
        "backbone": {"name": "bert", "width": 16, "depth": 1, "heads": 2, "inner": 32, "positions": 16},
        "data": {"train": str(tmp_path / "notes.txt"), "separator": "line", "length": 12,
                 "cache": str(tmp_path / "cache")},
        "training": {"steps": 30, "batch": 8, "lr": 0.01, "warmup": 1, "ema": 0.5, "device": "cpu"},
    }  # fmt: skip
    before = unmask.load(encoder).perplexity(["the cat sat on a mat"])
    model = unmask.train(from_dict(settings), tmp_path / "run", say=lambda _: None)
    assert model.tokenizer.vocabulary.mask_id == 4
    assert model.perplexity(["the cat sat on a mat"]).nats < before.nats - 1

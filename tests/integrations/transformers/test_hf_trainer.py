"""The Hugging Face Trainer trains an MDLM with the losses of the package's trainer on the same rows and masks."""

import json
from dataclasses import replace

import pytest
import torch
from hub_models import SHAPE, fill
from torch.utils.data import SequentialSampler
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

import unmask
import unmask.integrations.transformers
from unmask.config.components import build_method
from unmask.config.run_config import RunConfig, resolve
from unmask.data.load import load_data
from unmask.data.loader import Loader
from unmask.errors import UnmaskError
from unmask.integrations.transformers.modeling import UnmaskForMaskedLM
from unmask.methods.mdlm import MDLM
from unmask.model import Model
from unmask.randomness import RowStream
from unmask.shapes import Batch
from unmask.training.optimizer import learning_rate

STEPS, BATCH = 4, 4
SMALL = [
    ("data.train", "builtin:pydoc"),
    ("data.length", "16"),
    ("data.tokenizer.kind", "bytes"),
    ("backbone.dropout", "0.1"),
    ("backbone.gate", "0.5"),
    ("training.steps", str(STEPS)),
    ("training.batch", str(BATCH)),
    ("training.warmup", "2"),
    ("training.lr", "0.01"),
    ("training.validation_rows", "4"),
    ("training.log_every", "1"),
    ("training.device", "cpu"),
]


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    return resolve({}, [*SMALL, *SHAPE, ("data.cache", str(tmp_path_factory.mktemp("cache")))])


class InOrder(Trainer):
    """A Trainer that keeps the order of rows, which are shuffled already, and does not round its losses."""

    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)

    def training_step(self, *given):
        loss = super().training_step(*given)
        self.losses.append(loss.item())
        return loss


def wrapped(config: RunConfig) -> UnmaskForMaskedLM:
    """The initial weights of the package's own run."""
    tokenizer = load_data(config.data).tokenizer
    torch.manual_seed(config.seed)
    return UnmaskForMaskedLM.from_model(
        Model(build_method(config, tokenizer.vocabulary), tokenizer, config)
    )


def train(
    model: UnmaskForMaskedLM, config: RunConfig, folder, tokenizer=None, **options
) -> list[float]:
    """The losses of the Hugging Face Trainer on the batches of the package's loader."""
    loader = Loader(load_data(config.data).train, BATCH, config.seed)
    rows = torch.cat([loader.batch(step, range(BATCH))[0] for step in range(STEPS)])
    dataset = [{"input_ids": row, "labels": row} for row in rows]
    settings = config.training
    adamw = torch.optim.AdamW(
        model.parameters(), settings.lr, settings.betas, settings.eps, weight_decay=0.0
    )
    factor = torch.optim.lr_scheduler.LambdaLR(
        adamw, lambda step: learning_rate(step, settings) / settings.lr
    )
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=BATCH,
        max_steps=STEPS,
        max_grad_norm=settings.clip,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **{"save_strategy": "no", **options},
    )
    trainer = InOrder(
        model,
        arguments,
        train_dataset=dataset,
        optimizers=(adamw, factor),
        processing_class=tokenizer,
    )
    trainer.losses = []
    trainer.train()
    return trainer.losses


@pytest.mark.parametrize("recomputed", [False, True])
def test_the_losses_equal_those_of_the_packages_trainer(config, tmp_path, recomputed):
    unmask.train(config, tmp_path / "run", say=lambda _: None)
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    ours = [line["loss"] for line in lines if "loss" in line]
    theirs = train(wrapped(config), config, tmp_path, gradient_checkpointing=recomputed)
    assert len(ours) == len(theirs) == STEPS
    assert theirs == pytest.approx(ours, rel=1e-6)


def test_a_checkpoint_of_the_trainer_is_loaded_by_the_package(config, tmp_path):
    model = wrapped(config)
    data = load_data(config.data)
    Model(model.method, data.tokenizer, config).save_pretrained(tmp_path / "start")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "start")
    train(model, config, tmp_path, tokenizer, save_strategy="steps", save_steps=2)
    before, after = (tmp_path / f"checkpoint-{step}" for step in (2, 4))
    assert (after / "training_args.bin").exists() and not (after / "tokenizer").exists()
    again, trained = unmask.load(after), model.state_dict()
    for name, tensor in again.method.state_dict().items():
        assert torch.equal(tensor, trained[name])
    assert not torch.equal(
        unmask.load(before).method.backbone.head.weight, again.method.backbone.head.weight
    )
    assert again.tokenizer.fingerprint == data.tokenizer.fingerprint
    assert again.perplexity(["some text"], draws=1).nats > 0


def test_the_loss_depends_only_on_the_noise(config):
    model = wrapped(config).train()
    x, valid = Loader(load_data(config.data).train, BATCH, config.seed).batch(0, range(BATCH))
    first = model(x, labels=x).loss
    second = model(x, labels=x).loss
    assert not torch.equal(first, second)
    model.noise.step = 0
    assert torch.equal(model(x, labels=x).loss, first)
    model.noise.seed, model.noise.step = 1, 0
    assert not torch.equal(model(x, labels=x).loss, first)
    model.eval()
    evaluated = model(x, labels=x).loss
    assert not torch.equal(model(x, labels=x).loss, evaluated)
    assert torch.equal(model.eval()(x, labels=x).loss, evaluated)
    assert bool(valid.all())


def test_only_the_loss_of_training_has_other_weights(config):
    uniform = replace(
        config, method=replace(config.method, config=MDLM.Config(loss_weight="uniform"))
    )
    x = torch.randint(256, (2, 10), generator=torch.Generator().manual_seed(0))
    ours, theirs = (wrapped(one) for one in (uniform, config))
    assert torch.equal(ours.eval()(x, labels=x).loss, theirs.eval()(x, labels=x).loss)
    assert not torch.equal(ours.train()(x, labels=x).loss, theirs.train()(x, labels=x).loss)


def test_given_tokens_have_no_loss_and_padding_has_no_effect(config):
    model = wrapped(config)
    fill(model)
    x = torch.randint(256, (2, 10), generator=torch.Generator().manual_seed(0))
    labels = x.clone()
    labels[:, :9] = -100  # with one target per row the bound is its masked loss
    seen = torch.ones_like(x)
    loss = model.eval()(x, seen, labels=labels).loss
    given = torch.arange(10).expand(2, 10) < 9
    noise = model.method.noise(RowStream(config.seed, 0, range(2), 2), ~given)
    ours = model.method.nll(Batch(x, seen.bool(), given), noise).total / 2
    torch.testing.assert_close(loss, ours)
    other = torch.where(labels == -100, (x + 1) % 256, x)
    assert not torch.equal(model.eval()(other, seen, labels=labels).loss, loss)
    wider = torch.cat([x, torch.full((2, 3), 7)], 1)
    wide = torch.cat([seen, torch.zeros(2, 3, dtype=torch.long)], 1)
    ignored = torch.cat([labels, torch.full((2, 3), -100)], 1)
    narrow = model.eval()(wider, wide, labels=ignored).loss
    wider[:, 10:] = 9
    assert torch.equal(model.eval()(wider, wide, labels=ignored).loss, narrow)
    by_count = model.eval()(x, seen, labels=labels, num_items_in_batch=8).loss
    torch.testing.assert_close(by_count, loss * 2 / 8)


def test_masks_of_a_collator_train_the_masked_lm_of_transformers(tmp_path):
    pytest.importorskip("unmask.extensions.encoders.read_encoder")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes = {"vocab_size": 40, "intermediate_size": 32, "max_position_embeddings": 24}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(35))]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt"))
    bert = BertForMaskedLM(BertConfig(**shape, **sizes, tie_word_embeddings=True)).eval()
    with torch.no_grad():  # the logit of MASK is -inf in the package's network
        bert.cls.predictions.bias[tokenizer.mask_token_id] = -1e9
    for part in (bert, tokenizer):
        part.save_pretrained(tmp_path / "bert")
    ours = UnmaskForMaskedLM.from_model(unmask.load(tmp_path / "bert", device="cpu"))
    rows = [tokenizer(" ".join(f"w{(i * j) % 35}" for j in range(9))) for i in range(1, 9)]
    torch.manual_seed(0)
    batch = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.4)(rows)
    assert bool((batch["input_ids"] == batch["labels"]).any())  # some labelled tokens are unmasked
    theirs = bert(**batch)
    found = ours(**batch)
    torch.testing.assert_close(found.loss, theirs.loss)
    torch.testing.assert_close(found.logits.softmax(-1), theirs.logits.softmax(-1))
    by_count = ours(**batch, num_items_in_batch=7).loss
    torch.testing.assert_close(by_count * 7, found.loss * (batch["labels"] != -100).sum())
    assert torch.equal(ours(**batch).loss, found.loss)  # no noise is drawn
    labels = batch["labels"].masked_fill(batch["labels"] == -100, tokenizer.mask_token_id)
    with pytest.raises(UnmaskError, match="labels hold MASK"):
        ours(batch["input_ids"], labels=labels)


def test_metrics_get_logits_of_the_masked_text(config, tmp_path):
    model, seen = wrapped(config), []
    rows = Loader(load_data(config.data).train, BATCH, config.seed).batch(0, range(BATCH))[0]
    settings = TrainingArguments(
        str(tmp_path), report_to=[], use_cpu=True, dataloader_pin_memory=False, disable_tqdm=True
    )

    def accuracy(given) -> dict[str, float]:
        seen.append(given.predictions.shape)
        return {"accuracy": float((given.predictions.argmax(-1) == given.label_ids).mean())}

    trainer = Trainer(model, settings, compute_metrics=accuracy)
    found = trainer.evaluate([{"input_ids": row, "labels": row} for row in rows])
    assert (
        seen == [(*rows.shape, model.method.vocabulary.size)] and 0 <= found["eval_accuracy"] <= 1
    )
    assert model.train()(rows, labels=rows).logits is None

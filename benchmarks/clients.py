"""Client libraries with our models: a table of client, feature and result, with the installed versions.

Each feature is one small function. Its result is a few words, or the error in one line. A client that is
not installed is listed as such. `--long` adds LoRA on the shipped model stories, which takes minutes.
"""

import argparse
import importlib.metadata
import importlib.util
import logging
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import torch

import unmask
from unmask.config.run_config import resolve

FEATURES: list[tuple[str, str, bool, Callable[[Path], str]]] = []
TEXTS = [f"The {who} sat on mat number {n}." for who in ("cat", "dog", "queen") for n in range(20)]
SETTINGS = {
    "backbone.width": 32, "backbone.depth": 2, "backbone.heads": 2, "backbone.dropout": 0.0,
    "data.length": 24, "data.packing": "pad", "data.tokenizer.kind": "bpe", "data.tokenizer.size": 300,
    "training.batch": 16, "training.warmup": 5, "training.lr": 0.01, "training.ema": 0.5,
    "training.device": "cpu",
}  # fmt: skip


def feature(client: str, name: str, long: bool = False) -> Callable[[Any], Any]:
    """Registers a function of a folder as a feature of a client, a distribution name of pip."""

    def register(function: Callable[[Path], str]) -> Callable[[Path], str]:
        FEATURES.append((client, name, long, function))
        return function

    return register


@cache
def trained(folder: Path) -> unmask.Model:
    """A tiny model; the folder `model` has it in the layout of the hub."""
    if not (folder / "model").exists():
        settings = resolve(
            {}, {**SETTINGS, "data.cache": str(folder / "cache"), "training.steps": 30}
        )
        model = unmask.train(settings, folder / "run", data=TEXTS, say=lambda line: None)
        model.save_pretrained(folder / "model")
    return unmask.load(folder / "model", device="cpu")


def network(folder: Path) -> Any:
    from transformers import AutoModelForMaskedLM

    import unmask.integrations.transformers  # noqa: F401

    trained(folder)
    return AutoModelForMaskedLM.from_pretrained(folder / "model")


def tokens(folder: Path) -> torch.Tensor:
    """Two rows of ids without MASK."""
    tokenizer = trained(folder).tokenizer
    return torch.tensor([(tokenizer.encode(text) * 3)[:12] for text in TEXTS[:2]])


def largest(a: torch.Tensor, b: torch.Tensor) -> str:
    known = a.isfinite()
    return f"largest difference {(a - b)[known].abs().max():.1e}"


# transformers


@feature("transformers", "AutoModelForMaskedLM: save and reload")
def auto_classes(folder: Path) -> str:
    first, x = network(folder), tokens(folder)
    first.save_pretrained(folder / "again", max_shard_size="20KB")
    again = type(first).from_pretrained(folder / "again")
    with torch.no_grad():
        return largest(first(x).logits, again(x).logits)


@feature("transformers", "fill-mask pipeline")
def fill_mask(folder: Path) -> str:
    from transformers import AutoTokenizer, pipeline

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    filled = pipeline("fill-mask", model=network(folder), tokenizer=tokenizer)("The [MASK] sat")
    return f"{len(filled)} answers, the first {filled[0]['score']:.2f}"


@feature("transformers", "DataCollatorForLanguageModeling: loss of the masked-LM contract")
def collator(folder: Path) -> str:
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    torch.manual_seed(0)
    batch = DataCollatorForLanguageModeling(tokenizer)([tokenizer(text) for text in TEXTS[:8]])
    found = network(folder)(**batch)
    contract = torch.nn.functional.cross_entropy(found.logits.mT, batch["labels"])
    masked = int((batch["input_ids"] == tokenizer.mask_token_id).sum())
    return f"{masked} masks, loss {found.loss:.4f}, contract {contract:.4f}"


@feature("transformers", "Trainer: training and compute_metrics")
def trainer(folder: Path) -> str:
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": row, "labels": row} for row in tokens(folder).repeat(8, 1)]
    arguments = TrainingArguments(
        str(folder / "trainer"), max_steps=3, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    own = Trainer(
        network(folder), arguments, train_dataset=rows,
        compute_metrics=lambda given: {"right": (given.predictions.argmax(-1) == given.label_ids).mean()},
    )  # fmt: skip
    own.train()
    found = own.evaluate(rows[:2])
    return f"evaluation loss {found['eval_loss']:.3f}, metric {found['eval_right']:.2f}"


@feature("transformers", "generate(generation_config, do_sample, streamer)")
def generate(folder: Path) -> str:
    from transformers import AutoTokenizer, GenerationConfig
    from transformers.generation.streamers import TextIteratorStreamer

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    streamer = TextIteratorStreamer(tokenizer, skip_special_tokens=True)
    config = GenerationConfig(max_new_tokens=12, do_sample=False)
    ids = network(folder).generate(generation_config=config, streamer=streamer, seed=0)
    text = tokenizer.decode(ids[0], skip_special_tokens=True)
    return "streamed text equals the result" if "".join(streamer) == text else f"differs: {text!r}"


@feature("transformers", "output_hidden_states, position_ids, eager attention")
def outputs(folder: Path) -> str:
    model, x = network(folder), tokens(folder)
    with torch.no_grad():
        plain = model(x, output_hidden_states=True, position_ids=torch.arange(12)[None])
        model.set_attn_implementation("eager")
        return f"{len(plain.hidden_states)} states, eager: {largest(plain.logits, model(x).logits)}"


@feature("transformers", "resize_token_embeddings")
def resized(folder: Path) -> str:
    model = network(folder)
    model.resize_token_embeddings(model.config.vocab_size + 4)
    model.save_pretrained(folder / "resized")
    return f"{unmask.load(folder / 'resized', device='cpu').tokenizer.vocabulary.size} ids after unmask.load"


@feature("torch", "torch.compile(fullgraph=True) and torch.export")
@torch.no_grad()
def one_graph(folder: Path) -> str:
    model, x = network(folder), tokens(folder)
    expected = model(x).logits
    compiled = torch.compile(model, fullgraph=True, backend="eager")(x).logits
    exported = torch.export.export(model, (x,)).module()(x).logits
    return f"{largest(expected, compiled)}; {largest(expected, exported)}"


# PEFT and quantisation


@feature("peft", "LoRA all-linear: logits, gradients, save and reload, merge")
def lora(folder: Path) -> str:
    import peft

    x = tokens(folder)
    adapted = peft.get_peft_model(
        network(folder), peft.LoraConfig(r=2, target_modules="all-linear")
    )
    adapters = [p for name, p in adapted.named_parameters() if "lora_" in name]
    for parameter in adapters:
        torch.nn.init.normal_(parameter, std=0.1)
    adapted.train()(input_ids=x, labels=x).loss.backward()
    learned = sum(p.grad is not None for p in adapters)
    adapted.eval().save_pretrained(folder / "adapter")
    again = peft.PeftModel.from_pretrained(network(folder), folder / "adapter")
    with torch.no_grad():
        changed = adapted(input_ids=x).logits
        same = largest(changed, again.eval()(input_ids=x).logits)
        merged = largest(changed, adapted.merge_and_unload()(x).logits)
    return f"{learned} of {len(adapters)} gradients; reloaded: {same}; merged: {merged}"


@feature("peft", "unmask train --lora.rank 4 on stories, held-out text", long=True)
def lora_on_stories(folder: Path) -> str:
    from pydoc_data.topics import topics

    base, texts = unmask.load("stories", device="cpu"), [text[:1500] for text in topics.values()]
    settings = {
        "init_from": "stories", "lora.rank": 4, "data.length": 128, "data.tokenizer.source": "",
        "data.cache": str(folder / "cache"), "training.steps": 20, "training.batch": 8,
        "training.warmup": 5, "training.ema": 0.9, "training.lr": 2e-3, "training.decay": "constant",
        "training.validation_rows": 8, "training.compile": False, "training.precision": "fp32",
        "training.device": "cpu", "training.validate_every": 0, "training.sample_every": 0,
    }  # fmt: skip
    said: list[str] = []
    data = {"train": texts[:60], "valid": texts[60:64]}
    model = unmask.train(
        base.config, folder / "lora", overrides=settings, data=data, say=said.append
    )
    before, after = (one.perplexity(texts[64:66], draws=2) for one in (base, model))
    share = said[0].split(", ")[2].split(";")[0]
    return f"{share}; perplexity {before.perplexity:.0f} before, {after.perplexity:.0f} after"


@feature("torchao", "int8 weights")
def torchao_int8(folder: Path) -> str:
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    model, x = network(folder), tokens(folder)
    with torch.no_grad():
        plain = model(x).logits
        quantize_(
            model,
            Int8WeightOnlyConfig(),
            lambda part, name: isinstance(part, torch.nn.Linear) and "blocks" in name,
        )
        return largest(plain, model(x).logits)


# diffusers, onnxruntime, datasets, accelerate


@feature("diffusers", "LLaDA2Pipeline: text, save and reload")
def llada2(folder: Path) -> str:
    from diffusers import BlockRefinementScheduler, LLaDA2Pipeline
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    pipe = LLaDA2Pipeline(network(folder), BlockRefinementScheduler(), tokenizer)
    pipe.save_pretrained(folder / "pipeline")
    # diffusers 0.42 does not read the optional tokenizer back
    again = LLaDA2Pipeline.from_pretrained(folder / "pipeline", tokenizer=tokenizer)
    prompt = torch.tensor([tokenizer("The cat")["input_ids"][:-1]])  # without EOS
    asked = {"input_ids": prompt, "gen_length": 12, "block_length": 4, "num_inference_steps": 4}
    texts = []
    for each in (pipe, again):
        each.set_progress_bar_config(disable=True)
        texts.append(each(**asked, generator=torch.Generator().manual_seed(0)).texts[0])
    return f"{texts[0]!r}, {'the same' if texts[0] == texts[1] else 'another'} after reloading"


@feature("onnxruntime", "ONNX file, and quantize_dynamic")
def onnx(folder: Path) -> str:
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from unmask.integrations.onnx import export

    model, x = trained(folder), tokens(folder)
    files = [folder / "model.onnx", folder / "int8.onnx"]
    export(model, files[0])
    quantize_dynamic(*files, weight_type=QuantType.QInt8)
    with torch.no_grad():
        ours = network(folder)(x).logits
    found = [
        onnxruntime.InferenceSession(file).run(None, {"tokens": x.numpy()})[0] for file in files
    ]
    plain, int8 = (largest(ours, torch.from_numpy(each)) for each in found)
    return f"{plain}; int8: {int8}"


@feature("datasets", "unmask.train(data=Dataset)")
def dataset(folder: Path) -> str:
    import datasets

    data = datasets.Dataset.from_dict({"text": TEXTS})
    settings = resolve({}, {**SETTINGS, "data.cache": str(folder / "cache"), "training.steps": 2})
    said: list[str] = []
    unmask.train(settings, folder / "from-dataset", data=data, say=said.append)
    return said[0].partition("; ")[2]


@feature("accelerate", "Trainer in two processes on the CPU")
def two_processes(folder: Path) -> str:
    network(folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", __file__]
    done = subprocess.run([*command, "--worker", str(folder)], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if "evaluation" in line]
    return "; ".join(sorted(lines)) if lines else (done.stderr.strip().splitlines() or ["?"])[-1]


def rows(long: bool) -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for client, name, slow, function in FEATURES:
            if importlib.util.find_spec(client) is None:
                yield client, name, "not installed"
            elif long or not slow:
                try:
                    with redirect_stdout(StringIO()):
                        result = function(Path(folder))
                except Exception as error:  # the table shows it
                    reason = (str(error).strip().splitlines() or [""])[0]
                    result = f"FAILED: {type(error).__name__}: {reason[:100]}"
                yield f"{client} {importlib.metadata.version(client)}", name, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="add LoRA on the model stories")
    parser.add_argument("--only", default="", help="clients whose name holds this text")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if args.worker:
        result = trainer(args.worker)
        print(result, "in process", torch.distributed.get_rank(), flush=True)
        return
    FEATURES[:] = [each for each in FEATURES if args.only in each[0]]
    print("| client | feature | result |\n| --- | --- | --- |")
    for row in rows(args.long):
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

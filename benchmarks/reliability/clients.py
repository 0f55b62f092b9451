"""Client libraries with our models: a table of client, feature and result, with the installed versions.

Each feature is one small function. Its result is a few words, or the error in one line. A client that is
not installed is listed as such. `--long` adds LoRA on the shipped model stories, which takes minutes.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import torch

import unmask
from benchmarks.room import script, script_parser
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
    """Registers a function of a folder as a feature of a client. The client is the name of its pip distribution."""

    def register(function: Callable[[Path], str]) -> Callable[[Path], str]:
        FEATURES.append((client, name, long, function))
        return function

    return register


@cache
def trained(folder: Path) -> unmask.Model:
    """A tiny model. It is also saved in the folder `model`, in the hub's layout."""
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


def first_line(said: list[str]) -> str:
    """The line that `unmask.train` prints with the sizes of network and data."""
    return next(line for line in said if " parameters" in line)


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


def fitted(folder: Path, **flags: Any) -> Any:
    """A Trainer after three steps, with more arguments of TrainingArguments."""
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": row, "labels": row} for row in tokens(folder).repeat(8, 1)]
    arguments = TrainingArguments(
        str(folder / "trainer"), max_steps=3, report_to=[], use_cpu=True, disable_tqdm=True,
        save_strategy="no", dataloader_pin_memory=False, **flags,
    )  # fmt: skip
    own = Trainer(
        network(folder), arguments, train_dataset=rows,
        compute_metrics=lambda given: {"right": (given.predictions.argmax(-1) == given.label_ids).mean()},
    )  # fmt: skip
    own.train()
    return own


@feature("transformers", "Trainer: training and compute_metrics")
def trainer(folder: Path) -> str:
    own = fitted(folder)
    found = own.evaluate(own.train_dataset[:2])
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
    share = first_line(said).split(", ")[2].split(";")[0]
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


@feature("bitsandbytes", "8-bit and 4-bit weights on the CPU")
def bitsandbytes(folder: Path) -> str:
    from transformers import AutoModelForMaskedLM, BitsAndBytesConfig

    x, found = tokens(folder), []
    with torch.no_grad():
        plain = network(folder)(x).logits
        for options in (
            {"load_in_8bit": True},
            {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
        ):
            small = AutoModelForMaskedLM.from_pretrained(
                folder / "model",
                device_map="cpu",
                quantization_config=BitsAndBytesConfig(**options),
            )
            layers = {type(part).__name__ for part in small.modules()}
            (kind,) = layers & {"Linear8bitLt", "Linear4bit"}
            found.append(f"{kind}: {largest(plain, small(x).logits)}")
    return "; ".join(found)


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
    options = {"input_ids": prompt, "gen_length": 12, "block_length": 4, "num_inference_steps": 4}
    texts = []
    for each in (pipe, again):
        each.set_progress_bar_config(disable=True)
        texts.append(each(**options, generator=torch.Generator().manual_seed(0)).texts[0])
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
    return first_line(said).partition("; ")[2]


@feature("accelerate", "accelerate launch --num_processes 2: Trainer with DDP on the CPU")
def two_processes(folder: Path) -> str:
    return launched(folder, "ddp")


@feature("accelerate", "accelerate launch --num_processes 2: Trainer with FSDP on the CPU")
def sharded(folder: Path) -> str:
    return launched(folder, "fsdp")


def launched(folder: Path, strategy: str) -> str:
    """The lines of the workers. `--cpu` is not used: it starts one process where mpirun is not installed."""
    network(folder)
    launch = [
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
    ]
    command = [*launch, *script(__file__), "--worker", str(folder), "--strategy", strategy]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("process ")]
    if done.returncode or len(lines) != 2:
        wrong = [line for line in done.stderr.splitlines() if "Error" in line]
        raise RuntimeError(wrong[-1] if wrong else f"{len(lines)} lines")
    return "; ".join(sorted(lines))


def work(folder: Path, strategy: str) -> None:
    """One process of `launched`."""
    from torch.distributed.tensor import DTensor

    shards = {
        "fsdp": True,
        "fsdp_config": {
            "fsdp_version": 2,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "transformer_layer_cls_to_wrap": ["Block"],
        },
    }
    own = fitted(folder, **(shards if strategy == "fsdp" else {}))
    wrapped = own.model_wrapped
    parameters = list(wrapped.parameters())
    parts = sum(isinstance(parameter, DTensor) for parameter in parameters)
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    print(
        f"process {rank} of {world}: {type(wrapped).__name__}, {parts} of {len(parameters)} parameters "
        f"sharded, loss {own.state.log_history[-1]['train_loss']:.3f}",
        flush=True,
    )


# clients of the server


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of `unmask serve` with the tiny model."""
    trained(folder)
    command = [sys.executable, "-m", "unmask", "serve", str(folder / "model"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield re.findall(r"at (http://\S+)", server.stdout.readline())[0] + "/v1"
        finally:
            server.terminate()


@feature("openai", "models, completions, stream, an error")
def openai_client(folder: Path) -> str:
    import openai

    with served(folder) as address, openai.OpenAI(base_url=address, api_key="none") as client:
        name = client.models.list().data[0].id
        options = {"model": name, "prompt": "The cat", "max_tokens": 8, "temperature": 0}
        first, again = (client.completions.create(**options).choices[0].text for _ in range(2))
        parts = [part.choices[0].text for part in client.completions.create(**options, stream=True)]
        try:
            client.completions.create(**{**options, "max_tokens": -1})
            status = 200
        except openai.APIStatusError as error:
            status = error.status_code
    same = first == again == "".join(parts)
    return f"{first!r}, {'the same' if same else 'another'} again and streamed; max_tokens -1: {status}"


@feature("langchain-openai", "OpenAI: invoke, batch, stream, a chain with a prompt template")
def langchain(folder: Path) -> str:
    from langchain_core.prompts import PromptTemplate
    from langchain_openai import OpenAI

    with served(folder) as address:
        model = OpenAI(model="model", base_url=address, api_key="none", max_tokens=8, temperature=0)
        texts = [model.invoke("The cat"), *model.batch(["The cat", "The cat"])]
        texts.append("".join(model.stream("The cat")))
        texts.append((PromptTemplate.from_template("The {who}") | model).invoke({"who": "cat"}))
    return f"{texts[0]!r}, {len(set(texts))} different of {len(texts)}"


# measuring and logging


@feature("lm_eval", "unmask harness: tasks of YAML files")
def harness(folder: Path) -> str:
    trained(folder)
    tasks = folder / "tasks"
    tasks.mkdir()
    lines = [{"question": "The cat", "choices": [" sat on mat", " zqx jkv"]}] * 2
    (tasks / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    task = {
        "task": "pick", "output_type": "multiple_choice", "dataset_path": "json", "test_split": "test",
        "dataset_kwargs": {"data_files": {"test": str(tasks / "lines.jsonl")}},
        "doc_to_text": "{{question}}", "doc_to_choice": "{{choices}}", "doc_to_target": 0,
        "target_delimiter": "", "metric_list": [{"metric": "acc"}],
    }  # fmt: skip
    (tasks / "pick.yaml").write_text(json.dumps(task))  # JSON is YAML
    command = [
        sys.executable, "-m", "unmask", "harness", "run", "--model_args", f"path={folder / 'model'},draws=8",
        "--tasks", "pick", "--include_path", str(tasks), "--device", "cpu", "--batch_size", "4",
        "--output_path", str(folder / "results"), "--log_samples",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=environment(folder))
    found = list((folder / "results").rglob("results_*.json"))
    if not found:
        return f"FAILED: {done.stderr.strip().splitlines()[-1][:100]}"
    results = json.loads(found[0].read_text())
    samples = len(list((folder / "results").rglob("samples_pick_*.jsonl")))
    return f"acc {results['results']['pick']['acc,none']}, {samples} file of samples"


@feature("lm_eval", "likelihood of a row, with unmask evaluate's")
def same_likelihood(folder: Path) -> str:
    from lm_eval.api.instance import Instance

    from unmask.extensions.lm_eval.adapter import UnmaskLM
    from unmask.extensions.lm_eval.scoring import ScoringRequest

    model, order = trained(folder), "left_to_right"
    v, encode = model.tokenizer.vocabulary, model.tokenizer.encode
    text = next(
        text
        for end in range(len("".join(TEXTS)))
        if len(encode(text := "".join(TEXTS)[:end])) == model.length - 2
    )
    adapter = UnmaskLM(path=str(folder / "model"), order=order, device="cpu")
    (log_p,) = adapter.loglikelihood_rolling(
        [Instance("loglikelihood_rolling", {}, (text,), 0)], disable_tqdm=True
    )
    # unmask evaluate also counts BOS and EOS
    ids = (v.bos_id, *encode(text), v.eos_id)
    ends = adapter._runner.scorer.log_p(
        [ScoringRequest(ids[:1], 0), ScoringRequest(ids, len(ids) - 1)]
    )
    bound = model.perplexity([text], order=order)
    return f"{log_p + sum(ends):.4f} nats by lm_eval with BOS and EOS, {-bound.nats * bound.tokens:.4f} by unmask"


def environment(folder: Path) -> dict[str, str]:
    """Environment variables with which libraries write into the folder and use no network."""
    return {
        **os.environ,
        "HF_DATASETS_CACHE": str(folder / "datasets"),
        "HF_HUB_OFFLINE": "1",
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }


def logged(folder: Path, to: str) -> Path:
    """The run folder of a few steps of `unmask train` with a logger."""
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    run = folder / f"run-{to}"
    options = {**SETTINGS, "data.train": folder / "texts.txt", "data.separator": "line",
               "data.cache": folder / "cache", "training.steps": 4, "training.log_every": 1,
               "training.log_to": to}  # fmt: skip
    given = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    command = [sys.executable, "-m", "unmask", "train", "auto", "--run", str(run), *given]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(folder))
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return run


@feature("tensorboard", "unmask train --training.log_to tensorboard, read by EventAccumulator")
def tensorboard(folder: Path) -> str:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logged(folder, "tensorboard") / "tensorboard")).Reload()
    curves = events.Tags()["scalars"]
    points = sum(len(events.Scalars(name)) for name in curves)
    return f"{len(curves)} curves, {points} points"


@feature("wandb", "unmask train --training.log_to wandb, offline")
def wandb(folder: Path) -> str:
    (file,) = (logged(folder, "wandb") / "wandb").glob("offline-run-*/run-*.wandb")
    names = {name for name in (b"loss", b"step", b"lr") if name in file.read_bytes()}
    return f"a run file with {', '.join(sorted(name.decode() for name in names))}"


@feature(
    "sentence-transformers", "SentenceTransformer of network and mean pooling: encode, save, reload"
)
def sentences(folder: Path) -> str:
    from sentence_transformers import SentenceTransformer, models

    network(folder)
    words = models.Transformer(str(folder / "model"))
    pooling = models.Pooling(words.get_word_embedding_dimension())
    first = SentenceTransformer(modules=[words, pooling], device="cpu")
    first.save(str(folder / "sentences"))
    again = SentenceTransformer(str(folder / "sentences"), device="cpu")
    vectors = [model.encode(TEXTS[:3], convert_to_tensor=True) for model in (first, again)]
    return f"vectors {list(vectors[0].shape)}; reloaded: {largest(*vectors)}"


def rows(long: bool) -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        for client, name, slow, function in FEATURES:
            if importlib.util.find_spec(client.replace("-", "_")) is None:
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
    parser = script_parser(__doc__)
    add = parser.add_argument
    add("--long", action="store_true", help="add LoRA on the model stories")
    add("--only", default="", help="only clients whose name contains this text")
    add("--worker", type=Path, help=argparse.SUPPRESS)
    add("--strategy", help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if args.worker:
        work(args.worker, args.strategy)
        return
    FEATURES[:] = [each for each in FEATURES if args.only in each[0]]
    print("| client | feature | result |\n| --- | --- | --- |")
    for row in rows(args.long):
        print(f"| {' | '.join(row)} |", flush=True)

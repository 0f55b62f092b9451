"""Recipes that fit the text and the machine, `auto` and `finetune`, or the initial model, `adapt`.

The choice depends on the size of the text, on the kind of device and on its cores. It does not
depend on measured times, so that the same command gives the same configuration. Only the estimate
of the time is measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from unmask.config.run_config import RunConfig, load_recipe, resolve, to_dict
from unmask.data.corpora import opened
from unmask.data.data_config import DataConfig
from unmask.data.documents.pairs import sides
from unmask.data.sources.corpus import Corpus, beginning
from unmask.data.tokenizers.tokenizer import TOKENIZERS
from unmask.errors import UnmaskError
from unmask.formats.read import read_bundle
from unmask.methods.method import METHODS
from unmask.recipes import ADAPT, AUTO, require_text, required_start
from unmask.runs.plan import work_of
from unmask.runs.step_time import run_seconds, step_seconds
from unmask.runtime.cores import available_cores
from unmask.runtime.device import resolve_device
from unmask.training.checkpoints.checkpoint import begun
from unmask.training.logs.progress import duration

Settings = Mapping[str, Any] | Sequence[tuple[str, Any]]

_READ = 50_000_000  # characters that are counted; a longer text counts as this long
# assumed of a CPU: operations per second of a core, and seconds of a step without operations
_CORE, _STEP = 18e9, 0.1
_SECONDS = 420.0  # of training on such a CPU, at most
# characters below which a text has this: size of the tokenizer, length of a row, width, depth,
# heads
_CPU = (
    (20_000, (384, 64, 128, 3, 4)),
    (200_000, (512, 128, 128, 4, 4)),
    (2_000_000, (1024, 128, 192, 4, 6)),
    (20_000_000, (2048, 128, 256, 5, 8)),
    (_READ + 1, (4096, 128, 320, 6, 10)),
)
_SMALL = 1_000_000  # characters; a text like those of benchmarks/learning/own_text.jsonl has fewer
_EXPECTED = (
    "what to expect: on 300,000 characters of film reviews, finetune took wiki from 2.00 to 1.91 bits per "
    "byte in 126 steps, and auto reached 2.76 in 300 (one run each). Their texts are fragments; stories has 0.69 on "
    "children's stories, and writes whole ones"
)
_GPU = (
    (20_000, (384, 64, 128, 3, 4)),
    (200_000, (512, 128, 256, 4, 4)),
    (2_000_000, (1024, 256, 384, 6, 6)),
    (20_000_000, (4096, 256, 512, 8, 8)),
    (_READ + 1, (8192, 512, 768, 12, 12)),
)


def fitted(
    recipe: str, overrides: Settings = (), run: Path | None = None,
    say: Callable[[str], None] | None = print,
    corpus: Callable[[DataConfig], Corpus] | None = None,
) -> RunConfig:  # fmt: skip
    """The configuration of a recipe; `auto`, `finetune` and `adapt` choose what is left open.

    Args:
        recipe: the name or the path of a recipe.
        overrides: settings by dotted name.
        run: the run folder; a run that has begun keeps its configuration.
        say: receives the choice and the estimate of the time as lines; None measures no time.
        corpus: opens the training text instead of `data.train`.

    Returns:
        The configuration.
    """
    given = list(overrides.items() if isinstance(overrides, Mapping) else overrides)
    if recipe not in (*AUTO, ADAPT):
        return resolve(load_recipe(recipe), given)
    if run is not None and begun(run) and (run / "config.yaml").is_file():
        return resolve(load_recipe(str(run / "config.yaml")), given)
    if corpus is None:
        require_text(recipe, dict(given))
    tree = load_recipe(recipe)
    if recipe == ADAPT:
        return _adapted(tree, given)
    # the text, the device and the start; a network may fit only after the choice
    plain = resolve(
        {name: part for name, part in tree.items() if name != "backbone"},
        [(name, value) for name, value in given if name.partition(".")[0] != "backbone"],
    )
    characters = count_characters(plain, corpus)
    chosen = _start_settings(plain, dict(given)) if plain.init_from else {}
    chosen |= _sizes(plain, characters)
    if plain.teacher:
        chosen = {n: value for n, value in chosen.items() if n != "data.tokenizer.size"}
        chosen["data.tokenizer"] = _tokenizer(read_bundle(plain.teacher).config)
    config = resolve(tree, [*chosen.items(), *given])
    chosen |= _pace(config, characters, "training.steps" in dict(given))
    config = resolve(tree, [*chosen.items(), *given])
    if say is not None:
        for line in _described(config, characters):
            say(line)
    return config


def _adapted(tree: dict[str, Any], given: list[tuple[str, Any]]) -> RunConfig:
    """The recipe `adapt` with the network, the tokenizer and the longest row of its start."""
    start = required_start(dict(given))
    found = read_bundle(start)
    if not found.method.capabilities.generate or found.method.capabilities.latent:
        raise UnmaskError(
            f"{start} writes no tokens, so no blocks can start from it: give an autoregressive model"
        )
    chosen: dict[str, Any] = {
        "init_from": start,
        "backbone": to_dict(found.config.backbone),
        "data.tokenizer": _tokenizer(found.config),
        "data.length": min(512, found.length),
    }
    names = dict(given)
    if "training.steps" in names and "training.seconds" not in names:
        chosen["training.seconds"] = 0
    plain = resolve(tree, [*chosen.items(), *given])
    gpu = resolve_device(plain.training.device).type == "cuda"
    return resolve(tree, [*chosen.items(), ("training.compile", gpu), *given])


def count_characters(
    config: RunConfig, corpus: Callable[[DataConfig], Corpus] | None = None
) -> int:
    """The number of characters of the training text; counting ends at fifty millions."""
    data = config.data
    corpora = [corpus(data)] if corpus else (opened(part.text, data) for part in data.portions)
    texts = chain.from_iterable(map(sides, corpora))
    return min(_READ, sum(map(len, beginning(texts, _READ))))


def _start_settings(config: RunConfig, given: Mapping[str, Any]) -> dict[str, Any]:
    """Method, network and tokenizer of the initial model.

    A network of either direction takes that of the method, which may be given.
    """
    found = read_bundle(config.init_from).config
    backbone = to_dict(found.backbone) | {"dropout": 0.1}
    method = given.get("method", found.method.name)
    name = str(method["name"] if isinstance(method, Mapping) else method)
    if "causal" in backbone:
        backbone["causal"] = METHODS[name].capabilities.causal
    return {
        "method": to_dict(found.method) if name == found.method.name else {"name": name},
        "backbone": backbone,
        "data.tokenizer": _tokenizer(found),
    }


def _tokenizer(config: RunConfig) -> dict[str, Any]:
    """The tokenizer settings of a trained model, without the source that it was learned from."""
    return to_dict(config.data.tokenizer) | {"source": ""}


def _sizes(config: RunConfig, characters: int) -> dict[str, Any]:
    """Tokenizer, row length, network and batch for a text of so many characters."""
    gpu = resolve_device(config.training.device).type != "cpu"
    found = next(sizes for most, sizes in (_GPU if gpu else _CPU) if characters < most)
    size, length, width, depth, heads = found
    if config.init_from:
        return {
            "data.length": 256 if gpu else 128,
            "training.batch": 32 if gpu else 8,
            "training.lr": 2e-4
            if characters < 50_000
            else 5e-4,  # a small text is learned by heart
        }
    batch = 8 if characters < 20_000 else 16 if characters < 200_000 else 128 if gpu else 32
    return {
        "data.tokenizer.size": size,
        "data.length": length,
        "backbone.width": width,
        "backbone.depth": depth,
        "backbone.heads": heads,
        "backbone.dropout": 0.1 if characters < 2_000_000 else 0.0,
        "training.batch": batch,
    }


def _pace(config: RunConfig, characters: int, given: bool) -> dict[str, Any]:
    """Steps, unless they are given, and the steps between validations and checkpoints."""
    training, length = config.training, config.data.length
    work = work_of(config, _vocabulary(config))
    tokens = training.batch * length
    # a small text is learned by heart after a few hundred steps, from a trained model earlier
    epochs, least = (20, 60) if config.init_from else (50, 150)
    steps = min(max(epochs * _tokens(characters) // tokens, least), 20_000)
    gpu = resolve_device(training.device).type != "cpu"
    if not gpu:
        operations = tokens * sum(work.operations().values())
        each = _STEP + operations / (_CORE * min(available_cores(), 16))
        steps = min(steps, int(_SECONDS / each))
    steps = training.steps if given else max(steps, 50)
    return {
        "training.steps": steps,
        "training.warmup": max(5, steps // 20),
        "training.validate_every": max(10, steps // 8),
        "training.validation_rows": 256 if gpu else 32,
        # a small text has few rows, and one draw of the noise would say little
        "training.validation_draws": min(8, max(1, 200_000 // max(1, characters))),
        "training.save_every": max(10, steps // 4),
        "training.log_every": 10,
    }


def _described(config: RunConfig, characters: int) -> Iterator[str]:
    """The choice and the estimate of the time, as lines."""
    training, shape = config.training, config.backbone.config
    more = "+" if characters == _READ else ""
    start = f"starts from {config.init_from}" if config.init_from else "starts from nothing"
    yield (
        f"text: {characters:,}{more} characters; {start}; tokenizer {config.data.tokenizer.kind} of "
        f"{_vocabulary(config):,}; network {shape.depth} × {shape.width}; {training.steps:,} steps of "
        f"{training.batch} × {config.data.length} tokens"
    )
    work = work_of(config, _vocabulary(config))
    step = step_seconds(config, work.vocabulary, work.length * sum(work.operations().values()))
    held_out = int(config.data.holdout * _tokens(characters) / work.length)
    seconds = run_seconds(step, config, max(1, held_out))
    yield (
        f"estimated time: {duration(seconds)} at the present load of the machine; change it with "
        "--training.steps N"
    )
    if characters < _SMALL and resolve_device(training.device).type == "cpu":
        yield _EXPECTED


def _tokens(characters: int) -> int:
    """The tokens of a text, about."""
    return max(1, characters // 3)


def _vocabulary(config: RunConfig) -> int:
    """The size of the vocabulary, as far as it is known before the text is read."""
    tokenizer = config.data.tokenizer
    return TOKENIZERS[tokenizer.kind].planned_size(tokenizer) or 256

"""The model card: README.md of a model folder."""

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unmask import recipes, shipped
from unmask.bundle import Bundle
from unmask.config.run_config import RunConfig, dump_yaml, flatten, load_recipe, resolve
from unmask.errors import UnmaskError
from unmask.files.storage import MANIFEST, atomic_folder, read_json, write_json
from unmask.formats.redact import published, without_paths
from unmask.likelihood.figure_text import signed, with_error
from unmask.methods.method import METHODS
from unmask.version import __version__

FRONT = "---\n"
# settings that do not affect the result, or that training writes
_MACHINE = {"training.device", "data.cache", "data.held_out_digest"}


def card_facts(bundle: Bundle) -> dict[str, Any]:
    """The facts of a card that need no measurement."""
    config = published(bundle.config)
    return {
        "method": bundle.config.method.name,
        "backbone": bundle.config.backbone.name,
        "parameters": sum(p.numel() for p in bundle.method.parameters()),
        "vocabulary": bundle.tokenizer.vocabulary.size,
        "length": bundle.length,
        "data": config.data.trained_on,
        "configuration": dump_yaml(config),
        "defaults": dict(bundle.defaults),
        "versions": {"unmask": __version__},
        **({"pairs": True} if bundle.conditional else {}),
    }


def card_page(name: str, facts: Mapping[str, Any]) -> str:
    """The card in Markdown: a table of facts, usage, training, and samples if there are any."""
    versions = ", ".join(f"{part} {version}" for part, version in facts["versions"].items())
    rows = {
        "method, network": f"{facts['method']}, {facts['backbone']}",
        "parameters": f"{facts['parameters']:,}",
        "tokens": f"{facts['vocabulary']:,} in the vocabulary, rows of {facts['length']}",
        "data": facts["data"],
        "licence of the data": facts.get("licence") or "not stated",
        **_bound(facts.get("bound")),
        **{key: line for row in facts.get("texts", []) for key, line in _texts(row).items()},
        "defaults of generate": _spelled_defaults(facts["defaults"]),
        "weights": facts.get("weights"),
        "measured" if "date" in facts else "written by": ", ".join(
            filter(None, (facts.get("date"), versions))
        ),
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items() if value is not None)
    parts = [
        f"# {name}",
        facts.get("about") or "A language model made with unmask.",
        f"| | |\n|---|---|\n{table}",
        _use(name, facts),
        _training(name, facts),
        *_samples(name, facts),
    ]
    return "\n\n".join(parts) + "\n"


def hub_page(
    bundle: Bundle,
    name: str,
    card: str | Mapping[str, Any] | None = None,
    licence: str | None = None,
) -> str:
    """The card of a model on the hub. `card` is its text, or facts beside those of the bundle.

    The front matter is for the hub's search. Paths of this machine are replaced by names.
    """
    if isinstance(card, str):
        page = card
    else:
        facts = card_facts(bundle) | dict(card or {})
        licence = licence or facts.get("licence")
        page = card_page(name, facts | {"licence": licence})
    if not page.startswith(FRONT):
        page = _front(bundle, licence) + page
    return without_paths(page, bundle.config)


def training_command(config: RunConfig, recipe: str) -> str | None:
    """The `unmask train` command of a run: its recipe and every setting that differs from it.

    None for a mixture of corpora, which needs a configuration file.
    """
    own, of_recipe = flatten(config), flatten(resolve(load_recipe(recipe)))
    if own.keys() != of_recipe.keys():
        raise UnmaskError(f"this model was not trained with the recipe {recipe}: name another")
    public = flatten(published(config))
    differing = {
        name: public[name] for name in own if own[name] != of_recipe[name] and name not in _MACHINE
    }
    if isinstance(differing.get("data.train"), list):
        return None
    options = [f"--{name} {shlex.quote(_spelled(value))}" for name, value in differing.items()]
    return " ".join(["unmask train", recipe, *options])


def _spelled(value: Any) -> str:
    """The value of a setting in the notation of the command line."""
    if isinstance(value, list):
        return ",".join(map(_spelled, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def likely_recipe(folder: Path, config: RunConfig) -> str | None:
    """The recipe with the name of the folder; None if there is none or its components differ."""
    name = shipped.recipe(folder.name)
    if name not in recipes.names():
        return None
    own, of_recipe = flatten(config), flatten(resolve(load_recipe(name)))
    return name if own.keys() == of_recipe.keys() else None


def write_card(folder: Path, page: str, facts: dict[str, Any]) -> None:
    """Writes the card into an exported folder, as README.md and as JSON for `unmask models`."""
    model = read_json(folder / shipped.MODEL)
    with atomic_folder(folder) as new:
        shutil.copytree(folder, new, dirs_exist_ok=True)
        (new / MANIFEST).unlink()
        facts = {**facts, "precision": model.get("precision", "fp32")}
        write_json(new / shipped.CARD, facts)
        (new / "README.md").write_text(page, encoding="utf-8")


def _front(bundle: Bundle, licence: str | None) -> str:
    """The YAML front matter for the hub's search."""
    masked = bundle.method.capabilities.masked_lm
    lines = ["library_name: unmask", "tags:", "- unmask", f"- {bundle.config.method.name}"]
    if masked:
        lines += ["- masked-diffusion", "pipeline_tag: fill-mask"]
    if licence:
        lines.append(f"license: {licence!r}")
    return FRONT + "\n".join(lines) + "\n" + FRONT


def _use(name: str, facts: Mapping[str, Any]) -> str:
    """The section on usage, with the Auto classes if they can load the model."""
    masked = METHODS[facts["method"]].capabilities.masked_lm and name not in shipped.known()
    prompt = '"SOURCE"' if facts.get("pairs") else "n=1"
    transformers = f"""

```python
import unmask.integrations.transformers  # registers the Auto classes
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
```"""
    return f"""## Use

```python
import unmask

model = unmask.load("{name}")
print(model.generate({prompt})[0])
```{transformers if masked else ""}"""


def _training(name: str, facts: Mapping[str, Any]) -> str:
    """The section on training: the command, if it is known, and the configuration."""
    command = facts.get("command")
    file = "" if command or "command" not in facts else f", the file `{name}.yaml`"
    if "command" in facts:
        command = command or f"unmask train {name}.yaml"
    shown = f"```bash\n{command}\n```\n\nThe whole configuration{file}:\n\n" if command else ""
    return f"## Training\n\n{shown}```yaml\n{facts['configuration'].rstrip()}\n```"


def _samples(name: str, facts: Mapping[str, Any]) -> list[str]:
    """The section of samples, if there are any."""
    if "samples" not in facts:
        return []
    prompt = " --prompt SOURCE" if facts.get("pairs") else ""
    command = f"unmask generate {name}{prompt} --seed N --device {facts['device']}"
    texts = [
        f"Seed {s['seed']}:\n\n{_quoted(' → '.join(s[part] for part in ('source', 'text') if part in s))}"
        for s in facts["samples"]
    ]
    return ["## Samples", f"All texts of `{command}`, in the order of N.", *texts]


def _bound(bound: Mapping[str, Any] | None) -> dict[str, str]:
    if bound is None:
        return {"bound": "not measured; `unmask evaluate` measures it"}
    certificate, draws = bound["certificate"], bound["draws"]
    bits = signed(certificate, with_error(bound["bits_per_byte"], bound["bits_per_byte_error"]))
    nats = signed(certificate, with_error(bound["nats"], bound["error"]))
    about = (
        f"{bound['tokens']:,} tokens, packing {bound['packing']}, {draws} draw{'s' * (draws > 1)}"
    )
    return {f"bound on {bound['data']}": f"{bits} bits per byte, {nats} nats per token ({about})"}


def _texts(row: dict[str, Any]) -> dict[str, str]:
    """One row of the quality table: the settings of the texts and their measurements."""
    real = row["steps"] is None and row["calls"] is None
    made = f"{row['n']} real texts" if real else f"{row['n']} texts by {row['sampler']}"
    if row["steps"] is not None:
        made += f", {row['steps']} steps"
    if row["temperature"] is not None:
        made += f", temperature {row['temperature']:g}"
    perplexity = signed(row["certificate"], f"{row['perplexity']:.1f}")
    bits = signed(row["certificate"], f"{row['bits_per_byte']:.3f}")
    value = (
        f"gen-PPL {perplexity} per token, {bits} bits per byte (judge: {row['judge']}); "
        f"entropy {row['entropy']:.3f} nats"
    )
    return {made: value}


def _spelled_defaults(defaults: Mapping[str, Any]) -> str:
    spelled = ", ".join(f"{name} {value}" for name, value in defaults.items())
    return spelled or "the model's length, one token per step"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or "> (nothing)"

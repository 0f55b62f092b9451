"""The card of a model on the hub: what it is, what it read, how good it is, how it is used."""

from collections.abc import Mapping
from typing import Any

from unmask import __version__
from unmask.api.model import Model
from unmask.api.publishing import nameless, published
from unmask.config.run import dump_yaml

FRONT = "---\n"


def page(
    model: Model,
    name: str,
    card: str | Mapping[str, Any] | None = None,
    licence: str | None = None,
) -> str:
    """README.md: a text that was written already, or one of what is known; `unmask card` measures facts."""
    if not isinstance(card, str):
        card = _written(model, name, dict(card or {}), licence)
    elif not card.startswith(FRONT):
        card = _front(model, licence) + card
    return nameless(card, model.config)


def _written(model: Model, name: str, facts: Mapping[str, Any], licence: str | None) -> str:
    licence, config = licence or facts.get("licence"), published(model.config)
    rows = {
        "method, network": f"{model.config.method.name}, {model.config.backbone.name}",
        "parameters": f"{sum(p.numel() for p in model.method.parameters()):,}",
        "tokens": f"{model.tokenizer.vocabulary.size:,} in the vocabulary, rows of {model.length}",
        "data": config.data.trained_on,
        "licence": licence or "not stated",
        "bound": _bound(facts),
        "written by": f"unmask {__version__}",
    }
    table = "\n".join(f"| {key} | {value} |" for key, value in rows.items())
    return f"""{_front(model, licence)}# {name}

{facts.get("about") or "A language model made with unmask."}

| | |
|---|---|
{table}

## Use

```python
import unmask

model = unmask.load("{name}")
print(model.generate(n=1)[0])
```

{_transformers(model, name)}## Training

```yaml
{dump_yaml(config).rstrip()}
```
"""


def _front(model: Model, licence: str | None) -> str:
    """What the hub's search reads."""
    masked = model.method.order == "any"
    lines = ["library_name: unmask", "tags:", "- unmask", f"- {model.config.method.name}"]
    if masked:
        lines += ["- masked-diffusion", "pipeline_tag: fill-mask"]
    if licence:
        lines.append(f"license: {licence!r}")
    return FRONT + "\n".join(lines) + "\n" + FRONT


def _transformers(model: Model, name: str) -> str:
    if model.method.order != "any":
        return ""
    return f"""```python
import unmask  # registers the class with transformers
from transformers import AutoModelForMaskedLM, AutoTokenizer

model = AutoModelForMaskedLM.from_pretrained("{name}")
tokenizer = AutoTokenizer.from_pretrained("{name}")
```

"""


def _bound(facts: Mapping[str, Any]) -> str:
    found = facts.get("bound")
    if not isinstance(found, Mapping):
        return "not measured: `unmask evaluate` does"
    sign = "" if found.get("certificate") == "exact" else "≤ "
    return (
        f"{sign}{found['nats']:.4f} nats per token, {sign}{found['bits_per_byte']:.4f} bits per byte "
        f"on {found['data']}"
    )

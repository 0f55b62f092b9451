"""Loading a model: what a run made, an exported folder, a shipped name, a name or folder of the hub."""

from importlib import import_module
from pathlib import Path

from unmask import shipped
from unmask.api.build import restored, within
from unmask.api.model import Model
from unmask.api.saving import read_model
from unmask.config.run import load_recipe, resolve
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError
from unmask.files.hub import hub_name
from unmask.runtime.device import PRECISIONS, resolve_device, resolve_precision
from unmask.training.checkpoints.checkpoint import run_weights


def load(
    path: str | Path,
    device: str = "auto",
    precision: str = "fp32",
    compile: bool = False,
    revision: str | None = None,
) -> Model:
    """The model in a run folder or an exported folder, or one that ships with the package, by name.

    A folder in the layout of the Hugging Face hub, or a model there by its name ("owner/name", or
    "hf:name" where there is no owner), is read by our code: see docs/hub.md. `revision` is a branch, a
    tag or a commit there; "owner/name@revision" says the same wherever a model is named.

    `precision` is fp32, bf16, or auto, the fastest one that the device computes natively. bf16
    computes as training in bf16 does, with weights that are cast once. `compile` makes the first
    texts wait, and those after them come sooner on a GPU.
    """
    where = resolve_device(device)
    dtype = PRECISIONS[resolve_precision(precision, where)]
    model = named(path if revision is None else _pinned(path, revision))
    model.method.to(where).serve(dtype, compile)
    return model


def named(path: str | Path) -> Model:
    """The model of that name: a folder, a shipped one, or one of the hub."""
    if hub_name(path) is not None:
        return _foreign("fetch", path)
    return _load(shipped.locate(path), path)


def _pinned(path: str | Path, revision: str) -> str:
    """A name on the hub with its revision."""
    name = hub_name(path)
    if name is None:
        raise UnmaskError(f"{str(path)!r} is no name of the hub, and only those have a revision")
    if "@" in name:
        raise UnmaskError(f"{name!r} names a revision already: leave {revision!r} out")
    pinned = f"hf:{name}@{revision}"
    if hub_name(pinned) is None:
        raise UnmaskError(f"{revision!r} is no revision: give a branch, a tag or a commit")
    return pinned


def _foreign(reader: str, source: str | Path) -> Model:
    """A model in somebody else's layout; its readers stand above this layer, and few models need them."""
    model: Model = getattr(import_module("unmask.hub.reading"), reader)(source)
    return model


def _load(folder: Path, path: str | Path) -> Model:
    if (folder / "model.json").exists():
        return _load_exported(folder)
    if (folder / "config.json").exists():
        return _foreign("read_folder", folder)
    if not (folder / "config.yaml").exists():
        raise UnmaskError(f"{str(path)!r} holds no model: neither model.json nor config.yaml")
    if (folder / "model").is_dir():
        return _load_exported(within(folder, "model"))
    config = resolve(load_recipe(str(within(folder, "config.yaml"))))
    tokenizer = load_tokenizer(within(folder, "tokenizer"))
    method = restored(config, tokenizer.vocabulary, run_weights(folder, print), folder)
    return Model(method, tokenizer, config)


def _load_exported(folder: Path) -> Model:
    return Model(*read_model(folder))

"""The formats of unmask: exported model folders and run folders."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from unmask.bundle import Bundle
from unmask.config.run_config import RunConfig, from_dict, load_recipe, resolve, to_dict
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.errors import UnmaskError, unknown
from unmask.extension import attachments
from unmask.files.rounding import INTEGERS, expand, quantize
from unmask.files.storage import MANIFEST, Damaged, atomic_folder, read_json, verify, write_json
from unmask.files.tensors import read_tensors, write_weights
from unmask.files.untrusted import within
from unmask.formats.format import FORMATS, Format, ReadFormat
from unmask.formats.weights import in_dtype, restored, without_tied_head
from unmask.generation.sampling_params import checked_defaults
from unmask.methods.method import Method
from unmask.runtime.device import PRECISIONS
from unmask.training.checkpoints.checkpoint import run_weights
from unmask.training.lora import merged
from unmask.vocabulary import Vocabulary

STORED = (*PRECISIONS, *INTEGERS)  # precisions of stored weights
_FILES = {MANIFEST, "model.json", "model.safetensors", "tokenizer"}
_CARD = {"README.md", "card.json"}


def write_folder(
    bundle: Bundle,
    folder: str | Path,
    precision: str = "fp32",
    products: Mapping[str, Tensor] | None = None,
) -> None:
    """Writes a folder that `read_folder` reads. It replaces a folder,
    whose files `check_target` looks at.

    bf16 rounds the weights and halves the size. int8 stores matrices in a quarter of the size, and int4
    in an eighth (`quantize`, with `products`). An attachment must be trained for this model. Its file
    then belongs to the weights as they are stored.
    """
    target = Path(folder)
    if precision not in STORED:
        raise unknown("precision", precision, STORED)
    for name, part in bundle.attachments.items():
        bundle.check_attachment(name, part.digest)
    content = {"format": 1, "precision": precision, "config": to_dict(bundle.config)}
    if bundle.defaults:
        content["defaults"] = checked_defaults(bundle.defaults)
    held = in_dtype(bundle.method.state_dict(), torch.float32, torch.bfloat16)
    weights = without_tied_head(bundle.config, held)
    if precision in INTEGERS:
        stored = quantize(weights, precision, products)
    else:
        stored = in_dtype(weights, PRECISIONS[precision])
    with atomic_folder(target) as new:
        write_weights(new, stored)
        write_json(new / "model.json", content)
        bundle.tokenizer.save(new / "tokenizer")
        if bundle.attachments:
            method = _method(bundle.config, bundle.tokenizer.vocabulary, stored, precision, target)
            digest = replace(bundle, method=method).digest
            for name, part in bundle.attachments.items():
                part.save(new / attachments()[name].file, digest)


def read_folder(folder: Path) -> Bundle:
    """The bundle that `write_folder` wrote, with weights in fp32."""
    verify(folder, "model.json", "model.safetensors", others=True)
    try:
        content = read_json(folder / "model.json")
        config = from_dict(content["config"])
        precision = content.get("precision", "fp32")
        defaults = checked_defaults(content.get("defaults", {}))
        if precision not in STORED:
            raise ValueError(precision)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Damaged(f"{folder} is damaged: model.json cannot be read") from None
    tokenizer = load_tokenizer(within(folder, "tokenizer"))
    where, stored = folder / "model.safetensors", read_tensors(folder)
    method = _method(config, tokenizer.vocabulary, stored, precision, where)
    bundle = Bundle(method, tokenizer, config, defaults)
    listed = read_json(folder / MANIFEST)  # any other file of the name is no part of the model
    found = {
        name: kind.type.load(folder / kind.file)
        for name, kind in attachments().items()
        if kind.file in listed
    }
    for name, part in found.items():
        bundle.check_attachment(name, part.digest)
    return replace(bundle, attachments=found)


def _method(
    config: RunConfig,
    vocabulary: Vocabulary,
    stored: Mapping[str, Tensor],
    precision: str,
    where: Path,
) -> Method:
    """The method with stored weights, in fp32."""
    expanded = precision in INTEGERS  # in memory of their own, which the network takes
    if expanded:
        stored, precision = expand(stored, where), "fp32"
    return restored(config, vocabulary, stored, where, PRECISIONS[precision], taken=expanded)


@FORMATS.register("unmask")
class NativeFormat(Format):
    """A folder of `unmask export`: safetensors, JSON, the tokenizer and a manifest of hashes."""

    @classmethod
    def matches(cls, path: Path) -> bool:
        """True if there is a model.json."""
        return (path / "model.json").exists()

    @classmethod
    def read(cls, path: Path) -> Bundle:
        """The model, after a check against the manifest."""
        return read_folder(path)

    @classmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Writes the folder in fp32."""
        cls.check_target(folder)
        write_folder(bundle, folder)

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Raises an error if a folder holds files that the model would not replace,
        such as a card.
        """
        super().check_target(folder)
        names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
        known = {*_FILES, *(kind.file for kind in attachments().values())}
        if others := sorted(names - known - _CARD):
            raise UnmaskError(
                f"{folder} already exists and holds {others[0]!r}, which is no part of a model: "
                "give another folder"
            )
        if card := sorted(names & _CARD):
            raise UnmaskError(
                f"{folder} has a card of its weights: delete {' and '.join(card)}, "
                "or give another folder"
            )


@FORMATS.register("run")
class RunFormat(ReadFormat):
    """A run folder of `unmask train`: its exported model, or its best weights so far."""

    @classmethod
    def matches(cls, path: Path) -> bool:
        """True if there is a config.yaml, and neither model.json nor config.json."""
        others = ("model.json", "config.json")
        return (path / "config.yaml").exists() and not any((path / n).exists() for n in others)

    @classmethod
    def read(cls, path: Path) -> Bundle:
        """The exported model, or the model of the best checkpoint."""
        if (path / "model").is_dir():
            return read_folder(within(path, "model"))
        config = resolve(load_recipe(str(within(path, "config.yaml"))))
        tokenizer = load_tokenizer(within(path, "tokenizer"))
        weights = merged(run_weights(path, print), config.lora)
        method = restored(config, tokenizer.vocabulary, weights, path)
        return Bundle(method, tokenizer, config)

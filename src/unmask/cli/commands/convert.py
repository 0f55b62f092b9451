"""unmask convert: a checkpoint of others as a model of ours."""

import os
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands
from unmask.errors import UnmaskError


def add(commands: Commands) -> None:
    summary = "turn a checkpoint of others into a model of ours, without running what is in it"
    parser = commands.add_parser("convert", help=summary, description=summary)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a Lightning checkpoint, a folder in the hub's layout, or owner/name on the hub",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write the model")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="a folder or a hub name; else what lies beside the weights",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="the last weights of a Lightning checkpoint, not the averages",
    )
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="write it in the layout of the Hugging Face hub, which transformers reads",
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    check_target(args.folder, args.pretrained)
    from unmask.hub.reading import read

    model = read(args.source, args.tokenizer, averaged=not args.raw)
    if args.pretrained:
        model.save_pretrained(args.folder)
    else:
        model.save(args.folder)
    method, backbone = model.config.method.name, model.config.backbone.name
    parameters = sum(p.numel() for p in model.method.parameters())
    print(
        f"{args.folder} is ready: {method}, {backbone}, {parameters / 1e6:.1f}M parameters, "
        f"rows of {model.length} tokens"
    )


def check_target(folder: Path, pretrained: bool) -> None:
    """Before gigabytes are read: a folder that a model can be written to, in the layout that is wanted."""
    parents = folder.resolve().parents
    parent = next((parent for parent in parents if parent.exists()), folder)
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UnmaskError(
            f"{folder} cannot be written: {parent} is no folder that you may write to"
        )
    if folder.exists() and not _replaceable(folder, pretrained):
        raise UnmaskError(f"{folder} is there already and is no model of ours: give another folder")
    if pretrained:
        from unmask.imports import extra

        extra("huggingface_hub", "--pretrained", "hub")


def _replaceable(folder: Path, pretrained: bool) -> bool:
    """Whether a folder is a model in that layout; writing it looks closer."""
    if not pretrained:
        return (folder / "model.json").is_file()
    config = folder / "config.json"
    ours = config.is_file() and '"unmask"' in config.read_text("utf-8", "replace")
    return ours or (folder.is_dir() and not any(folder.iterdir()))

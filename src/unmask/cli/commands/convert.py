"""unmask convert and export: model folders from checkpoints of others and from runs."""

import argparse
import os
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands, Parser, given
from unmask.errors import UnmaskError
from unmask.files.storage import check_place

OWN, HUB = "unmask", "huggingface"  # formats that have options of their own


def add(commands: Commands) -> None:
    _add_export(commands)
    _add_convert(commands)


def _add_export(commands: Commands) -> None:
    summary = "write a model without its training state to a folder of its own"
    parser = commands.add_parser("export", help=summary, description=summary)
    parser.add_argument("model", metavar="MODEL", help="a run, an exported or a shipped model")
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="where to write it")
    parser.add_argument(
        "--precision",
        default=argparse.SUPPRESS,
        metavar="TYPE",
        help="of the weights in the file: fp32, or bf16, half as large",
    )
    parser.add_argument(
        "--default",
        action="append",
        default=argparse.SUPPRESS,
        metavar="NAME=VALUE",
        help="how it writes unless told otherwise, as length=200 or steps=32; repeatable",
    )
    _add_format(parser)
    parser.add_argument(
        "--onnx", type=Path, metavar="FILE", help="the network as an ONNX file, for onnxruntime"
    )
    parser.set_defaults(execute=export)


def _add_convert(commands: Commands) -> None:
    summary = "turn a checkpoint of others into a model of ours, without running what is in it"
    parser = commands.add_parser("convert", help=summary, description=summary)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a Lightning checkpoint, a folder of any format, or owner/name on the hub",
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
    _add_format(parser)
    parser.set_defaults(execute=convert)


def _add_format(parser: Parser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--format",
        default=OWN,
        metavar="NAME",
        help=f"the layout to write ('unmask formats' lists them); {OWN} unless given",
    )
    choice.add_argument(
        "--pretrained",
        dest="format",
        action="store_const",
        const=HUB,
        help=f"short for --format {HUB}, which transformers reads",
    )


def export(args: Namespace) -> None:
    options = given(args, "precision")
    if hasattr(args, "default"):
        options["defaults"] = dict(map(_pair, args.default))
    if args.folder is None and args.onnx is None:
        raise UnmaskError("say where to write it: a folder, or --onnx FILE")
    if (args.format != OWN or args.folder is None) and options:
        raise UnmaskError("--precision and --default go with a folder of our own layout")
    if args.format != OWN and args.folder is None:
        raise UnmaskError("a format needs a folder to write to")
    if args.onnx is not None:
        check_place(args.onnx)
    if args.folder is not None:
        _check_target(args.folder, args.format)
    from unmask.formats.format import FORMATS
    from unmask.model import load

    model = load(args.model)
    if args.onnx is not None:
        from unmask.integrations import onnx

        onnx.export(model, args.onnx)
        print(f"{args.onnx} is ready for onnxruntime")
    if args.folder is None:
        return
    if args.format == OWN:
        model.save(args.folder, **options)
    elif args.format == HUB:
        model.save_pretrained(args.folder, card=_card(Path(args.model)))
    else:
        FORMATS[args.format].write(model, args.folder)
    print(f"{args.folder} is ready: unmask generate {args.folder}")


def convert(args: Namespace) -> None:
    _check_target(args.folder, args.format)
    from unmask.formats.format import FORMATS
    from unmask.formats.read import read

    model = read(args.source, args.tokenizer, averaged=not args.raw)
    FORMATS[args.format].write(model, args.folder)
    method, backbone = model.config.method.name, model.config.backbone.name
    parameters = sum(p.numel() for p in model.method.parameters())
    print(
        f"{args.folder} is ready: {method}, {backbone}, {parameters / 1e6:.1f}M parameters, "
        f"rows of {model.length} tokens"
    )


def _check_target(folder: Path, layout: str) -> None:
    """Raises an error, before gigabytes are read, if the model cannot be written there in that layout."""
    from unmask.formats.format import FORMATS

    wanted = FORMATS[layout]
    parents = folder.resolve().parents
    parent = next((parent for parent in parents if parent.exists()), folder)
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UnmaskError(
            f"{folder} cannot be written: {parent} is no folder that you may write to"
        )
    wanted.check_target(folder)


def _card(model: Path) -> str | None:
    """The card that `unmask card` has written beside a model."""
    card = model / "README.md"
    return card.read_text(encoding="utf-8") if card.is_file() else None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UnmaskError(f"--default takes NAME=VALUE such as steps=32, not {text!r}")
    return name, value

"""unmask export: a run's EMA weights as a folder that `unmask.load` reads, for transformers, or as ONNX."""

import argparse
from argparse import Namespace
from pathlib import Path

from unmask.cli.commands.convert import check_target
from unmask.cli.parser import Commands, check_place, given
from unmask.errors import UnmaskError


def add(commands: Commands) -> None:
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
    parser.add_argument(
        "--pretrained",
        action="store_true",
        help="in the layout of the Hugging Face hub, which transformers reads",
    )
    parser.add_argument(
        "--onnx", type=Path, metavar="FILE", help="the network as an ONNX file, for onnxruntime"
    )
    parser.set_defaults(execute=execute)


def execute(args: Namespace) -> None:
    options = given(args, "precision")
    if hasattr(args, "default"):
        options["defaults"] = dict(map(_pair, args.default))
    if args.folder is None and args.onnx is None:
        raise UnmaskError("say where to write it: a folder, or --onnx FILE")
    if (args.pretrained or args.folder is None) and options:
        raise UnmaskError("--precision and --default go with a folder of our own layout")
    if args.pretrained and args.folder is None:
        raise UnmaskError("--pretrained needs a folder to write to")
    if args.onnx is not None:
        check_place(args.onnx)
    if args.folder is not None:
        check_target(args.folder, args.pretrained)
    from unmask import api

    model = api.load(args.model)
    if args.onnx is not None:
        from unmask.hub import onnx

        onnx.export(model, args.onnx)
        print(f"{args.onnx} is ready for onnxruntime")
    if args.folder is None:
        return
    if args.pretrained:
        model.save_pretrained(args.folder, card=_card(Path(args.model)))
    else:
        model.save(args.folder, **options)
    print(f"{args.folder} is ready: unmask generate {args.folder}")


def _card(model: Path) -> str | None:
    """The card that `unmask card` has written beside a model."""
    card = model / "README.md"
    return card.read_text(encoding="utf-8") if card.is_file() else None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UnmaskError(f"--default takes NAME=VALUE such as steps=32, not {text!r}")
    return name, value

"""unmask export and convert: model folders from runs and from checkpoints of other libraries."""

import argparse
import os
from argparse import Namespace
from pathlib import Path

from unmask.cli.parser import Commands, Parser, add_examples, given
from unmask.errors import UnmaskError
from unmask.extension import attachments
from unmask.files.storage import check_place

GROUP = "serve and share"

OWN, HUB = "unmask", "huggingface"  # formats that have options of their own


def add(commands: Commands) -> None:
    _add_export(commands)
    _add_convert(commands)


def _add_export(commands: Commands) -> None:
    summary = "write a model without its training state to a folder"
    parser = commands.add_parser("export", help=summary, description=summary)
    parser.add_argument("model", metavar="MODEL", help="run folder, exported or shipped model")
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", help="folder to write")
    parser.add_argument(
        "--precision",
        default=argparse.SUPPRESS,
        metavar="TYPE",
        help="precision of the stored weights: fp32, bf16 for half the size, int8 for a quarter, or int4 for "
        "a seventh (fp32)",
    )
    parser.add_argument(
        "--calibration",
        default=argparse.SUPPRESS,
        metavar="SOURCE",
        help="text for int4: its first 64 rows are read, and the rounding minimises the error of the "
        "layers' outputs on them",
    )
    parser.add_argument(
        "--default",
        action="append",
        default=argparse.SUPPRESS,
        metavar="NAME=VALUE",
        help="default of a sampling option of the model, such as length=200 or steps=32; repeatable",
    )
    for name, kind in attachments().items():
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=Path,
            default=argparse.SUPPRESS,
            metavar="FILE",
            help=kind.stored,
        )
    _add_format(parser)
    parser.add_argument(
        "--onnx",
        type=Path,
        metavar="FILE",
        help="ONNX file to write the network to, for onnxruntime",
    )
    add_examples(
        parser,
        "unmask export runs/demo exported --precision bf16 --default steps=32",
        "unmask export stories small --precision int8",
        "unmask export runs/demo smaller --precision int4 --calibration notes.txt",
        "unmask export runs/demo --onnx demo.onnx",
    )
    parser.set_defaults(execute=export)


def _add_convert(commands: Commands) -> None:
    summary = "convert a checkpoint of another library to a model folder, without running its code"
    parser = commands.add_parser("convert", help=summary, description=summary)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="Lightning checkpoint, folder of any format, or owner/name on the hub",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder to write the model to")
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="folder or hub name of the tokenizer; by default the one beside the weights",
    )
    parser.add_argument(
        "--raw",
        action="store_true",
        help="take the last weights of a Lightning checkpoint instead of the EMA weights",
    )
    _add_format(parser)
    add_examples(
        parser,
        "unmask convert kuleshov-group/mdlm-owt mdlm",
        "unmask convert last.ckpt mdlm --tokenizer gpt2 --raw",
    )
    parser.set_defaults(execute=convert)


def _add_format(parser: Parser) -> None:
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--format",
        default=OWN,
        metavar="NAME",
        help=f"format of the folder, as in 'unmask list formats' ({OWN})",
    )
    choice.add_argument(
        "--pretrained",
        dest="format",
        action="store_const",
        const=HUB,
        help=f"short for --format {HUB}, the format of transformers",
    )


def export(args: Namespace) -> None:
    options = given(args, "precision", "calibration", *attachments())
    if hasattr(args, "default"):
        options["defaults"] = dict(map(_pair, args.default))
    if args.folder is None and args.onnx is None:
        raise UnmaskError("the export has no target: give FOLDER or --onnx FILE")
    if (args.format != OWN or args.folder is None) and options:
        *flags, last = ("precision", "calibration", "default", *attachments())
        named = f"--{', --'.join(flags)} and --{last}".replace("_", "-")
        raise UnmaskError(f"{named} are for a folder of format {OWN}: leave them out")
    if args.format != OWN and args.folder is None:
        raise UnmaskError(f"--format {args.format} has no folder to write to: give FOLDER")
    if args.onnx is not None:
        check_place(args.onnx)
    if args.folder is not None:
        _check_target(args.folder, args.format)
    from unmask.formats.format import FORMATS
    from unmask.model import load

    parts = {name: options.pop(name) for name in attachments() if name in options}
    if parts:
        loaded = {name: attachments()[name].type.load(path) for name, path in parts.items()}
        options["attachments"] = loaded
    model = load(args.model)
    if args.onnx is not None:
        from unmask.integrations import onnx

        onnx.export(model, args.onnx)
        print(f"wrote {args.onnx} for onnxruntime")
    if args.folder is None:
        return
    if args.format == OWN:
        model.save(args.folder, **options)
    elif args.format == HUB:
        model.save_pretrained(args.folder, card=_card(Path(args.model)))
    else:
        FORMATS[args.format].write(model, args.folder)
    print(f"wrote {args.folder}; next: unmask generate {args.folder}")


def convert(args: Namespace) -> None:
    _check_target(args.folder, args.format)
    from unmask.formats.format import FORMATS
    from unmask.formats.read import read

    model = read(args.source, args.tokenizer, averaged=not args.raw)
    FORMATS[args.format].write(model, args.folder)
    method, backbone = model.config.method.name, model.config.backbone.name
    parameters = sum(p.numel() for p in model.method.parameters())
    print(
        f"wrote {args.folder}: {method}, {backbone}, {parameters / 1e6:.1f}M parameters, "
        f"rows of {model.length} tokens"
    )


def _check_target(folder: Path, name: str) -> None:
    """Raises an error, before any weights are read,
    if the folder cannot be written in format `name`.
    """
    from unmask.formats.format import FORMATS

    target = FORMATS[name]
    parents = folder.resolve().parents
    parent = next((parent for parent in parents if parent.exists()), folder)
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise UnmaskError(
            f"{folder} cannot be written: {parent} is no writable folder; give another"
        )
    target.check_target(folder)


def _card(model: Path) -> str | None:
    """The model card in a model's folder, or None."""
    card = model / "README.md"
    return card.read_text(encoding="utf-8") if card.is_file() else None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UnmaskError(f"--default takes NAME=VALUE such as steps=32, not {text!r}")
    return name, value

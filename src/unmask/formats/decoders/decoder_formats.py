"""The formats of decoders: folders in the layout of transformers or of a family, and GGUF files."""

import tempfile
from pathlib import Path

from unmask.bundle import Bundle
from unmask.data.tokenizers.kinds import load_tokenizer
from unmask.data.tokenizers.tokenizer import Tokenizer
from unmask.files.untrusted import refusing
from unmask.formats.decoders.decoder_layout import LAYOUTS
from unmask.formats.decoders.gguf_file import GGUFFile
from unmask.formats.decoders.gguf_tokenizer import gguf_tokenizer
from unmask.formats.decoders.read_decoder import read_decoder
from unmask.formats.decoders.write_decoder import write_decoder
from unmask.formats.foreign import ForeignCheckpoint, Into
from unmask.formats.foreign_format import (
    ForeignFormat,
    build_bundle,
    check_room,
    find_tokenizer,
    fitted_tokenizer,
)
from unmask.formats.format import FORMATS, ReadFormat


@FORMATS.register("decoder")
class DecoderFormat(ForeignFormat):
    """Llama, Mistral, Qwen2, Qwen3, LLaDA, LLaDA2, Dream, SDAR and others, in their own layouts."""

    model_types = tuple(LAYOUTS)
    placed = True
    parts = staticmethod(read_decoder)

    @classmethod
    def write(cls, bundle: Bundle, folder: Path) -> None:
        """Writes the folder in the layout of the first family that fits."""
        cls.check_target(folder)
        write_decoder(bundle, folder)

    @classmethod
    def check_target(cls, folder: Path) -> None:
        """Raises an error if the folder holds anything but a decoder."""
        super(ReadFormat, cls).check_target(folder)


@FORMATS.register("gguf")
class GGUFFormat(ForeignFormat):
    """A GGUF file of Llama, Mistral, Qwen2 or Qwen3, with its tokenizer; its weights are dequantised."""

    placed = True
    parts = staticmethod(read_decoder)

    @classmethod
    def matches(cls, path: Path) -> bool:
        """True if the path is a file whose name ends in .gguf."""
        return path.suffix == ".gguf" and path.is_file()

    @classmethod
    def read(
        cls,
        path: Path,
        tokenizer: str | None = None,
        averaged: bool = True,
        into: Into | None = None,
    ) -> Bundle:
        """The model as a bundle, with the tokenizer of the file if none is given."""
        file = GGUFFile(path)
        with refusing(f"{path} cannot be read"):
            check_room(file.shapes(), into, str(path))
            parts = read_decoder(file.settings(), file, str(path), into)
        found = _tokenizer(file) if tokenizer is None else find_tokenizer(path, parts, tokenizer)
        return build_bundle(parts, found, str(path))

    @classmethod
    def outline(cls, path: Path) -> tuple[ForeignCheckpoint, Tokenizer]:
        """The parts of the model with weights on the meta device, and its tokenizer."""
        file = GGUFFile(path)
        with refusing(f"{path} cannot be read"):
            parts = read_decoder(file.settings(), file.shapes(), str(path))
        return parts, fitted_tokenizer(parts, _tokenizer(file), str(path))


def _tokenizer(file: GGUFFile) -> Tokenizer:
    """The tokenizer in a file."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in gguf_tokenizer(file).items():
            (Path(folder) / name).write_text(content, encoding="utf-8")
        return load_tokenizer(folder)

"""Formats of models on disk: unmask folders and runs, Hugging Face, MDLM, SEDD, GPT-2, Llama,
Mistral, Qwen."""

from unmask.formats.decoders.decoder_formats import DecoderFormat, GGUFFormat
from unmask.formats.decoders.gpt2 import GPT2Format
from unmask.formats.format import FORMATS, Format, ReadFormat
from unmask.formats.huggingface import HuggingFaceFormat
from unmask.formats.mdlm_sedd import LightningFormat, MDLMFormat, SEDDFormat
from unmask.formats.native import NativeFormat, RunFormat

__all__ = [
    "FORMATS",
    "DecoderFormat",
    "Format",
    "GGUFFormat",
    "GPT2Format",
    "HuggingFaceFormat",
    "LightningFormat",
    "MDLMFormat",
    "NativeFormat",
    "ReadFormat",
    "RunFormat",
    "SEDDFormat",
]

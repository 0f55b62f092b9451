"""Formats of models on disk: unmask folders and runs, Hugging Face, MDLM, SEDD, BERT, GPT-2."""

from unmask.formats.bert_gpt2 import BertFormat, GPT2Format
from unmask.formats.format import FORMATS, Format, ReadFormat
from unmask.formats.huggingface import HuggingFaceFormat
from unmask.formats.mdlm_sedd import LightningFormat, MDLMFormat, SEDDFormat
from unmask.formats.native import NativeFormat, RunFormat

__all__ = [
    "FORMATS",
    "BertFormat",
    "Format",
    "GPT2Format",
    "HuggingFaceFormat",
    "LightningFormat",
    "MDLMFormat",
    "NativeFormat",
    "ReadFormat",
    "RunFormat",
    "SEDDFormat",
]

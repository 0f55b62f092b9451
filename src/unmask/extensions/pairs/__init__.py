"""Pairs: a network with an encoder for the source, and translations scored by BLEU."""

from unmask.extension import Extension

EXTENSION = Extension(
    __name__,
    {
        "backbone": {"encoder_decoder": ".backbones.encoder_decoder"},
        "suite": {"translation": ".translation"},
    },
)

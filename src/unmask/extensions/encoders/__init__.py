"""Encoders in the layout of transformers: BERT, RoBERTa, MPNet and DeBERTa, read and written."""

from unmask.extension import Extension

EXTENSION = Extension(
    __name__,
    {
        "backbone": {"deberta": ".relative_encoders", "mpnet": ".relative_encoders"},
        "format": {"bert": ".read_encoder"},
    },
)

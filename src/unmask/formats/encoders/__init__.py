"""Encoders in the layout of transformers: BERT, RoBERTa, MPNet and DeBERTa."""

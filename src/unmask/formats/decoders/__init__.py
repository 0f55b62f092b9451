"""Decoders of transformers: autoregressive models, and the diffusion models that are built on them."""

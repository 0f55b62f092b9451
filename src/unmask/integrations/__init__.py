"""Interfaces of other libraries: transformers, lm-evaluation-harness, ONNX."""

"""Interfaces of other libraries: transformers, ONNX."""

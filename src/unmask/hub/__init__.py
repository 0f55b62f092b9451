"""At home in the ecosystem: checkpoints of others read, models written for transformers and ONNX."""

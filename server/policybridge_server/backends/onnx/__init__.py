"""Backend `onnx`: ONNX Runtime."""

"""The operators that have a portable form, by their names in ONNX."""

"""The operators that have a form in C, by their names in ONNX."""

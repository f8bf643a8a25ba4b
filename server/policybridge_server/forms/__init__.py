"""Portable forms of versions: what a client can evaluate by itself, made of the version's ONNX model.

`form_of` and `forms_of` are all that the rest of the server needs.
"""

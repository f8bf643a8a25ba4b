"""The Open Inference Protocol: messages and stubs, generated from the .proto file beside them."""

"""The protocol of PolicyBridge: stubs made from the .proto files beside them."""

"""Clients of the policy server: model runners, and the host of an unmodified LLVM."""

from policybridge_client.connection import ClientSession, Connection, connect
from policybridge_client.runner import ModelRunner, open_runner
from policybridge_serdes import ElementType, Exploration, PolicyBridgeError, TensorSpec

__all__ = [
    "ClientSession",
    "Connection",
    "ElementType",
    "Exploration",
    "ModelRunner",
    "PolicyBridgeError",
    "TensorSpec",
    "connect",
    "open_runner",
]

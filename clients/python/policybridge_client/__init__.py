"""Clients of the policy server: model runners, and the host of an unmodified LLVM."""

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_client.credentials import Credentials
from policybridge_client.runner import ModelRunner, open_runner
from policybridge_core.version import version
from policybridge_serdes import (
    ElementType,
    Exploration,
    Outcome,
    PolicyBridgeError,
    PolicyReference,
    PolicyVersion,
    SessionOptions,
    Signature,
    TensorSpec,
)


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ClientSession",
    "Connection",
    "Credentials",
    "ElementType",
    "Exploration",
    "ModelRunner",
    "Outcome",
    "PolicyBridgeError",
    "PolicyReference",
    "PolicyVersion",
    "SessionOptions",
    "Signature",
    "TensorSpec",
    "connect",
    "open_runner",
]

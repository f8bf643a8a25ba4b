"""The public names of the package, which imports them when one of them is asked for."""

from policybridge_client.connection import connect
from policybridge_client.contract import ClientSession, Connection
from policybridge_client.credentials import Credentials
from policybridge_client.runner import ModelRunner, open_runner
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

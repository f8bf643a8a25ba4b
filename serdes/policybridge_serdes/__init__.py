"""Tensors, their layouts and their SerDes: what every side of PolicyBridge shares."""

from policybridge_core.errors import PolicyBridgeError, Status
from policybridge_core.session import Exploration, Outcome, PolicyReference, PolicyVersion, SessionOptions
from policybridge_serdes.contract import SERDES, Codec, SerDes, load_serdes
from policybridge_serdes.specs import VARIES, ElementType, Layout, Signature, TensorSpec, Values
from policybridge_serdes.values import join, pack, tensor, unpack, zeros

__all__ = [
    "SERDES",
    "VARIES",
    "Codec",
    "ElementType",
    "Exploration",
    "Layout",
    "Outcome",
    "PolicyBridgeError",
    "PolicyReference",
    "PolicyVersion",
    "SerDes",
    "SessionOptions",
    "Signature",
    "Status",
    "TensorSpec",
    "Values",
    "join",
    "load_serdes",
    "pack",
    "tensor",
    "unpack",
    "zeros",
]

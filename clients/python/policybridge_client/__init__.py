"""Clients of the policy server: model runners, and the host of an unmodified LLVM."""

from typing import TYPE_CHECKING, Any

from policybridge_core.lazy import public_names
from policybridge_core.version import version

if TYPE_CHECKING:
    from policybridge_client.api import *  # noqa: F403

_attribute, __dir__ = public_names(__name__)


def __getattr__(name: str) -> Any:
    return version() if name == "__version__" else _attribute(name)

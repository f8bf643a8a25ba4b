"""Clients of the policy server: model runners, and the host of an unmodified LLVM."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from policybridge_core.version import version

if TYPE_CHECKING:
    from policybridge_client.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return version()
    # Only now: the public names need numpy, whose 100 ms a command that does without them shall not pay.
    api = import_module("policybridge_client.api")
    if name in ("__all__", *api.__all__):
        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *import_module("policybridge_client.api").__all__]

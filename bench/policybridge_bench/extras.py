"""Libraries that only some scenarios need, imported on first use."""

from importlib import import_module
from typing import Any

from policybridge_core.errors import PreconditionError


def library(name: str) -> Any:
    """Import the module called ``name``.

    Raises:
        PreconditionError: it is not installed; the message says how to install it.

    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise PreconditionError(
            f"this needs the Python package {error.name!r}: pip install 'policybridge[bench]'"
        ) from error

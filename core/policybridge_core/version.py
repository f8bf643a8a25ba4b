"""The version of the installed distribution, read only when it is asked for: reading it takes milliseconds."""

from typing import Final

from policybridge_core.installed import find_version

DISTRIBUTIONS: Final = ("policybridge", "policybridge-client")
"""Our distributions; an environment has one of them."""


def version() -> str:
    """Give the version; ``unknown`` in a tree that is not installed."""
    found = (version for find in (find_version, _find_otherwise) for name in DISTRIBUTIONS if (version := find(name)))
    return next(found, "unknown")


def _find_otherwise(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415 - 20 ms that a compilation should not pay
    from importlib.metadata import version as installed  # noqa: PLC0415

    try:
        return installed(name)
    except PackageNotFoundError:
        return None

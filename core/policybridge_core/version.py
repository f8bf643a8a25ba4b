"""The version of the installed distribution, read only when it is asked for: reading it takes milliseconds."""

from typing import Final

DISTRIBUTIONS: Final = ("policybridge", "policybridge-client")
"""Our distributions; an environment has one of them."""


def version() -> str:
    """Give the version; ``unknown`` in a tree that is not installed."""
    from importlib.metadata import PackageNotFoundError  # noqa: PLC0415 - 20 ms that a compilation should not pay
    from importlib.metadata import version as installed  # noqa: PLC0415

    for name in DISTRIBUTIONS:
        try:
            return installed(name)
        except PackageNotFoundError:
            continue
    return "unknown"

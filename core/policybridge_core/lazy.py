"""Packages that import their public names when one of them is asked for.

Some names need numpy, whose 100 ms a command that does without them shall not pay.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def public_names(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Give ``__getattr__`` and ``__dir__`` of a package whose public names its module ``api`` has in ``__all__``."""

    def attribute(name: str) -> Any:
        api = import_module(f"{package}.api")
        if name in ("__all__", *api.__all__):
            return getattr(api, name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return [*vars(import_module(package)), *import_module(f"{package}.api").__all__]

    return attribute, names

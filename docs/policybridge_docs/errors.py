"""The page of the errors, from their classes: the status, the cause and the cure stand in the docstring of each."""

import inspect
from typing import Final

from policybridge_core import errors
from policybridge_docs.markdown import from_rst, table

_HEAD: Final = """# Errors

A failure is never a value: Python raises one of these classes, gRPC ends the call with the status, the Unix socket
sends its number, and C++ and C return it as `Status` and `pb_status`. The message names the fault and the
cure. All classes are in `policybridge_core.errors` and derive from `PolicyBridgeError`, which
`policybridge_client` exports.
"""

_CURE: Final = "Cure: "


def page() -> str:
    """Give the page.

    Raises:
        ValueError: the docstring of a class lacks its cure.

    """
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.PolicyBridgeError) and kind is not errors.PolicyBridgeError
    ]
    kinds.sort(key=lambda kind: (kind.status, kind.__name__))
    rows = [
        (f"[`{kind.__name__}`](#{kind.__name__.lower()})", f"{kind.status:d}", f"`{kind.status.name}`")
        for kind in kinds
    ]
    sections = [line for kind in kinds for line in _section(kind)]
    return "\n".join([_HEAD, *table(("class", "number", "gRPC status"), rows), *sections])


def _section(kind: type[errors.PolicyBridgeError]) -> list[str]:
    paragraphs = [" ".join(each.split()) for each in from_rst(inspect.getdoc(kind) or "").split("\n\n")]
    cures = [each.removeprefix(_CURE) for each in paragraphs if each.startswith(_CURE)]
    if len(cures) != 1:
        raise ValueError(
            f"the docstring of {kind.__name__} has {len(cures)} paragraphs that begin with {_CURE!r}, not 1"
        )
    causes = " ".join(each for each in paragraphs if not each.startswith(_CURE))
    said = f"**Status** `{kind.status.name}` ({kind.status:d})"
    return [f"## {kind.__name__}", "", said, "", f"**Cause** {causes}", "", f"**Cure** {cures[0]}", ""]

"""The trace context of a compilation's build (W3C Trace Context, from the variable TRACEPARENT)."""

import os
from collections.abc import Mapping
from typing import Final

_VARIABLE: Final = "TRACEPARENT"
_LABEL: Final = "traceparent"

_LONGEST: Final = 128
"""Characters; version 00 of the format has 55."""


def with_trace_context(labels: Mapping[str, str]) -> dict[str, str]:
    """Add the build's trace context to a session's labels: a server that traces puts its spans below it."""
    context = os.environ.get(_VARIABLE, "")
    if not context or len(context) > _LONGEST or not (context.isascii() and context.isprintable()):
        return dict(labels)
    return {_LABEL: context, **labels}

"""The pages of the C++ and the C library, from the comments and the declarations of their public headers."""

from collections.abc import Iterator, Sequence
from typing import Final

from policybridge_docs.declarations import entries
from policybridge_docs.links import ROOT
from policybridge_docs.markdown import prose

_CPP: Final = """# The C++ library

Made from the headers. [Asking from your own program](../clients.md#c-and-c) tells how it is built and linked. No
function throws: what can fail gives a `Status` or a `Result`, whose codes are those of the [errors](errors.md).
"""

_C: Final = """# The C library

Made from the headers. [Asking from your own program](../clients.md#c-and-c) tells how it is built and linked; the
statuses are those of the [errors](errors.md).
"""


def cpp_page() -> str:
    """Give the page of the C++ library.

    Raises:
        ValueError: a header declares something without a comment.

    """
    folders = ["clients/cpp/include/policybridge", "clients/cpp/grpc/include/policybridge"]
    return "\n".join([_CPP, *_headers("cpp", [*folders, "clients/cpp/onnx/include/policybridge"])])


def c_page() -> str:
    """Give the page of the C library.

    Raises:
        ValueError: as `cpp_page`.

    """
    return "\n".join([_C, *_headers("c", ["clients/c/include", "clients/c/grpc/include", "clients/c/onnx/include"])])


def _headers(language: str, folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        for file in sorted((ROOT / folder).glob("*.h")):
            lines = list(lines_of(file.read_text(encoding="utf-8"), f"{folder}/{file.name}", language))
            if lines:
                yield from (f"## {file.name}", "", *lines)


def lines_of(header: str, name: str, language: str) -> Iterator[str]:
    """Give the lines of a header's text; ``name`` is for messages.

    Raises:
        ValueError: a declaration has no comment.

    """
    for entry in entries(header):
        if entry.text and not entry.comment:
            raise ValueError(f"{name} declares {entry.name} without a comment above it")
        yield from ([f"### {entry.name}", ""] if entry.text else [])
        yield from prose(entry.comment)
        yield from ([f"```{language}", entry.text, "```", ""] if entry.text else [])

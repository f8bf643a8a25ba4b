"""Readable errors for generated protobuf and gRPC stubs that refuse the installed runtime.

Stubs check at their import that the runtime is not older than their generator. A later installation of another package
may replace the runtime by an older one: ``pip`` only warns.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from typing import Final

from policybridge_core.version import DISTRIBUTIONS

_VERSION: Final = r"(\d+(?:\.\d+)*)"
_GENERATED: Final = re.compile(rf"when loading (\S+): gencode {_VERSION} runtime {_VERSION}")
_GRPC: Final = re.compile(
    rf"installed is at version {_VERSION}.* generated code in (\S+) depends on grpcio>={_VERSION}"
)
_BELOW: Final = re.compile(rf"(?:<=?|==|~=)\s*{_VERSION}")


def stub_mismatch(error: Exception) -> str | None:
    """Name the stubs, the runtime that they need, and the command that installs it; ``None`` for another error."""
    text = str(error)
    if type(error).__module__ == "google.protobuf.runtime_version":
        match = _GENERATED.search(text)
        return None if match is None else _told("protobuf", match[3], f"the stubs of {match[1]}", match[2])
    if isinstance(error, ImportError) and error.name == "google.protobuf" and "runtime_version" in text:
        return _told("protobuf", version("protobuf"), "PolicyBridge's stubs", _floor("protobuf"))
    match = _GRPC.search(text) if isinstance(error, RuntimeError) else None
    return None if match is None else _told("grpcio", match[1], f"the stubs in {match[2]}", match[3])


def _told(package: str, installed: str, stubs: str, needed: str) -> str:
    holders = ", ".join(_holding(package, needed))
    blame = f" {holders} asked for it: give it an environment of its own." if holders else ""
    return (
        f"the installed {package} {installed} does not fit: {stubs} need {needed} or newer. Installing another package "
        f"has replaced it.{blame} Mend it by: pip install '{package}>={needed}'"
    )


def _floor(package: str) -> str:
    """Give the oldest version of ``package`` that our distribution takes."""
    wanted = [line for line in _requirements() if re.match(rf"{package}\b", line)]
    match = re.search(rf">=\s*{_VERSION}", "".join(wanted))
    return "5.27.2" if match is None else match[1]


def _requirements() -> list[str]:
    for name in DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            return requires(name) or []
    return []


def _holding(package: str, needed: str) -> Iterator[str]:
    """Name the installed distributions that exclude the version ``needed`` of ``package``."""
    for distribution in distributions():
        for line in distribution.requires or ():
            wanted = line.partition(";")[0].strip()
            if re.match(rf"{package}\b(?![-.])", wanted) and _is_below(wanted, needed):
                yield f"{distribution.name} {distribution.version} ({wanted})"
                break


def _is_below(wanted: str, needed: str) -> bool:
    tops = [_numbers(match[1]) for match in _BELOW.finditer(wanted)]
    return any(top <= _numbers(needed) for top in tops)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))

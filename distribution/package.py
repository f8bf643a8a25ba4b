"""The packages that a platform needs."""

from dataclasses import dataclass
from pathlib import Path

LICENSE = Path(__file__).parents[1] / "LICENSE"
"""Ours, for all packages."""

MAJORS = ("19", "22")
"""LLVM's, that there are plugins for."""


@dataclass(frozen=True)
class Package:
    """Programs and shared objects that are installed together.

    Attributes:
        components: of CMake, that it has.
        description: one line.
        needs: packages of the same version.

    """

    name: str
    components: tuple[str, ...]
    description: str
    needs: tuple[str, ...] = ()


PACKAGES = (
    Package("policybridge-run", ("run",), "The native launcher of PolicyBridge, and the part for servers by gRPC"),
    *(
        Package(
            f"policybridge-llvm{major}",
            (f"llvm{major}", f"embed{major}"),
            f"Plugins of PolicyBridge for Debian's clang-{major} and opt-{major}",
            ("policybridge-run",),
        )
        for major in MAJORS
    ),
)

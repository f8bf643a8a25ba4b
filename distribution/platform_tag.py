"""For hatchling: the wheel is for platforms with a glibc as new as this machine's or newer."""

import platform
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface[Any]):
    """Sets the wheel's tag."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Set it."""
        major, minor = platform.libc_ver()[1].split(".")[:2]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"

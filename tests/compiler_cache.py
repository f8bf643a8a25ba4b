"""ccache for builds with CMake: of several builds, each compiles the client library with the same options."""

import shutil
from pathlib import Path

from tests.needs import ROOT


def launchers(folder: Path = ROOT / ".cache") -> dict[str, str]:
    """Give CMake's variables, or environment, that compile C and C++ through ccache, kept in ``folder``.

    The builds are plain, static and shared, of the load generator, and of a page of the docs. Without ccache there are
    no variables.
    """
    if shutil.which("ccache") is None:
        return {}
    launcher = f"{shutil.which('env')};CCACHE_DIR={folder / 'ccache'};CCACHE_BASEDIR={folder};ccache"
    return {f"CMAKE_{language}_COMPILER_LAUNCHER": launcher for language in ("C", "CXX")}

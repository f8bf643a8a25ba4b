"""Finding the plugin for a compiler (`docs/plugin.md`)."""

import os
import stat
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_client.llvm.launcher import launchers
from policybridge_client.llvm.versions import UNKNOWN, llvm_version, remembered

VARIABLE: Final = "POLICYBRIDGE_PLUGINS"
"""The environment variable with folders of plugins, separated by colons."""

_PREFIXES: Final = (Path("/usr/local"), Path("/usr"))
_TIMEOUT: Final = 30.0
_LOADS, _LOADS_NOT = 1, 2

_READS_LATE: Final = 22
"""From this version on, clang reads the flags of a plugin after it has loaded the plugin."""


def find_plugin(compiler: CompilerCommand, folder: Path | None = None) -> Path | None:
    """Return the inliner's plugin for a compiler; ``None`` if the compiler loads no plugin.

    The plugin may be in ``folder``, in the folders of `VARIABLE`, where pip installs the wheels of plugins, and where
    CMake installs: ``lib/policybridge`` (and ``lib/ARCHITECTURE/policybridge``) under the prefix of the launcher,
    /usr/local and /usr. Each plugin is tried once with the compiler, and the result is cached: a clang with a
    statically linked LLVM loads none.
    """
    major = llvm_version(compiler.start)
    if compiler.is_zig or compiler.kind is Kind.LLC or not major:
        return None
    files = ((each / f"policybridge-inliner-{major}.so").absolute() for each in plugin_folders(folder))
    return next((plugin for plugin in files if _loads(compiler, plugin)), None)


def loads_early(compiler: CompilerCommand) -> bool:
    """Tell whether clang must also load the plugin as its own; see `CompilerCommand.with_plugin`."""
    return llvm_version(compiler.start) < _READS_LATE


def plugin_folders(folder: Path | None = None) -> Iterator[Path]:
    """Give the folders of plugins, in the order of the search; see `find_plugin`."""
    yield from dict.fromkeys(_folders(folder))


def _folders(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
    yield from (Path(word) for word in os.environ.get(VARIABLE, "").split(":") if word)
    for scheme in (sysconfig.get_default_scheme(), sysconfig.get_preferred_scheme("user")):
        yield Path(sysconfig.get_path("data", scheme)) / "lib" / "policybridge"
    for launcher in launchers():
        file = Path(launcher).resolve()
        yield from (each for each in _installed(file.parent.parent) if _is_trusted(each, file))
    for prefix in _PREFIXES:
        yield from _installed(prefix)


def _installed(prefix: Path) -> Iterator[Path]:
    for libraries in ("lib", "lib64"):
        yield prefix / libraries / "policybridge"
    yield from sorted(prefix.glob("lib/*-linux-gnu*/policybridge"))


def _is_trusted(folder: Path, launcher: Path) -> bool:
    """Tell whether only we, root or the launcher's owner write to a folder: beside one in /tmp/x is /tmp/lib."""
    try:
        about, owner = folder.stat(), launcher.stat().st_uid
    except OSError:
        return False
    return about.st_uid in (os.geteuid(), 0, owner) and not about.st_mode & stat.S_IWOTH


def _loads(compiler: CompilerCommand, plugin: Path) -> bool:
    try:
        about = plugin.stat()
    except OSError:
        return False
    question = f" loads {plugin} {about.st_size} {about.st_mtime_ns}"
    return remembered(compiler.start, question, lambda: _try(compiler, plugin)) == _LOADS


def _try(compiler: CompilerCommand, plugin: Path) -> int:
    try:
        with tempfile.TemporaryDirectory(prefix="policybridge-") as name:
            return _LOADS if _compiles(compiler, plugin, Path(name)) else _LOADS_NOT
    except (OSError, subprocess.TimeoutExpired):
        # This tells nothing about the plugin; try it again the next time.
        return UNKNOWN


def _compiles(compiler: CompilerCommand, plugin: Path, folder: Path) -> bool:
    store = folder / "empty.db"
    store.write_text("policybridge-decisions 1\n")
    source = folder / ("empty.ll" if compiler.kind is Kind.OPT else "empty.c")
    source.touch()
    trial = CompilerCommand(compiler.kind, compiler.start[-1:], _arguments(compiler.kind, source))
    words = trial.with_plugin(str(plugin), [f"-policybridge-decisions={store}"], early=loads_early(compiler))
    environment = {**os.environ, "CCACHE_DISABLE": "1", "TMPDIR": str(folder)}
    tried = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT, check=False, env=environment
    )
    return not tried.returncode


def _arguments(kind: Kind, source: Path) -> tuple[str, ...]:
    if kind is Kind.OPT:
        return ("-passes=default<Oz>", "-disable-output", str(source))
    if kind is Kind.CC1:
        return ("-cc1", "-Oz", "-emit-obj", "-o", "/dev/null", str(source))
    return ("-Oz", "-c", "-o", "/dev/null", str(source))

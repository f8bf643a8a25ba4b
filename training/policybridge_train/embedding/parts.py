"""A plugin's own part, which is the same for all policies: installed with a package, or built from the sources."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_client.llvm.plugins import plugin_folders
from policybridge_core.errors import PreconditionError
from policybridge_core.lacking import lacking
from policybridge_core.version import version
from policybridge_train.embedding.hosts import LLVM, Host
from policybridge_train.embedding.toolchain import Toolchain

_PACKAGES: Final = {"cmake": "cmake", "ninja": "ninja-build"}
_CHECKOUT: Final = Path(__file__).parents[3] / "clients"
_OPTIONS: Final = ("-DPOLICYBRIDGE_GRPC=OFF", "-DPOLICYBRIDGE_ONNX=OFF", "-DPOLICYBRIDGE_LAUNCHER=OFF")
_LIBRARIES: Final = ("policybridge_plugin", "policybridge_internal")
_EXPORTS: Final = "exports.map"
_VERSION: Final = "version"


@dataclass(frozen=True)
class Building:
    """How a plugin is built.

    Attributes:
        toolchain: the compilers.
        growth_limit: how much the policy may add to a module, as a factor of its instructions.
        build: where the plugin's own part is built and kept; absent: a folder of the user's cache.
        sources: the folder ``clients`` of our source tree; absent: that of this checkout.

    """

    toolchain: Toolchain
    growth_limit: float
    build: Path | None = None
    sources: Path | None = None


def installed_parts(building: Building, host: Host, major: str) -> tuple[list[Path], Path] | None:
    """Find the plugin's own part where a package has installed it, unless there are sources; see `built_parts`.

    Raises:
        PreconditionError: there are only those of other versions, whose tables are not those of the policy's C.

    """
    if building.sources or _are_sources(_CHECKOUT, host):
        return None
    others = ""
    for folder in (each / f"embed-{major}" for each in plugin_folders()):
        files = [folder / name for name in (*_names(host, major), _EXPORTS)]
        if all(file.is_file() for file in files):
            of = _version_of(folder)
            if version() in (of, "unknown"):
                return files[:-1], files[-1]
            others = others or f"{folder} is of PolicyBridge {of}, and this is {version()}"
    if others:
        raise PreconditionError(f"{others}: install policybridge-llvm{major} of this version (docs/install.md)")
    return None


def _version_of(folder: Path) -> str:
    file = folder / _VERSION
    return file.read_text().strip() if file.is_file() else "another version"


def built_parts(building: Building, host: Host, major: str) -> tuple[list[Path], Path]:
    """Build the plugin's own part; give its libraries, and the list of the names that it exports."""
    sources = _sources(building.sources, host, major)
    build = building.build or _cache(building.toolchain, sources, host, major)
    libraries = _build_libraries(building.toolchain, sources, build, host, major)
    return libraries, sources / "cpp" / "llvm" / _EXPORTS


def _sources(given: Path | None, host: Host, major: str) -> Path:
    folder = (given or _CHECKOUT).absolute()
    if not _are_sources(folder, host):
        package = f"install policybridge-llvm{major} (docs/install.md), or " if host is LLVM else ""
        cure = f"{package}name the source tree's folder clients by --sources"
        raise PreconditionError(lacking(f"the plugin's sources are not in {folder}; {cure}"))
    return folder


def _are_sources(folder: Path, host: Host) -> bool:
    return (folder / "cpp" / host.sources / "embedded_advisor.cpp").is_file()


def _names(host: Host, major: str) -> list[str]:
    return [f"lib{name}.a" for name in (f"{host.library}-{major}", *_LIBRARIES)]


def _cache(tools: Toolchain, sources: Path, host: Host, major: str) -> Path:
    """Give the folder for these compilers and this content of the sources, so that others are built anew."""
    content = hashlib.sha256(f"{sources} {tools.c} {tools.cxx}".encode())
    for file in sorted((sources / "cpp").rglob("*")):
        if file.suffix in (".cpp", ".h", ".txt", ".map"):
            content.update(file.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "policybridge" / "embed" / f"{host.sources}-{major}-{content.hexdigest()[:16]}"


def _build_libraries(tools: Toolchain, sources: Path, folder: Path, host: Host, major: str) -> list[Path]:
    """Build what does not depend on the policy; a later call finds it built."""
    for tool, package in _PACKAGES.items():
        if shutil.which(tool) is None:
            raise PreconditionError(f"{tool} is not installed (Debian: {package}); the plugin is built with it")
    _check_headers(host, major)
    target = f"{host.library}-{major}"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        if not (folder / "build.ninja").is_file():
            compilers = (f"-DCMAKE_C_COMPILER={tools.c}", f"-DCMAKE_CXX_COMPILER={tools.cxx}")
            where = ["cmake", "-S", str(sources), "-B", str(folder), "-G", "Ninja"]
            tools.run([*where, *compilers, f"-D{host.variable}={major}", *_OPTIONS])
        tools.run(["cmake", "--build", str(folder), "--target", target, *_LIBRARIES])
    return [folder / "lib" / name for name in _names(host, major)]


def _check_headers(host: Host, major: str) -> None:
    header, package = host.header[0], host.header[1].format(major)
    asked = shutil.which(f"llvm-config-{major}")
    if asked is None:
        raise PreconditionError(f"LLVM's headers are not installed (Debian: llvm-{major}-dev)")
    folder = subprocess.run([asked, "--includedir"], capture_output=True, text=True, check=False).stdout.strip()
    if not (Path(folder) / header).is_file():
        raise PreconditionError(f"{header} is not in {folder} (Debian: {package})")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from building in the folder meanwhile."""
    with (folder / ".embed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Triton's backend for ONNX Runtime, built from its public sources against the runtime that all servers use."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from policybridge_bench.processes import run_tool
from tests.peers.peer import RUNTIME, environment, site_packages

GIT: Final = "POLICYBRIDGE_BENCH_GIT"
"""Environment variable: from where repositories are cloned; ``{owner}`` and ``{name}`` in it are replaced."""

_GITHUB: Final = "https://github.com/{owner}/{name}"
_BRANCH: Final = "r24.10"  # of Triton 2.51, which is the wheel's
_REPOSITORIES: Final = {
    "core": ("triton-inference-server", "core", _BRANCH, "include"),
    "common": ("triton-inference-server", "common", _BRANCH, "."),
    "backend": ("triton-inference-server", "backend", _BRANCH, "."),
    "onnxruntime_backend": ("triton-inference-server", "onnxruntime_backend", _BRANCH, "src"),
    "rapidjson": ("Tencent", "rapidjson", "master", "include"),
    # The runtime's C header, in a repository of a few megabytes.
    "headers": ("yalue", "onnxruntime_go", "master", "*.h"),
}
"""Folder: owner, name, branch, and which files of it."""

_SOURCES: Final = (
    "onnxruntime_backend/src/onnxruntime.cc",
    "onnxruntime_backend/src/onnxruntime_loader.cc",
    "onnxruntime_backend/src/onnxruntime_utils.cc",
    *(f"backend/src/backend_{part}.cc" for part in ("common", "input_collector", "memory", "model", "model_instance")),
    "backend/src/backend_output_responder.cc",
    *(f"common/src/{part}.cc" for part in ("async_work_queue", "error", "thread_pool")),
)
_INCLUDES: Final = ("core/include", "backend/include", "common/include", "rapidjson/include", "headers")


def build_backend(cache: Path) -> Path:
    """Build it on first use, and give the folder of Triton's backends.

    Raises:
        PreconditionError: the sources cannot be cloned, or do not build.

    """
    folder = (cache / "triton").absolute()
    made = folder / "backends" / "onnxruntime" / "libtriton_onnxruntime.so"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        for name, (owner, repository, branch, files) in _REPOSITORIES.items():
            _clone(folder / name, owner, repository, branch, files)
        _link(folder, made, _runtime(cache, made.parent), [_compile(folder, source) for source in _SOURCES])
    return made.parents[1]


def _runtime(cache: Path, folder: Path) -> Path:
    packages = site_packages(environment(cache, "onnxruntime", [RUNTIME]))
    (library,) = (packages / "onnxruntime" / "capi").glob("libonnxruntime.so.*.*")
    for name in ("libonnxruntime.so.1", "libonnxruntime.so"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library)
    return library


def _clone(folder: Path, owner: str, name: str, branch: str, files: str) -> None:
    if not folder.exists():
        address = os.environ.get(GIT, _GITHUB).format(owner=owner, name=name)
        run_tool(["git", "clone", "--quiet", "--depth", "1", "--no-checkout", "--branch", branch, address, folder])
        run_tool(["git", "-C", folder, "checkout", "--quiet", "HEAD", "--", files])


def _compile(folder: Path, source: str) -> Path:
    made = folder / f"{Path(source).stem}.o"
    includes = [f"-I{folder / include}" for include in _INCLUDES]
    run_tool(["g++", "-std=c++17", "-O2", "-fPIC", "-w", *includes, "-c", folder / source, "-o", made])
    return made


def _link(folder: Path, made: Path, runtime: Path, objects: Sequence[Path]) -> None:
    script = folder / "onnxruntime_backend" / "src" / "libtriton_onnxruntime.ldscript"
    run_tool(["g++", "-shared", "-o", made, *objects, runtime, "-Wl,-rpath,$ORIGIN", f"-Wl,--version-script={script}"])

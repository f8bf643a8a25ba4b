"""C++ programs of the tests, built once and again only where a source changed."""

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.locks import one_at_a_time
from tests.native.conftest import BUILD, missing

NATIVE = Path(__file__).parent / "native"
ENVIRONMENT_PROTOS = Path(__file__).parents[2] / "client" / "environment_protos"


def environment_compiler() -> Path:
    """Give the compiler that the tests of environments train on."""
    return built(NATIVE / "environment_compiler.cpp", ["grpc++", "protobuf"], [ENVIRONMENT_PROTOS / "episode.proto"])


def built(source: Path, packages: Sequence[str] = (), protos: Sequence[Path] = ()) -> Path:
    """Give the program of one source, with the C++ of ``protos`` linked to it; skips where the toolchain is missing."""
    for tool in ("g++", *(["pkg-config"] if packages else []), *(["protoc", "grpc_cpp_plugin"] if protos else [])):
        if shutil.which(tool) is None:
            missing(tool)
    if packages and subprocess.run(["pkg-config", "--exists", *packages], check=False).returncode:
        missing(f"one of pkg-config's {', '.join(packages)}")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in (source, *protos))).hexdigest()[:16]
    folder = BUILD.parent / f"{source.stem}-{digest}"
    program = folder / source.stem
    with one_at_a_time(folder):
        if not program.exists():
            folder.mkdir(exist_ok=True)
            _build(folder, program, [source, *_generated(folder, protos)], packages)
    return program


def _generated(folder: Path, protos: Sequence[Path]) -> list[Path]:
    for proto in protos:
        plugin = f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"
        _run("protoc", f"-I{proto.parent}", plugin, f"--cpp_out={folder}", f"--grpc_out={folder}", proto)
    return sorted(folder.glob("*.cc"))


def _build(folder: Path, program: Path, sources: Sequence[Path], packages: Sequence[str]) -> None:
    flags = _run("pkg-config", "--cflags", *packages).split() if packages else []
    libraries = _run("pkg-config", "--libs", *packages).split() if packages else []
    unfinished = program.with_suffix(".new")
    _run("g++", "-std=c++17", "-O0", f"-I{folder}", *flags, *sources, "-o", unfinished, *libraries)
    unfinished.rename(program)


def _run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-4000:]}")
    return done.stdout

"""The C++ client in the manner of ML-Compiler-Bridge, built once and again only where a source changed."""

import hashlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.locks import one_at_a_time
from tests.native.conftest import BUILD, missing
from tests.server.mlbridge.mlbridge_clients import PROTOS

_MAIN = Path(__file__).parent / "native" / "mlbridge_client.cpp"


def built() -> Path:
    """Give the program; skips or fails where the toolchain is missing."""
    for tool in ("g++", "protoc", "grpc_cpp_plugin", "pkg-config"):
        if shutil.which(tool) is None:
            missing(tool)
    if subprocess.run(["pkg-config", "--exists", "protobuf", "grpc++"], check=False).returncode:
        missing("libprotobuf-dev or libgrpc++-dev")
    sources = [_MAIN, *sorted(PROTOS.glob("*.proto"))]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    folder = BUILD.parent / f"mlbridge-{digest}"
    program = folder / "mlbridge_client"
    with one_at_a_time(folder):
        if not program.exists():
            folder.mkdir(exist_ok=True)
            _build(folder, program)
    return program


def _build(folder: Path, program: Path) -> None:
    plugin = f"--plugin=protoc-gen-grpc={shutil.which('grpc_cpp_plugin')}"
    protos = sorted(map(str, PROTOS.glob("*.proto")))
    _run("protoc", f"-I{PROTOS}", plugin, f"--cpp_out={folder}", f"--grpc_out={folder}", *protos)
    cflags, libraries = (_run("pkg-config", option, "protobuf", "grpc++").split() for option in ("--cflags", "--libs"))

    def compile_one(source: Path) -> Path:
        made = folder / f"{source.name}.o"
        # Unoptimised: these clients wait for a server.
        _run("g++", "-std=c++17", "-O0", f"-I{folder}", *cflags, "-c", source, "-o", made)
        return made

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compile_one, [_MAIN, *sorted(folder.glob("*.cc"))]))
    unfinished = program.with_suffix(".new")
    _run("g++", *objects, "-o", unfinished, *libraries, "-Wl,--as-needed")
    unfinished.rename(program)


def _run(*command: str | Path | None) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-4000:]}")
    return done.stdout

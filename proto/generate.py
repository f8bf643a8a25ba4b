"""Make the checked-in stubs from the .proto files, with a pinned generator in an environment of its own.

The generator's version is the floor for the protobuf runtime: stubs of grpcio-tools 1.66.2 load on protobuf 5.27 and
everything newer, which leaves room for TensorFlow's constraints.

    python proto/generate.py           # write the stubs beside the .proto files
    python proto/generate.py --check   # exit 1 and name the stale ones
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PROTO = Path(__file__).parent
TOOLS = ("grpcio-tools==1.66.2", "mypy-protobuf==3.6.0", "setuptools<81")


def environment(cache: Path) -> Path:
    """Give the ``bin`` folder of the generator's environment, made on first use."""
    home = cache / "-".join(tool.partition("==")[2] or "x" for tool in TOOLS)
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", *TOOLS], check=True)
        (home / "ready").touch()
    return home / "bin"


def generate(tools: Path, target: Path) -> None:
    """Write all stubs under ``target``, in the folders of their .proto files."""
    sources = sorted(path.relative_to(PROTO) for path in PROTO.rglob("*.proto"))
    plugins = [f"--plugin=protoc-gen-{name}={tools / f'protoc-gen-{name}'}" for name in ("mypy", "mypy_grpc")]
    outs = [f"--{kind}_out={target}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    command: list[str | Path] = [tools / "python", "-m", "grpc_tools.protoc", f"-I{PROTO}", *plugins, *outs, *sources]
    subprocess.run(command, check=True, cwd=PROTO, stderr=subprocess.DEVNULL)
    for stub in target.rglob("*_pb2_grpc.py"):
        # A file without a service gives a stub without one, which would be dead code.
        if "Servicer" not in stub.read_text():
            stub.unlink()
            stub.with_suffix(".pyi").unlink(missing_ok=True)


def stale(fresh: Path) -> list[str]:
    """Name the checked-in stubs that differ from ``fresh``, are missing there, or here."""
    made = {path.relative_to(fresh) for path in fresh.rglob("*_pb2*")}
    kept = {path.relative_to(PROTO) for path in PROTO.rglob("*_pb2*.py*") if path.suffix != ".pyc"}
    changed = {name for name in made & kept if (fresh / name).read_bytes() != (PROTO / name).read_bytes()}
    return sorted(str(name) for name in changed | (made ^ kept))


def main() -> int:
    """Write or check the stubs; the exit status is 1 where ``--check`` finds a stale one."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--cache", type=Path, default=PROTO.parent / ".cache" / "proto-tools")
    arguments = parser.parse_args()
    tools = environment(arguments.cache)
    if not arguments.check:
        generate(tools, PROTO)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(tools, Path(folder))
        names = stale(Path(folder))
    for name in names:
        sys.stderr.write(f"stale: proto/{name}; run python proto/generate.py\n")
    return int(bool(names))


if __name__ == "__main__":
    sys.exit(main())

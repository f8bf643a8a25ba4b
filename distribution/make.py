"""Make the packages of a release: ``make dist``. The platform's ones run where glibc is as new as here or newer.

    policybridge-*.whl, policybridge_client-*.whl       server, trainer and client, in Python alone
    policybridge_run-*.whl, policybridge-run_*.deb      the launcher, and the part for gRPC
    policybridge_llvm22-*.whl, policybridge-llvm22_*.deb   the plugins for Debian's LLVM 22, and the parts of `embed`
    policybridge-*.tar.gz                               the sources

It needs Debian's cmake, ninja-build, g++, llvm-19-dev, llvm-22-dev, libgrpc++-dev, libprotobuf-dev,
protobuf-compiler-grpc and python3-venv; distribution/Dockerfile has them all.
"""

import argparse
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import debian
import wheels
from package import MAJORS, PACKAGES

ROOT = Path(__file__).parents[1]
TOOL = "hatchling==1.33.0"


def main() -> int:
    """Make everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "dist", help="of what is built")
    parser.add_argument("--only", choices=("python", "native"), help="not the other packages")
    arguments = parser.parse_args()
    output, cache = arguments.output.absolute(), arguments.cache.absolute()
    # The files' modes go into the packages: a user's own mask would make them unreadable for others.
    os.umask(0o022)
    remove_packages(output)
    output.mkdir(parents=True, exist_ok=True)
    builder = tool(cache / TOOL)
    if arguments.only != "native":
        python_packages(builder, output)
    if arguments.only != "python":
        native_packages(builder, output, cache)
    print("\n".join(sorted(file.name for file in output.glob("policybridge*"))))
    return 0


def remove_packages(folder: Path) -> None:
    """Remove earlier packages, and nothing else: it may be any folder of the user's."""
    for pattern in ("policybridge*.whl", "policybridge*.deb", "policybridge-*.tar.gz"):
        for file in folder.glob(pattern):
            file.unlink()


def tool(home: Path) -> Path:
    """Give the Python of an environment with `TOOL`, made on first use."""
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        run([home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", TOOL])
        (home / "ready").touch()
    return home / "bin" / "python"


def python_packages(builder: Path, output: Path) -> None:
    """Make the wheels of Python alone, and the source package."""
    for folder, *targets in ((ROOT, "sdist", "wheel"), (ROOT / "clients" / "python", "wheel")):
        for target in targets:
            run([builder, "-m", "hatchling", "build", "--target", target, "--directory", output], folder)


def native_packages(builder: Path, output: Path, cache: Path) -> None:
    """Make the platform's wheels and Debian packages, which have the same files."""
    built = compiled(cache / "build")
    for package in PACKAGES:
        folder = cache / "stage" / package.name
        shutil.rmtree(folder, ignore_errors=True)
        for component in package.components:
            run(["cmake", "--install", built, "--strip", "--prefix", folder, "--component", component])
        debian.write(package, version(), folder, output)
        wheels.bring_libraries(folder)
        wheels.write(package, version(), folder, output, builder)


def compiled(build: Path) -> Path:
    """Build the launcher, so that it reaches servers by gRPC, and the plugins; give the folder."""
    options = ("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib", "-DPOLICYBRIDGE_ONNX=OFF")
    static = "-DPOLICYBRIDGE_LAUNCHER_STATIC=OFF"
    majors = f"-DPOLICYBRIDGE_LLVM={';'.join(MAJORS)}"
    run(["cmake", "-S", ROOT / "clients", "-B", build, "-G", "Ninja", *options, static, majors, *_by_ccache()])
    kinds = ("inliner", "passes", "embedded")
    plugins = [f"policybridge-{kind}-{major}" for kind in kinds for major in MAJORS]
    run(["cmake", "--build", build, "--target", "policybridge-run", "policybridge-grpc", *plugins])
    return build


def _by_ccache() -> tuple[str, ...]:
    """Share what the tests of this clone have compiled."""
    if shutil.which("ccache") is None:
        return ()
    folder = ROOT / ".cache"
    launcher = f"{shutil.which('env')};CCACHE_DIR={folder / 'ccache'};CCACHE_BASEDIR={folder};ccache"
    return tuple(f"-DCMAKE_{language}_COMPILER_LAUNCHER={launcher}" for language in ("C", "CXX"))


def version() -> str:
    """Give the version in pyproject.toml."""
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def run(words: Sequence[str | Path], folder: Path | None = None) -> None:
    """Run a command in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(words, check=True, env=environment, cwd=folder)


if __name__ == "__main__":
    sys.exit(main())

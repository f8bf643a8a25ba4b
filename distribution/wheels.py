"""Wheels for a platform: files below an environment's own folder, where our programs look for them."""

import re
import shutil
import subprocess
from pathlib import Path

import debian
from package import Package

_HERE = Path(__file__).parent
_LICENSE = _HERE.parent / "LICENSE"
_EVERYWHERE = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+))\.so.*")
_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "{package.name}"
version = "{version}"
description = "{package.description}"
license = "Apache-2.0 WITH LLVM-exception"
license-files = ["LICENSE"]
requires-python = ">=3.11"
dependencies = [{needs}]

[tool.hatch.build.targets.wheel]
bypass-selection = true

[tool.hatch.build.targets.wheel.shared-data]
{data}

[tool.hatch.build.targets.wheel.hooks.custom]
path = "platform_tag.py"
"""


def bring_libraries(folder: Path) -> None:
    """Copy what gRPC's part needs into the folder beside it, where its RPATH finds it; a machine may not have gRPC."""
    part = folder / "policybridge-grpc.so"
    if not part.exists():
        return
    (folder / "grpc").mkdir()
    listed = subprocess.run(["ldd", part], check=True, capture_output=True, text=True).stdout
    names = {name: path for name, path in re.findall(r"(\S+) => (\S+)", listed) if not _EVERYWHERE.fullmatch(name)}
    for name, path in names.items():
        shutil.copy(Path(path).resolve(), folder / "grpc" / name)
    for owner in debian.owners(names):
        shutil.copy(Path("/usr/share/doc") / owner / "copyright", folder / "grpc" / f"{owner}.copyright")


def write(package: Package, version: str, files: Path, output: Path, builder: Path) -> None:
    """Write a wheel with ``files``, by a Python that has hatchling."""
    needs = ", ".join(f'"{name}=={version}"' for name in package.needs)
    # One by one: hatchling leaves folders out where it is told to select nothing.
    names = sorted(str(each.relative_to(files)) for each in files.rglob("*") if each.is_file())
    data = "\n".join(f'"{name}" = "{name}"' for name in names)
    (files / "pyproject.toml").write_text(_PYPROJECT.format(package=package, version=version, needs=needs, data=data))
    shutil.copy(_HERE / "platform_tag.py", files)
    shutil.copy(_LICENSE, files)
    words: list[str | Path] = [builder, "-m", "hatchling", "build", "--target", "wheel", "--directory", output]
    subprocess.run(words, check=True, cwd=files)

"""Wheels for a platform: files below an environment's own folder, where our programs look for them."""

import re
import shutil
import subprocess
from pathlib import Path

import debian
from package import LICENSE, Package

_HERE = Path(__file__).parent
_LICENSES = "licenses"
_OWN = "Apache-2.0 WITH LLVM-exception"
_BROUGHT = f"{_OWN} AND Apache-2.0 AND BSD-3-Clause AND MIT AND Zlib"
"""With gRPC, Abseil, Protobuf, RE2, c-ares, OpenSSL and zlib."""

_DOCUMENTS = Path("/usr/share/doc")
_APACHE = Path("/usr/share/common-licenses/Apache-2.0")
"""Its text, which most of their files name."""
_EVERYWHERE = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+))\.so.*")
_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.25"]
build-backend = "hatchling.build"

[project]
name = "{package.name}"
version = "{version}"
description = "{package.description}"
license = "{license}"
license-files = ["{licenses}/*"]
requires-python = ">=3.11"
dependencies = [{needs}]

[tool.hatch.build.targets.wheel]
bypass-selection = true

[tool.hatch.build.targets.wheel.shared-data]
{data}

[tool.hatch.build.targets.wheel.hooks.custom]
path = "platform_tag.py"
"""


def bring_libraries(files: Path) -> None:
    """Copy what gRPC's part needs into the folder beside it, where its RPATH finds it; a machine may not have gRPC.

    The libraries' licenses go beside ours, with the texts that Debian's own refer to.
    """
    part = files / "lib" / "policybridge" / "policybridge-grpc.so"
    if not part.exists():
        return
    folder, licenses = part.with_name("grpc"), files / _LICENSES
    for made in (folder, licenses):
        made.mkdir()
    listed = subprocess.run(["ldd", part], check=True, capture_output=True, text=True).stdout
    names = {name: path for name, path in re.findall(r"(\S+) => (\S+)", listed) if not _EVERYWHERE.fullmatch(name)}
    for name, path in names.items():
        shutil.copy(Path(path).resolve(), folder / name)
    for owner in debian.owners(names):
        shutil.copy(_DOCUMENTS / owner / "copyright", licenses / f"{owner}.copyright")
    shutil.copy(_APACHE, licenses)


def write(package: Package, version: str, files: Path, output: Path, builder: Path) -> None:
    """Write a wheel with ``files``, by a Python that has hatchling."""
    needs = ", ".join(f'"{name}=={version}"' for name in package.needs)
    licenses = files / _LICENSES
    license_ = _BROUGHT if licenses.exists() else _OWN
    licenses.mkdir(exist_ok=True)
    shutil.copy(LICENSE, licenses)
    # One by one: hatchling leaves folders out where it is told to select nothing.
    parts = (each for each in files.rglob("*") if each.is_file() and licenses not in each.parents)
    data = "\n".join(f'"{name}" = "{name}"' for name in sorted(str(each.relative_to(files)) for each in parts))
    told = _PYPROJECT.format(
        package=package, version=version, needs=needs, data=data, license=license_, licenses=_LICENSES
    )
    (files / "pyproject.toml").write_text(told)
    shutil.copy(_HERE / "platform_tag.py", files)
    words: list[str | Path] = [builder, "-m", "hatchling", "build", "--target", "wheel", "--directory", output]
    subprocess.run(words, check=True, cwd=files)

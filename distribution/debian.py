"""Debian packages, by dpkg-deb."""

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from package import LICENSE, Package

_MAINTAINER = "PolicyBridge <policybridge@localhost>"
_GRPC = "policybridge-grpc.so"


def write(package: Package, version: str, files: Path, output: Path) -> None:
    """Write a package with ``files`` below /usr."""
    root = files.with_name(f"{files.name}.deb")
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(files, root / "usr", symlinks=True)
    about = root / "usr" / "share" / "doc" / package.name
    about.mkdir(parents=True)
    shutil.copyfile(LICENSE, about / "copyright")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text(_control(package, version, root / "usr" / "lib" / "policybridge"))
    architecture = _said("dpkg", "--print-architecture")
    made = output / f"{package.name}_{version}_{architecture}.deb"
    _said("dpkg-deb", "--build", "--root-owner-group", str(root), str(made))


def _control(package: Package, version: str, libraries: Path) -> str:
    needs = [f"libc6 (>= {platform.libc_ver()[1]})", "libstdc++6", *(f"{name} (= {version})" for name in package.needs)]
    # Without them everything works but servers by gRPC.
    recommended = _packages_of(libraries / _GRPC) if (libraries / _GRPC).exists() else []
    fields = {
        "Package": package.name,
        "Version": version,
        "Architecture": _said("dpkg", "--print-architecture"),
        "Maintainer": _MAINTAINER,
        "Section": "devel",
        "Priority": "optional",
        "Depends": ", ".join(needs),
        "Recommends": ", ".join(recommended),
        "Description": package.description,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def _packages_of(shared: Path) -> list[str]:
    """Give Debian's packages of the libraries that a shared object names, but for those that all systems have."""
    named = re.findall(r"NEEDED\s+(\S+)", _said("objdump", "-p", str(shared)))
    return sorted(owners(named) - {"libc6", "libstdc++6", "libgcc-s1"})


def owners(libraries: Iterable[str]) -> set[str]:
    """Give Debian's packages that have the libraries."""
    found = _said("dpkg-query", "--search", *(f"*-linux-gnu/{name}" for name in libraries))
    return {line.partition(":")[0] for line in found.splitlines()}


def _said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

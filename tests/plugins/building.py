"""A wheel of a folder with a pyproject.toml, made without a build backend, so that no network is needed."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path


def install(project: Path, folder: Path) -> Path:
    """Build ``project`` in ``folder``, install it there with pip, and give the path that Python imports it from."""
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, str(_build(project, folder))], check=True)
    return target


def install_backend(name: str, source: str, folder: Path) -> Path:
    """Install a distribution with the class ``Backend`` of this source as a backend; give the path likewise."""
    project = folder / "project"
    (project / name).mkdir(parents=True)
    (project / name / "__init__.py").write_text(source)
    told = f'[project]\nname = "{name}"\nversion = "1"\n'
    told += f'[project.entry-points."policybridge.backends"]\n{name} = "{name}:Backend"\n'
    (project / "pyproject.toml").write_text(told)
    return install(project, folder)


def _build(project: Path, folder: Path) -> Path:
    told = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    name, version = told["name"].replace("-", "_"), told["version"]
    info = f"{name}-{version}.dist-info"
    files = {str(file.relative_to(project)): file.read_text() for file in sorted(project.glob(f"{name}/*.py"))}
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {told['name']}\nVersion: {version}\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = _entry_points(told["entry-points"])
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def _entry_points(groups: dict[str, dict[str, str]]) -> str:
    lines = []
    for group, parts in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in parts.items()), ""]
    return "\n".join(lines)

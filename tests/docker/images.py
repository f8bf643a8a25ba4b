"""The images of the stack, made without a registry: from Debian's packages, and from a folder of wheels."""

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.docker.engine import Engine, run
from tests.needs import ROOT

BASE: Final = "localhost/policybridge-base"
SERVER: Final = "localhost/policybridge:slim"
TOOLS: Final = "localhost/policybridge:tools"
PROMETHEUS: Final = "localhost/policybridge-prometheus"
EMPTY: Final = "localhost/policybridge-empty"
"""Compilers and CMake on the base, and nothing of ours."""
NEWER: Final = "trixie"
"""The release of Debian after the one that packages are made on."""

_WHEELS: Final = ROOT / "docker" / "wheelhouse"
_EXTRAS: Final = "onnx,http,otel,bench,tensorboard,train"
_PYTHON_OF_NEWER: Final = "3.13"
_PLATFORMS: Final = tuple(f"manylinux{name}_x86_64" for name in ("2014", "_2_17", "_2_24", "_2_26", "_2_27", "_2_28"))
_PROMETHEUS: Final = """
FROM {base}
COPY prometheus promtool /usr/bin/
RUN install --directory --owner nobody /prometheus
USER nobody
ENTRYPOINT ["prometheus"]
"""


_EMPTY: Final = """
FROM {base}
RUN apt-get update --quiet && DEBIAN_FRONTEND=noninteractive apt-get install --quiet --yes --no-install-recommends \\
      clang-19 clang-22 cmake make && rm -rf /var/lib/apt/lists/*
"""


def make_images(podman: Engine) -> None:
    """Make all images; what has not changed since the last time is taken from podman's storage."""
    if not podman.has(BASE):
        _make_base(podman, _release(), BASE)
    fill_wheelhouse()
    for target, tag in (("slim", SERVER), ("tools", TOOLS)):
        file = ("--file", ROOT / "docker" / "Dockerfile", "--build-arg", f"BASE={BASE}")
        podman.build(tag, ROOT, *file, "--target", target)
    if not podman.has(PROMETHEUS):
        _make_prometheus(podman)


def make_empty(podman: Engine, release: str = "") -> str:
    """Make the image `EMPTY` of this machine's release of Debian or of another, and its folder of wheels.

    Args:
        podman: keeps it.
        release: its code name.

    Returns:
        The image's name.

    """
    base, empty = (f"{name}-{release}" if release else name for name in (BASE, EMPTY))
    if not podman.has(base):
        _make_base(podman, release or _release(), base)
    context = podman.folder / empty.rpartition("/")[2]
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(_EMPTY.format(base=base))
    podman.build(empty, context)
    return empty


def _make_base(podman: Engine, wanted: str, image: str) -> None:
    """Import a release of Debian, from the mirror that this machine's own apt uses."""
    release = _release()
    # A mirror may be several: updates and security too, without which newer packages would be missing.
    told = run("apt-get", "indextargets", "--format", "$(CREATED_BY) $(REPO_URI) $(RELEASE) $(COMPONENT)").stdout
    rows = [line.split() for line in told.splitlines()]
    mirrors = [words[1:] for words in rows if words[0] == "Packages" and words[2].startswith(release)]
    mirror = next(address for address, name, component in mirrors if (name, component) == (release, "main"))
    root = podman.folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    packages = "--include=python3,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", packages, wanted, root, mirror, timeout=1800)
    sources = (f"deb {address} {name.replace(release, wanted)} {part}\n" for address, name, part in mirrors)
    (root / "etc/apt/sources.list").write_text("".join(sources))
    run("sh", "-c", 'tar -C "$1" -c . | podman import --quiet - "$2"', "import", root, image, env=podman.environment)
    shutil.rmtree(root)


def _release() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return next(line.partition("=")[2].strip('"') for line in lines if line.startswith("VERSION_CODENAME="))


def fill_wheelhouse() -> Path:
    """Download the wheels that the images install; give their folder."""
    return _filled(_WHEELS, "wheel", f"{ROOT}[{_EXTRAS}]", "hatchling", option="--wheel-dir")


def learning_wheels() -> Path:
    """Download the wheels of a trainer of one's own compiler; give their folder."""
    asked = (f"{ROOT}[gym,mlbridge]", "stable-baselines3")
    return _filled(ROOT / ".cache" / "wheels" / "learning", "wheel", *asked, option="--wheel-dir")


def newer_wheels() -> Path:
    """Download the wheels of trainers, tuners and servers for the Python of `NEWER`; give their folder."""
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    python = ("--python-version", _PYTHON_OF_NEWER, "--implementation", "cp", "--only-binary=:all:", *platforms)
    return _filled(ROOT / ".cache" / "wheels" / NEWER, "download", *python, f"{ROOT}[http,train]", option="--dest")


def _filled(folder: Path, command: str, *asked: str, option: str) -> Path:
    """Call pip where pyproject.toml, constraints.txt or the request has changed since the last time."""
    folder.mkdir(parents=True, exist_ok=True)
    files = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    wanted, stamp = hashlib.sha256(files + " ".join(asked).encode()).hexdigest(), folder / "stamp"
    if not stamp.exists() or stamp.read_text() != wanted:
        constraint = ("--constraint", ROOT / "constraints.txt")
        run(sys.executable, "-m", "pip", command, "--quiet", *constraint, *asked, option, folder, timeout=1800)
        for own in folder.glob("policybridge-*.whl"):
            own.unlink()
        stamp.write_text(wanted)
    return folder


def _make_prometheus(podman: Engine) -> None:
    """Put this machine's Prometheus, of Debian's package, on the base."""
    context = podman.folder / "prometheus"
    context.mkdir(exist_ok=True)
    for program in ("prometheus", "promtool"):
        found = shutil.which(program)
        assert found is not None, f"no {program} (Debian: prometheus)"
        shutil.copy(found, context / program)
    (context / "Dockerfile").write_text(_PROMETHEUS.format(base=BASE))
    podman.build(PROMETHEUS, context)

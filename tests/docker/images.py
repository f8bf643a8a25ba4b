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

_WHEELS: Final = ROOT / "docker" / "wheelhouse"
_EXTRAS: Final = "onnx,http,otel,bench,tensorboard,train"
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
        _make_base(podman)
    _fill_wheelhouse()
    for target, tag in (("slim", SERVER), ("tools", TOOLS)):
        file = ("--file", ROOT / "docker" / "Dockerfile", "--build-arg", f"BASE={BASE}")
        podman.build(tag, ROOT, *file, "--target", target)
    if not podman.has(PROMETHEUS):
        _make_prometheus(podman)


def make_empty(podman: Engine) -> None:
    """Make the image `EMPTY`, and the folder of wheels that others need."""
    if not podman.has(BASE):
        _make_base(podman)
    _fill_wheelhouse()
    context = podman.folder / "empty"
    context.mkdir(exist_ok=True)
    (context / "Dockerfile").write_text(_EMPTY.format(base=BASE))
    podman.build(EMPTY, context)


def _make_base(podman: Engine) -> None:
    """Import this machine's release of Debian, from the mirror that its own apt uses."""
    release = _release()
    # A mirror may be several: updates and security too, without which newer packages would be missing.
    told = run("apt-get", "indextargets", "--format", "$(CREATED_BY) $(REPO_URI) $(RELEASE) $(COMPONENT)").stdout
    rows = [line.split() for line in told.splitlines()]
    mirrors = [words[1:] for words in rows if words[0] == "Packages" and words[2].startswith(release)]
    mirror = next(address for address, name, component in mirrors if (name, component) == (release, "main"))
    root = podman.folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    packages = "--include=python3,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", packages, release, root, mirror, timeout=1800)
    sources = (f"deb {' '.join(words)}\n" for words in mirrors)
    (root / "etc/apt/sources.list").write_text("".join(sources))
    run("sh", "-c", 'tar -C "$1" -c . | podman import --quiet - "$2"', "import", root, BASE, env=podman.environment)
    shutil.rmtree(root)


def _release() -> str:
    lines = Path("/etc/os-release").read_text().splitlines()
    return next(line.partition("=")[2].strip('"') for line in lines if line.startswith("VERSION_CODENAME="))


def _fill_wheelhouse() -> None:
    """Download the wheels where pyproject.toml or constraints.txt has changed since the last time."""
    asked = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    wanted, stamp = hashlib.sha256(asked + _EXTRAS.encode()).hexdigest(), _WHEELS / "stamp"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    into = ("--wheel-dir", _WHEELS, "--constraint", ROOT / "constraints.txt")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", *into, f"{ROOT}[{_EXTRAS}]", "hatchling", timeout=1800)
    for own in _WHEELS.glob("policybridge-*.whl"):
        own.unlink()
    stamp.write_text(wanted)


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

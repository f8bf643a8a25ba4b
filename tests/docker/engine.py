"""Podman as it runs on a developer's machine and where the tests run: as root, without systemd, without a registry."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.needs import ROOT

REQUIRED: Final = "POLICYBRIDGE_REQUIRE_CONTAINERS"
_PROGRAMS: Final = ("podman", "runc", "debootstrap", "iptables", "dnsmasq")

_CONTAINERS: Final = """
[containers]
# The defaults ask for more than some machines allow.
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
# There may be no systemd, and crun refuses hybrid cgroups.
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""

_STORAGE: Final = """
[storage]
driver = "{driver}"
graphroot = "{folder}"
runroot = "{folder}-run"
"""


class Engine:
    """Podman with a storage of its own, which is kept for the next run.

    Args:
        folder: of its images, containers and configuration.

    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        driver = "overlay" if _overlays(folder) else "vfs"
        storage = folder / f"storage-{driver}.conf"
        storage.write_text(_STORAGE.format(driver=driver, folder=folder / driver))
        (folder / "containers.conf").write_text(_CONTAINERS)
        self.folder = folder
        self.environment = {
            **os.environ,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(storage),
            # The other format has no health checks.
            "BUILDAH_FORMAT": "docker",
        }

    def __call__(self, *words: object, check: bool = True, timeout: float = 600) -> str:
        """Run ``podman WORDS``; give its standard output."""
        return run("podman", *words, env=self.environment, check=check, timeout=timeout).stdout

    def has(self, image: str) -> bool:
        """Tell whether there is an image of this name."""
        ended = run("podman", "image", "exists", image, env=self.environment, check=False)
        return ended.returncode == 0

    def build(self, tag: str, context: Path, *words: object) -> None:
        """Build an image from ``context`` with the network of this machine; layers of an earlier build are taken."""
        # Without a seccomp profile and namespaces of its own, which a nested machine may not give.
        how = ("--isolation", "chroot", "--network", "host", "--quiet")
        self("build", *how, "--tag", tag, *words, context, timeout=2400)


def engine(folder: Path) -> Engine:
    """Give podman, or end the tests with the reason: skipped, or failed where containers are required."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        give_up(f"no {', '.join(missing)}; the Makefile names the packages, at compose")
    if os.geteuid() != 0:
        give_up("containers are run as root here")
    made = Engine(folder)
    ended = run("podman", "info", env=made.environment, check=False)
    if ended.returncode:
        give_up(f"podman does not run here: {ended.stderr.strip()}")
    return made


def give_up(reason: str) -> None:
    """Skip what needs containers, or fail where the environment says that they must run."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"{reason}; and {REQUIRED}=1", pytrace=False)
    pytest.skip(reason)


def run(
    *words: object, env: dict[str, str] | None = None, check: bool = True, timeout: float = 600, cwd: Path = ROOT
) -> "subprocess.CompletedProcess[str]":
    """Run a program; where it fails, so does the test, with what it said."""
    told = [str(word) for word in words]
    ended = subprocess.run(told, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout)
    assert not check or ended.returncode == 0, f"{' '.join(told)}: {ended.stdout[-2000:]}{ended.stderr[-4000:]}"
    return ended


def _overlays(folder: Path) -> bool:
    """Tell whether this machine can mount an overlay; copies of whole file systems take minutes and gigabytes."""
    places = {name: folder / "probe" / name for name in ("lower", "upper", "work", "merged")}
    for place in places.values():
        place.mkdir(parents=True, exist_ok=True)
    options = f"lowerdir={places['lower']},upperdir={places['upper']},workdir={places['work']}"
    mounted = run("mount", "-t", "overlay", "overlay", "-o", options, places["merged"], check=False).returncode == 0
    if mounted:
        run("umount", places["merged"])
    return mounted

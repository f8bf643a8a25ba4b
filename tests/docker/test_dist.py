"""The packages of ``make dist`` in empty containers: no tool that compiles ours, no header of LLVM's, no registry.

A reader's way, word by word: the blocks of docs/install.md, with the compiler's version that is tried. They are no part
of `make test`: `make compose` runs them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.docker.engine import Engine, engine
from tests.docker.images import EMPTY, make_empty
from tests.docs.pages import ROOT, blocks
from tests.docs.reader import Runner
from tests.docs.shell import Command, Shell, opened_shell

MAJOR = "22"
PAGE = ROOT / "docs" / "install.md"
SECTIONS = ("Packages", "Tune your own build", "CMake")
SECURITY = ROOT / "docs" / "security.md"
NOT_HERE = ("a fragment", "takes", "needs dist/ and root")

pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="module")
def podman() -> Engine:
    made = engine(ROOT / ".cache" / "containers")
    make_empty(made)
    return made


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the packages, with the parts that the tests have compiled already."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, str(ROOT / "distribution" / "make.py"), "--output", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def shell(podman: Engine, home: Path, dist: Path) -> Iterator[Shell]:
    """Give a shell in an empty container, which sees ``home``, and in it ``dist``."""
    volumes = (f"{home}:/home/project", f"{dist}:/home/project/dist:ro", f"{ROOT}/docker/wheelhouse:/wheels:ro")
    # No registry is reached: the packages' dependencies are wheels.
    variables = ("PIP_NO_INDEX=1", "PIP_FIND_LINKS=/wheels", "PIP_DISABLE_PIP_VERSION_CHECK=1")
    options = [word for volume in volumes for word in ("--volume", volume)]
    options += [word for variable in variables for word in ("--env", variable)]
    name = podman("run", "--detach", "--network", "none", *options, EMPTY, "sleep", "infinity").strip()
    bash = ("podman", "exec", "--interactive", name, "bash", "--noprofile", "--norc")
    with opened_shell(home, podman.environment, bash) as opened:
        try:
            yield opened
        finally:
            # Before the shell: it waits for a server that it has started.
            podman("rm", "--force", "--time", "0", name)


class Reader:
    """Somebody who reads pages, in a new folder of the container."""

    def __init__(self, home: Path, shell: Shell, name: str) -> None:
        self.folder = home / name
        self.folder.mkdir()
        self.shell = shell
        self.runner = Runner(self.folder, shell, dict(os.environ))
        self.run(f"cd /home/project/{name} && ln -s ../dist dist")

    def run(self, command: str) -> list[str]:
        """Run a command; give the lines that it prints."""
        return self.shell.run(Command(command))

    def read(self, page: Path, *headings: str, major: str = MAJOR) -> None:
        """Do what sections of a page say, with LLVM's ``major``."""
        for block in blocks(page):
            if block.heading in headings and not block.reason.startswith(NOT_HERE):
                self.runner.run(replace(block, text=block.text.replace(MAJOR, major), needs=""))


@pytest.mark.parametrize("major", ["22", "19"])
def test_the_packages_alone_make_a_project_of_cmake_smaller_word_by_word(home: Path, shell: Shell, major: str) -> None:
    reader = Reader(home, shell, major)
    reader.run("! command -v g++ llvm-config-22 ccache && ! ls /usr/lib/llvm-*/include/llvm/IR")
    reader.read(PAGE, *SECTIONS, major=major)
    reader.run(f"clang++-{major} -Oz words.cpp -o plain")
    before, after = (int(line.split()[0]) for line in reader.run("size plain build/words")[1:])
    assert after < before
    assert reader.run(f"policybridge embed inliner --for plugin-{major} -o mine.so && ls mine.so")[-1] == "mine.so"
    early = "-fplugin=$PWD/mine.so" if major == "19" else ""
    reader.run(f"clang++-{major} -Oz -c words.cpp -o embedded.o {early} -fpass-plugin=$PWD/mine.so")


def test_packages_have_the_licenses_of_all_that_is_in_them(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("policybridge_run-*.whl")
    with ZipFile(wheel) as file:
        names = [Path(name) for name in file.namelist()]
        (metadata,) = (file.read(str(name)).decode() for name in names if name.name == "METADATA")
    assert {"LICENSE", "Apache-2.0"} <= {name.name for name in names if "licenses" in name.parts}
    assert any("grpc" in name.name for name in names if name.suffix == ".copyright")
    assert "License-Expression: Apache-2.0 WITH LLVM-exception AND Apache-2.0 AND BSD-3-Clause" in metadata
    for package in dist.glob("*.deb"):
        folder = tmp_path / package.name
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        assert list(folder.glob("usr/share/doc/*/copyright"))


def test_builders_ask_a_server_over_tls_with_a_token_by_the_packages_alone(home: Path, shell: Shell) -> None:
    reader = Reader(home, shell, "farm")
    reader.read(PAGE, "Packages", "Tune your own build")
    reader.read(SECURITY, "TLS", "Tokens", "Clients")
    (server,) = reader.runner.addresses
    for name, value in {"SERVER": f"grpcs:{server}", "TLS_CA": "server.pem", "TOKEN_FILE": "token"}.items():
        reader.run(f"export POLICYBRIDGE_{name}={value}")
    compiled = "clang++-22 -Oz -c words.cpp -o"
    reader.run(f"policybridge-run --policy inliner --stats a.json -- {compiled} a.o")
    plugin = "-fpass-plugin=$VIRTUAL_ENV/lib/policybridge/policybridge-inliner-22.so"
    reader.run(f"POLICYBRIDGE_POLICY=inliner POLICYBRIDGE_STATS=b.json {compiled} b.o {plugin}")
    for name in ("a.json", "b.json"):
        told = json.loads((reader.folder / name).read_text())
        assert (told["policy"]["name"], told["fallback"], told["error"]) == ("inliner", None, None)
        assert told["decisions"] > 0

"""The packages of ``make dist`` in empty containers: no tool that compiles ours, no header of LLVM's, no registry.

Readers' ways, word by word: the blocks of the pages, with the compiler's version that is tried. They are no part of
`make test`: `make compose` runs them. With POLICYBRIDGE_RELEASE=trixie they run on Debian's next release, but for PPO,
whose torch has gigabytes there: `python -m pytest --containers tests/docker/test_dist.py -k 'not ppo'`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.docker.engine import Engine, engine
from tests.docker.images import NEWER, fill_wheelhouse, learning_wheels, make_empty, newer_wheels
from tests.docs.pages import GIVEN, ROOT, blocks
from tests.docs.reader import Runner
from tests.docs.shell import Command, Shell, opened_shell
from tests.training.tuning.boxes import boxes

MAJOR = "22"
PAGE = ROOT / "docs" / "install.md"
SECTIONS = ("Packages", "Tune your own build", "CMake")
SECURITY = ROOT / "docs" / "security.md"
_TWO_SOURCES = """cmake_minimum_required(VERSION 3.21)
project(two CXX)
add_executable(words words.cpp)
add_library(boxes boxes.cpp)
"""
NOT_HERE = ("a fragment", "takes", "needs dist/ and root", "needs the network")

pytestmark = pytest.mark.timeout(2700)


@pytest.fixture(scope="module")
def podman() -> Engine:
    return engine(ROOT / ".cache" / "containers")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the packages, with the parts that the tests have compiled already; or take those of POLICYBRIDGE_DIST."""
    if given := os.environ.get("POLICYBRIDGE_DIST"):
        return Path(given)
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
    """Give a shell in an empty container without a network, which sees ``home``, and in it ``dist``."""
    release = os.environ.get("POLICYBRIDGE_RELEASE", "")
    wheels = (newer_wheels(),) if release else (fill_wheelhouse(), learning_wheels())
    with opened_container(podman, make_empty(podman, release), home, dist, *wheels) as opened:
        yield opened


@pytest.fixture
def newer_shell(podman: Engine, home: Path, dist: Path) -> Iterator[Shell]:
    """Give the same of Debian's next release, with the network for its packages."""
    with opened_container(podman, make_empty(podman, NEWER), home, dist, newer_wheels(), network="host") as opened:
        yield opened


@contextmanager
def opened_container(
    podman: Engine, image: str, home: Path, dist: Path, *wheels: Path, network: str = "none"
) -> Iterator[Shell]:
    """Open a shell in a container of an image, in which pip takes dependencies from folders of wheels alone."""
    places = {home: "/home/project", dist: "/home/project/dist:ro"}
    places |= {folder: f"/wheels/{folder.name}:ro" for folder in wheels}
    found = " ".join(f"/wheels/{folder.name}" for folder in wheels)
    variables = ("PIP_NO_INDEX=1", f"PIP_FIND_LINKS={found}", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_NO_COMPILE=1")
    options = [word for folder, place in places.items() for word in ("--volume", f"{folder}:{place}")]
    options += [word for variable in variables for word in ("--env", variable)]
    name = podman("run", "--detach", "--network", network, *options, image, "sleep", "infinity").strip()
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
        shutil.copytree(GIVEN, self.folder)
        self.shell = shell
        self.runner = Runner(self.folder, shell, dict(os.environ))
        self.run(f'cd /home/project/{name} && ln -s ../dist dist && unset "${{!POLICYBRIDGE_@}}"')

    def run(self, command: str) -> list[str]:
        """Run a command; give the lines that it prints."""
        return self.shell.run(Command(command))

    def read(self, page: Path, *headings: str, major: str = MAJOR) -> None:
        """Do what sections of a page say, with LLVM's ``major``."""
        for block in blocks(page):
            if block.heading in headings and not block.reason.startswith(NOT_HERE):
                self.runner.run(replace(block, text=block.text.replace(MAJOR, major), needs=""))


def make_smaller(reader: Reader, major: str) -> None:
    """Tune the page's project and build it with CMake; then compile with a policy in a plugin."""
    reader.run("! command -v g++ llvm-config-22 ccache && ! ls /usr/lib/llvm-*/include/llvm/IR")
    reader.read(PAGE, *SECTIONS, major=major)
    reader.run(f"clang++-{major} -Oz words.cpp -o plain")
    before, after = (int(line.split()[0]) for line in reader.run("size plain build/words")[1:])
    assert after < before
    assert reader.run(f"policybridge embed inliner --for plugin-{major} -o mine.so && ls mine.so")[-1] == "mine.so"
    early = "-fplugin=$PWD/mine.so" if major == "19" else ""
    reader.run(f"clang++-{major} -Oz -c words.cpp -o embedded.o {early} -fpass-plugin=$PWD/mine.so")


@pytest.mark.parametrize("major", ["22", "19"])
def test_the_packages_alone_make_a_project_of_cmake_smaller_word_by_word(home: Path, shell: Shell, major: str) -> None:
    make_smaller(Reader(home, shell, major), major)


def test_wheels_and_debian_packages_work_on_the_next_release_of_debian(home: Path, newer_shell: Shell) -> None:
    reader = Reader(home, newer_shell, "newer")
    make_smaller(reader, MAJOR)
    # Debian's packages alone, as a builder has them: no environment of Python.
    reader.run("deactivate && export DEBIAN_FRONTEND=noninteractive APT_CONFIG=$PWD/apt.conf")
    (reader.folder / "apt.conf").write_text('APT::Get::Assume-Yes "true";\n')
    reader.run("apt-get update")
    (install,) = (block for block in blocks(PAGE) if block.reason.startswith("needs dist/ and root"))
    reader.runner.run(install)
    assert reader.run("command -v policybridge-run")[-1] == "/usr/bin/policybridge-run"
    reader.run("policybridge-run --stats stats.json -- clang++-22 -Oz -c words.cpp")
    assert json.loads((reader.folder / "stats.json").read_text())["store"]["applied"] > 0


def test_ones_own_build_trains_a_policy_that_compiles_it_word_by_word(home: Path, shell: Shell) -> None:
    reader = Reader(home, shell, "corpus")
    reader.read(PAGE, "Packages", "Tune your own build")
    (reader.folder / "boxes.cpp").write_text(boxes("a"))
    (reader.folder / "CMakeLists.txt").write_text(_TWO_SOURCES)
    reader.read(ROOT / "docs" / "training.md", "Your own corpus")
    assert (
        "policybridge-embedded: inline@" in reader.run("grep -a -o 'policybridge-embedded: [a-z]*@[0-9]*' mine.so")[-1]
    )
    assert reader.run("echo a b a | small/words") == ["2 a", "1 b"]


def test_ppo_learns_from_a_nested_reply_word_by_word(home: Path, shell: Shell) -> None:
    reader = Reader(home, shell, "ppo")
    reader.read(PAGE, "Packages")
    reader.read(ROOT / "docs" / "ml-compiler-bridge.md", "Training mode: the compiler is the server")


def test_two_builders_ask_over_tls_with_a_token_and_a_bad_version_is_rolled_back_word_by_word(
    home: Path, shell: Shell
) -> None:
    reader = Reader(home, shell, "tutorial-farm")
    reader.read(PAGE, "Packages")
    reader.read(ROOT / "docs" / "tutorial-farm.md", "Tutorial: a build farm")


def test_a_bad_version_is_found_and_withdrawn_word_by_word(home: Path, shell: Shell) -> None:
    reader = Reader(home, shell, "incident")
    reader.read(PAGE, "Packages")
    reader.run("pip install 'policybridge[http]'")
    reader.read(ROOT / "docs" / "incident.md", "A bad version is out", "Go back", "Which objects it decided", "Why")
    reader.read(ROOT / "docs" / "incident.md", "Go forward")


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

"""Whole builds through the launcher: a real project's configure and make, CMake, and ccache in both places."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from policybridge_client.connection import connect
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec
from tests.client.compilers import parameters, write_source
from tests.conftest import RunningServer, running_server
from tests.native.conftest import missing
from tests.repositories import answering, write_python

_NETWORK = "POLICYBRIDGE_REQUIRE_NETWORK"
_SECONDS = 60


def need(tool: str) -> str:
    """Give the tool's path; skip the test where it is missing, or fail it with POLICYBRIDGE_REQUIRE_NATIVE."""
    found = shutil.which(tool)
    if found is None:
        missing(tool)
    return str(found)


def asking(launcher: str, server: RunningServer, policy: str, *more: str) -> list[str]:
    return [launcher, "--policy", policy, "--server", server.socket, "--fallback", "error", *more, "--"]


def digest_of(server: RunningServer, policy: str) -> str:
    """Give the digest of the version that answers."""
    signature = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("decision", ElementType.INT64))
    with connect(server.socket) as connection:
        return connection.open(PolicyReference.parse(policy), signature, SessionOptions()).policy.digest


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetch and unpack the sources of zlib as Debian has them; apt's own configuration stays as it is."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "sources.list").write_text("deb-src https://deb.debian.org/debian stable main\n")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    places = {
        "Dir::Etc::SourceList": "sources.list",
        "Dir::Etc::SourceParts": "none",
        "Dir::State::Lists": "lists",
        "Dir::Cache": "cache",
    }
    options = [word for name, place in places.items() for word in ("-o", f"{name}={folder / place}")]
    options += ["-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=10"]
    try:
        for words in (["update"], ["source", "--download-only", "zlib"]):
            command = [need("apt-get"), *options, *words]
            subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=_SECONDS)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode()[-500:]
        if os.environ.get(_NETWORK):
            raise AssertionError(f"zlib's sources cannot be fetched, and {_NETWORK} is set: {said}") from error
        pytest.skip(f"zlib's sources cannot be fetched: {said}")
    (archive,) = folder.glob("zlib_*.orig.tar.*")
    with tarfile.open(archive) as packed:
        packed.extractall(folder / "sources", filter="data")
    (sources,) = (folder / "sources").iterdir()
    return sources


def build(project: Path, folder: Path, compiler: str) -> Mapping[str, bytes]:
    """Configure and make a copy of the project; give its objects."""
    shutil.copytree(project, folder)
    variables = {**os.environ, "CC": compiler, "CFLAGS": "-Oz"}
    for words in (["./configure", "--static"], [need("make"), "-j2", "libz.a"]):
        done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return {path.name: path.read_bytes() for path in folder.glob("*.o")}


@pytest.mark.parametrize("compiler", parameters("clang-19"))
def test_an_echo_of_the_default_gives_a_real_projects_objects_of_its_plain_build(  # noqa: PLR0917
    launcher: str,
    server: RunningServer,
    folder: Path,
    project: Path,
    tmp_path_factory: pytest.TempPathFactory,
    compiler: str,
) -> None:
    stats = tmp_path_factory.mktemp("stats")
    expected = build(project, folder / "plain", compiler)
    launched = asking(launcher, server, "echo", "--stats", f"{stats}/%p.json")
    made = build(project, folder / "asked", " ".join([*launched, compiler]))
    assert len(made) >= 15
    assert made == expected
    reports = [json.loads(path.read_text()) for path in stats.iterdir()]
    assert sum(report["decisions"] for report in reports) > 100
    assert all(report["fallback"] is None for report in reports)


def test_makes_job_server_reaches_through_the_launcher(launcher: str, folder: Path) -> None:
    # A makefile in the place of a source: the compiler that is started runs make, whose jobs then come from outside.
    compiler = folder / "clang"
    compiler.write_text("#!/bin/sh\nexec make -f inner.mk --no-print-directory\n")
    compiler.chmod(0o755)
    (folder / "inner.mk").write_text("all: a b\na b:\n\t@echo $@\n")
    words = f"{launcher} --policy x --server /nowhere --task evict --fallback error -- {compiler} -O2 -c x.c"
    (folder / "outer.mk").write_text(f"all:\n\t+@{words}\n")
    # The tests themselves may run under a make, whose flags and level are not this one's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    outer = [need("make"), "-j2", "-f", "outer.mk"]
    done = subprocess.run(outer, capture_output=True, text=True, check=True, env=environment)
    assert sorted(done.stdout.split()) == ["a", "b"]
    assert "jobserver" not in done.stderr


@pytest.mark.parametrize("compiler", parameters("clang-22"))
@pytest.mark.parametrize("place", ["CC", "CMAKE_C_COMPILER_LAUNCHER"])
def test_cmake_uses_it_as_compiler_and_as_compiler_launcher(
    launcher: str, server: RunningServer, folder: Path, compiler: str, place: str
) -> None:
    write_source(folder)
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(p C)\nadd_library(p module.c)"
    )
    launched = asking(launcher, server, "echo", "--stats", f"{folder}/made-%p.json")
    variables = {"CC": " ".join([*launched, compiler]) if place == "CC" else compiler}
    options = [] if place == "CC" else [f"-D{place}={';'.join(launched)}"]
    configure = [need("cmake"), "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_C_FLAGS=-Oz", *options]
    for words in (configure, [need("ninja"), "-C", "build"]):
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, **variables})
    reports = [json.loads(path.read_text()) for path in folder.glob("made-*.json")]
    assert sum(report["decisions"] for report in reports) >= 16


@pytest.mark.parametrize("compiler", parameters("clang-22"))
class TestCcache:
    """An object comes from the cache only for the same version of the same policy."""

    @pytest.fixture(autouse=True)
    def cache(self, folder: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
        monkeypatch.setenv("CCACHE_DIR", str(folder / "cache"))
        monkeypatch.setenv("CCACHE_COMPILERCHECK", f"{compiler} --version")
        write_source(folder)

    def compile(self, *words: str) -> tuple[int, bytes]:
        """Give the number of decisions, and the object."""
        stats, made = Path("stats.json"), Path("made.o")
        made.unlink(missing_ok=True)
        subprocess.run([*words, "-Oz", "-c", "module.c", "-o", "made.o"], check=True)
        decisions = json.loads(stats.read_text())["decisions"] if stats.exists() else 0
        stats.unlink(missing_ok=True)
        return decisions, made.read_bytes()

    def test_before_the_launcher_it_returns_objects_of_the_same_policy_version_only(
        self, launcher: str, server: RunningServer, compiler: str
    ) -> None:
        def with_policy(policy: str) -> tuple[int, bytes]:
            return self.compile(need("ccache"), *asking(launcher, server, policy, "--stats", "stats.json"), compiler)

        decisions, made = with_policy("never@1")
        assert decisions >= 16
        assert with_policy("never@1") == (0, made)
        assert with_policy("never@2")[0] >= 16
        assert with_policy("always@1")[1] != made
        assert with_policy("never@1") == (0, made)

    def test_by_a_digest_it_returns_objects_of_the_same_content_only(
        self, launcher: str, folder: Path, compiler: str
    ) -> None:
        def asked(answer: str) -> tuple[str, int, bytes]:
            shutil.rmtree(folder / "policies", ignore_errors=True)
            write_python(folder / "policies", "one", answering(answer))
            with running_server(folder / "policies", folder) as server:
                digest = digest_of(server, "one@1")
                words = asking(launcher, server, f"one@{digest}", "--stats", "stats.json")
                return digest, *self.compile(need("ccache"), *words, compiler)

        first, other, again = asked("0"), asked("1"), asked("0")
        assert first[0] == again[0] != other[0]
        assert (first[1] >= 16, other[1] >= 16, again[1]) == (True, True, 0)
        assert first[2] == again[2] != other[2]

    def test_behind_the_launcher_it_stores_no_object_that_a_policy_decided_about(
        self, launcher: str, server: RunningServer, compiler: str
    ) -> None:
        plain = self.compile(need("ccache"), compiler)[1]
        words = [*asking(launcher, server, "always", "--stats", "stats.json"), need("ccache"), compiler]
        first, second = self.compile(*words), self.compile(*words)
        assert first == second
        assert first[0] >= 16
        assert first[1] != plain
        assert self.compile(need("ccache"), compiler)[1] == plain

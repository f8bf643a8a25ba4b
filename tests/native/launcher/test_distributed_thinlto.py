"""The hosts in a distributed ThinLTO build: clang generates the code of one module (``-fthinlto-index``)."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from policybridge_client.decisions import Decision, Heading, Section, Store, write_store
from tests.conftest import RunningServer, running_server
from tests.native.conftest import Target
from tests.native.launcher.running import HOST, Ran, lasting, run
from tests.native.llvm.plugins import built_plugin, need
from tests.repositories import answering, write_python

A = """
int help(int);
static int step(int x) { int s = x; for (int i = 0; i < 9; ++i) s += help(s ^ i) * x; return s; }
int main(int c, char **v) { return step(c) + step(c + 1) * help(3); }
"""
B = "int help(int x) { int s = 0; for (int i = 0; i < x; i++) s += i * x ^ i; return s; }"
BACKEND = "-Oz -c -x ir -fthinlto-index={} a.o -o made.o"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "linking", answering("1"), '[scope]\nphase = ["link"]')
    write_python(repository, "compiling", answering("1"), '[scope]\nphase = ["compile"]')
    with running_server(repository, tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Compile two modules, and let LLD write their indices."""
    found, linker = need("clang-22"), need("ld.lld-22")
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.c": A, "b.c": B, "empty": ""}.items():
        Path(name).write_text(text)
    subprocess.run([found, "-Oz", "-flto=thin", "-c", "a.c", "b.c"], check=True)
    subprocess.run([linker, "--thinlto-index-only", "-e", "main", "a.o", "b.o", "-o", "program"], check=True)
    return found


@pytest.fixture(params=["launcher", "python"])
def host(request: pytest.FixtureRequest) -> Sequence[str]:
    return [request.getfixturevalue("launcher")] if request.param == "launcher" else HOST


def generate(host: Sequence[str], compiler: str, index: str, *options: str) -> Ran:
    return run(host, options, shlex.split(f"{compiler} {BACKEND.format(index)}"))


def test_a_policy_for_link_time_decides_in_a_backend(host: Sequence[str], compiler: str, server: RunningServer) -> None:
    plain = generate(host, compiler, "a.o.thinlto.bc", "--no-decisions")
    decided = generate(host, compiler, "a.o.thinlto.bc", "--policy", "linking", "--server", server.socket)
    assert (decided.status, decided.said, list(decided.stats["advice"])) == (0, "", ["1"])
    assert decided.output != plain.output


def test_a_policy_for_objects_leaves_a_backend_to_llvm_and_says_so(
    host: Sequence[str], compiler: str, server: RunningServer
) -> None:
    plain = generate(host, compiler, "a.o.thinlto.bc", "--no-decisions")
    left = generate(host, compiler, "a.o.thinlto.bc", "--policy", "compiling", "--server", server.socket)
    assert (left.status, left.stats["decisions"]) == (0, 0)
    assert "compiling@1 is for phase compile, and the compilation has 'link'" in left.said
    assert left.output == plain.output


@pytest.mark.parametrize("index", ["empty", "/dev/null"])
def test_a_backend_with_an_empty_index_compiles_as_usual(
    host: Sequence[str], compiler: str, server: RunningServer, index: str
) -> None:
    ran = generate(host, compiler, index, "--policy", "linking", "--server", server.socket)
    assert ran.status == 0
    assert "linking@1 is for phase link, and the compilation has 'compile'" in ran.said


def test_clang_runs_no_plugin_in_a_backend_so_a_store_changes_nothing_there_and_one_line_says_so(
    host: Sequence[str], compiler: str, native: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = built_plugin(native, "inliner", "22")
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(plugin.parent))
    heading = Heading(22, "Oz", "site", None, "a.c", "link")
    write_store(Store([Section(heading, [Decision("0" * 16, inline=True)])]), Path("tuned.db"))
    plain = generate(host, compiler, "a.o.thinlto.bc", "--no-decisions")
    stored = generate(host, compiler, "a.o.thinlto.bc", "--decisions", "tuned.db")
    reason = "all decisions are the compiler's own: clang runs no plugins with -fthinlto-index\n"
    assert (stored.status, stored.said) == (0, f"policybridge-run: {reason}")
    assert (stored.output, lasting(stored.stats)["decisions"]) == (plain.output, 0)
    by_plugin = [compiler, f"-fpass-plugin={plugin}", *shlex.split(BACKEND.format("a.o.thinlto.bc"))]
    subprocess.run(by_plugin, check=True, env={"PATH": "/usr/bin:/bin", "POLICYBRIDGE_SITES": "sites"})
    assert not Path("sites").exists()

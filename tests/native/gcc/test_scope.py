"""The scope of a policy in stock GCC: outside of it GCC decides, and it is told."""

import json
import subprocess
from pathlib import Path

import pytest

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.native.conftest import GCC
from tests.native.gcc.compiling import LOOPS, Gcc, write_loops
from tests.native.llvm.plugins import need
from tests.repositories import answering, write_python

SCOPES = {
    "of-gcc-5": ('gcc = ["5"]', f"gcc 5, and the compilation has '{GCC}'"),
    "of-cxx": ('language = ["c++"]', "language c++, and the compilation has 'c'"),
    "small": ('level = ["Oz", "Os"]', "level Oz or Os, and the compilation has 'O2'"),
    "at-link-time": ('phase = ["link"]', "phase link, and the compilation has 'compile'"),
    "arm": ('target = ["aarch64"]', "target aarch64, and the compilation has 'x86_64'"),
}

LOOPS_AT_O2 = """
__attribute__((optimize("O2"))) double sum(const double *a, int n) {
  double sum = 0;
  int i;
  for (i = 0; i < n; i++)
    sum += a[i];
  return sum;
}
"""

pytestmark = pytest.mark.usefixtures("own_memory")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    for name, (scope, _) in SCOPES.items():
        write_python(repository, name, answering("1"), f"[scope]\n{scope}")
    write_python(repository, "any", answering("1"), '[scope]\nllvm = ["22"]')
    return repository


def labels(ledger: Path) -> dict[str, str]:
    with LedgerReader(ledger) as reader:
        told = list(reader.sessions(Query(policy="any")))[-1].labels
    return {name: told[name] for name in ("level", "phase", "target", "gcc", "language") if name in told}


@pytest.mark.parametrize("policy", SCOPES)
@pytest.mark.parametrize("fallback", ["default", "error"])
def test_outside_of_a_policys_scope_gcc_decides_and_tells_why_once(
    gcc: Gcc, source: Path, tmp_path: Path, policy: str, fallback: str
) -> None:
    stats, flags = tmp_path / "stats.json", ("-O2", "-funroll-loops")
    made = gcc.compile(source, policy, *flags, stats=str(stats), fallback=fallback)
    fault = f"{policy}@1 is for {SCOPES[policy][1]} ([scope] in policy.toml)"
    assert (made.status, made.made) == (0, gcc.plain(source, *flags))
    assert made.said == f"policybridge: all decisions are the compiler's own: {fault}\n"
    told = json.loads(stats.read_text())
    assert (told["decisions"], told["fallback"]["reason"], told["fallback"]["decisions"]) == (0, fault, 5)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("loops.c -O3", {"language": "c", "level": "O2"}),
        ("loops.c -Os", {"language": "c", "level": "Os"}),
        ("loops.c -Oz -std=gnu89", {"language": "c", "level": "Oz"}),
        ("loops.cc -O2 -std=c++20", {"language": "c++", "level": "O2"}),
        ("loops.c -x c++ -O2", {"language": "c++", "level": "O2"}),
        ("loops.c -m32 -O2", {"language": "c", "level": "O2", "target": "i386"}),
    ],
)
def test_a_session_has_the_labels_that_a_scope_is_compared_with(
    gcc: Gcc, ledger: Path, tmp_path: Path, words: str, expected: dict[str, str]
) -> None:
    name, *flags = words.split()
    # At -Os GCC asks only about loops of functions with an attribute. It sends no label `llvm`.
    source = write_loops(tmp_path, name, LOOPS_AT_O2)
    made = gcc.compile(source, "any", *flags, fallback="error")
    assert (made.status, made.said) == (0, "")
    assert labels(ledger) == {"phase": "compile", "target": "x86_64", "gcc": GCC, **expected}


def test_at_link_time_a_session_has_no_language(gcc: Gcc, ledger: Path, tmp_path: Path) -> None:
    source = write_loops(tmp_path, "program.c", LOOPS + "int main(void) { fill(1); return table[99] & 1; }\n")
    words = [need(f"gcc-{GCC}"), "-O2", "-flto", "-funroll-loops", f"-fplugin={gcc.path}", str(source), "-o", "made"]
    subprocess.run(words, cwd=tmp_path, env=gcc.environment("any", fallback="error"), check=True)
    assert labels(ledger) == {"level": "O2", "phase": "link", "target": "x86_64", "gcc": GCC}

"""The polyhedral compiler among the examples: any advice gives a program with the same result."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_train.tasks.cachegrind import CACHE, read_misses
from tests.conftest import RunningServer, ServerFactory, running_server
from tests.docs.pages import ROOT
from tests.native.conftest import Target, missing
from tests.repositories import answering, dying, write_python

EXAMPLE = ROOT / "examples" / "compilers" / "polyhedral.c"
POLICIES = ROOT / "examples" / "polyhedral"
WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
SANITIZERS = ("-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

IN_ORDER = {
    "matmul 40 70 33": """
        for (int i = 0; i < M; ++i) for (int j = 0; j < N; ++j) Z(i, j);
        for (int i = 0; i < M; ++i) for (int j = 0; j < N; ++j) for (int k = 0; k < K; ++k) U(i, j, k);
    """,
    "blur 50 65 4": """
        for (int i = 0; i < M; ++i) for (int j = 1; j < N - 1; ++j) X(i, j);
        for (int i = 1; i < M - 1; ++i) for (int j = 1; j < N - 1; ++j) Y(i, j);
    """,
    "heat 24 40 9": """
        for (int t = 0; t < K; ++t) {
          for (int i = 1; i < M - 1; ++i) for (int j = 1; j < N - 1; ++j) P(t, i, j);
          for (int i = 1; i < M - 1; ++i) for (int j = 1; j < N - 1; ++j) Q(t, i, j);
        }
    """,
}
"""Nests, and their loops as one would write them."""

DEFAULT = ("1", "[32, 32, 32, 32]")
ADVICE = [
    DEFAULT,
    ("-7", "[0, 0, 0, 0]"),
    ("0", "[1, 3, 5, 7]"),
    ("1", "[-5, 1 << 62, 2, 0]"),
    ("0", "[16, 1 << 31, 4, 9]"),
]
"""Advice about fusion and tiles, good and bad."""

_TOLD = """
from pathlib import Path


class Policy:
    def evaluate(self, observation, session):
        return eval(Path({path!r}).read_text())
"""


def build(native: Target, folder: Path, *flags: str) -> Path:
    """Compile the example without a warning; ``flags`` come on top."""
    if not Path("/usr/include/isl/schedule.h").is_file():
        missing("libisl-dev")
    libraries = [native("policybridge_c") / "lib" / f"lib{name}.a" for name in ("policybridge_c", "policybridge")]
    include = ROOT / "clients" / "c" / "include"
    words: list[str | Path] = ["cc", *WARNINGS, *flags, f"-I{include}", EXAMPLE, *libraries, "-lisl", "-lstdc++", "-lm"]
    done = subprocess.run([*words, "-o", folder / "polyhedral"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "polyhedral"


@pytest.fixture(scope="module")
def compiler(native: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(native, tmp_path_factory.mktemp("example"), *SANITIZERS)


@pytest.fixture(scope="module")
def page_server() -> Iterator[RunningServer]:
    """Serve the example's policies."""
    with TemporaryDirectory(prefix="pb-") as name:
        shutil.copytree(POLICIES, Path(name) / "policies")
        with running_server(Path(name) / "policies", Path(name)) as server:
            yield server


@dataclass(frozen=True)
class Advisor:
    """A server whose advice a test says."""

    address: str
    folder: Path

    def say(self, fusion: str, tiles: str) -> None:
        (self.folder / "fusion").write_text(fusion)
        (self.folder / "tiles").write_text(tiles)


@pytest.fixture(scope="module")
def advisor() -> Iterator[Advisor]:
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        for policy in ("fusion", "tiles"):
            write_python(folder / "policies", policy, _TOLD.format(path=str(folder / policy)))
        with running_server(folder / "policies", folder) as server:
            yield Advisor(server.socket, folder)


def compile_nest(compiler: Path, address: str, nest: str) -> tuple[str, str]:
    """Give the program, and what the compiler says."""
    done = subprocess.run([compiler, address, *nest.split()], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def link(text: str, folder: Path, *flags: str) -> Path:
    (folder / "nest.c").write_text(text)
    words: list[str | Path] = ["cc", "-Wall", "-Werror", *flags, "-o", folder / "nest", folder / "nest.c"]
    subprocess.run(words, check=True)
    return folder / "nest"


def checksum(text: str, folder: Path) -> str:
    program = link(text, folder, "-O0", "-fsanitize=undefined", "-fno-sanitize-recover=all")
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def expected(text: str, nest: str, folder: Path) -> str:
    """Give what the program prints with its loops in the order in which one would write them."""
    plain, replaced = re.subn(r"(nest\(void\) \{\n).*?\n\}\n", rf"\g<1>{IN_ORDER[nest]}}}\n", text, flags=re.DOTALL)
    assert replaced == 1
    return checksum(plain, folder)


@pytest.mark.parametrize("nest", IN_ORDER)
def test_every_advice_gives_a_program_with_the_result_of_the_loops_in_order(
    compiler: Path, advisor: Advisor, tmp_path: Path, nest: str
) -> None:
    programs = set()
    for advice in ADVICE:
        advisor.say(*advice)
        programs.add(compile_nest(compiler, advisor.address, nest)[0])
    assert len(programs) >= len(ADVICE) - 1
    assert {checksum(text, tmp_path) for text in programs} == {expected(min(programs), nest, tmp_path)}


def test_the_policies_are_told_of_loops_and_arrays(compiler: Path, advisor: Advisor) -> None:
    bands = 'observation["separate"].tolist() == [2, 5, 4] and observation["fused"].tolist() == [1, 3, 2]'
    advisor.say(f'{bands} and observation["statements"] == 2', '[*observation["extents"][:3] // 2, 0]')
    assert compile_nest(compiler, advisor.address, "matmul 40 70 33")[1] == "fused\ntiles: 20 x 35 x 16\n"
    told = ('observation["coincident"].sum()', '(observation["coefficients"] == 1).sum()', 'observation["boxes"].sum()')
    advisor.say("1", f"[{', '.join(told)}, observation['lengths'].max()]")
    assert compile_nest(compiler, advisor.address, "matmul 40 70 33")[1] == "fused\ntiles: 2 x 6 x 6\n"


def test_without_advice_the_program_is_that_of_the_default(
    compiler: Path, advisor: Advisor, server_factory: ServerFactory, tmp_path: Path
) -> None:
    advisor.say(*DEFAULT)
    default, said = compile_nest(compiler, advisor.address, "matmul 40 70 33")
    assert said == "fused\ntiles: 32 x 32 x 32\n"
    advisor.say("1 / 0", "'no tile'")
    write_python(tmp_path, "fusion", answering("1"))
    write_python(tmp_path, "tiles", dying("[1, 1, 1, 1]", after=0))
    for address, why in [
        ("socket:/nowhere", "no advice about fusion: could not reach the server at /nowhere"),
        (advisor.address, "no advice about fusion: the policy failed: ZeroDivisionError"),
        (advisor.address, "no advice about tiles: "),
        (server_factory(tmp_path).socket, "no advice about tiles: "),
    ]:
        program, said = compile_nest(compiler, address, "matmul 40 70 33")
        assert program == default
        assert why in said
    assert subprocess.run([compiler, "socket:/nowhere", "matmul", "3", "4", "5"], check=False).returncode == 2


def test_the_policies_of_the_page_take_fewer_cycles_than_the_default(
    compiler: Path, page_server: RunningServer, tmp_path: Path
) -> None:
    for nest in ("matmul 64 64 48", "blur 256 256 4"):
        default, policy = (
            cycles(compile_nest(compiler, address, nest)[0], tmp_path)
            for address in ("socket:/nowhere", page_server.socket)
        )
        assert policy < 0.9 * default


def cycles(text: str, folder: Path) -> int:
    """Estimate the cycles of the nest: its instructions, and ten for each miss of the first cache."""
    if shutil.which("valgrind") is None:
        missing("valgrind")
    program = link(text, folder, "-O2")
    counting = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *CACHE, "--quiet"]
    words: list[str | Path] = [*counting, f"--cachegrind-out-file={folder / 'misses'}", program]
    subprocess.run(words, check=True, capture_output=True)
    counted = read_misses((folder / "misses").read_text().splitlines(), "nest")
    return counted.instructions + 10 * counted.data

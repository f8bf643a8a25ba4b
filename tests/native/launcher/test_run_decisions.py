"""``policybridge run --decisions`` with a plugin, by the launcher: caches see the store."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.client.compilers import write_source
from tests.conftest import command
from tests.native.conftest import MAJORS, Target, missing
from tests.native.llvm.plugins import need
from tests.native.llvm.stores import Tuner, flipped


@pytest.fixture(autouse=True)
def delegated(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have ``policybridge run`` start the launcher."""
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", launcher)


@pytest.fixture(params=MAJORS)
def tuner(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Tuner:
    return Tuner.of(native, request.param, tmp_path)


@pytest.fixture
def tuned(tuner: Tuner) -> bytes:
    """Write ``tuned.db`` for ``module.c``; give the object."""
    source = write_source(tuner.folder)
    log = tuner.logged(Path(source.name)).sites
    tuner.write(flipped(log, "middle"), source.name, digest=log.digest)
    made = tuner.compile(Path(source.name), decisions="tuned.db").output
    assert made != tuner.plain(Path(source.name))
    return made


def run(tuner: Tuner, *words: str, wrapper: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
    """Compile with clang and the store; the plugin is found by the variable."""
    clang = [*wrapper.split(), need(f"clang-{tuner.major}")]
    options = ["--decisions", "tuned.db", "--stats", "told.json"]
    environment = {**os.environ, "POLICYBRIDGE_PLUGINS": f"/nowhere:{tuner.path.parent}", **variables}
    return subprocess.run(
        command("run", *options, "--", *clang, *words),
        cwd=tuner.folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def told(tuner: Tuner) -> Any:
    return json.loads((tuner.folder / "told.json").read_bytes())


def test_the_plugin_that_a_variable_leads_to_gives_the_tuned_object(tuner: Tuner, tuned: bytes) -> None:
    ended = run(tuner, "-Oz", "-w", "-c", "module.c", "-o", "made")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tuner.folder / "made").read_bytes() == tuned
    store = told(tuner)["store"]
    assert store.pop("applied") > 0
    assert store == {
        "path": str(tuner.folder / "tuned.db"),
        "module": "module.c",
        "exact": True,
        "unmatched": 0,
        "passes": 0,
    }


@pytest.mark.usefixtures("tuned")
def test_what_no_longer_applies_is_told_in_one_line(tuner: Tuner) -> None:
    source = tuner.folder / "module.c"
    source.write_text(source.read_text().replace("middle3(x + 1)", "sink(x)"))
    ended = run(tuner, "-Oz", "-c", "module.c", "-o", "made")
    assert ended.returncode == 0
    assert ended.stderr.count("\n") == 1
    assert "decisions applied to module.c" in ended.stderr
    assert told(tuner)["store"]["unmatched"] > 0
    assert not told(tuner)["store"]["exact"]


@pytest.mark.parametrize(
    "words",
    [
        ["-E", "module.c", "-o", "module.i"],
        ["-fsyntax-only", "module.c"],
        ["-O0", "-c", "module.c", "-o", "made"],
        ["made.o", "-shared", "-o", "made.so"],
        ["-flto", "-c", "module.c", "-o", "made"],
        ["-Oz", "module.c", "-shared", "-o", "made.so"],
        ["-fembed-bitcode", "-Oz", "-c", "module.c", "-o", "made"],
        ["-Oz", "-x", "c", "-c", "-o", "made", "/dev/null"],
        ["--version"],
    ],
    ids=lambda words: words[0],
)
@pytest.mark.usefixtures("tuned")
def test_commands_of_every_kind_go_on_without_a_warning(tuner: Tuner, words: list[str]) -> None:
    (tuner.folder / "made.o").write_bytes(tuner.plain(Path("module.c"), "-Oz", "-fPIC"))
    words = ["-fPIC", "-Werror", *words]
    plain = subprocess.run([f"clang-{tuner.major}", *words], cwd=tuner.folder, capture_output=True, check=False)
    ended = run(tuner, *words)
    assert (ended.returncode, ended.stderr) == (plain.returncode, plain.stderr.decode())


@pytest.mark.usefixtures("tuned")
def test_a_command_that_also_links_applies_the_store(tuner: Tuner) -> None:
    assert run(tuner, "-Oz", "-fPIC", "module.c", "-shared", "-o", "made.so").returncode == 0
    assert told(tuner)["store"]["applied"] > 0


def test_ccache_never_gives_the_object_of_another_store(tuner: Tuner, tuned: bytes) -> None:
    if shutil.which("ccache") is None:
        missing("ccache")
    words = ["-Oz", "-w", "-c", "module.c", "-o", "made"]
    cache = {"CCACHE_DIR": str(tuner.folder / "cache"), "CCACHE_DISABLE": ""}
    cache.pop("CCACHE_DISABLE")
    for number in range(2):
        ended = run(tuner, *words, wrapper="ccache", **cache)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert (tuner.folder / "made").read_bytes() == tuned
        # The second time the object comes from the cache, and nothing is decided.
        assert (tuner.folder / "told.json").exists() is (number == 0)
        (tuner.folder / "told.json").unlink(missing_ok=True)
    tuner.write({}, "module.c")
    ended = run(tuner, *words, wrapper="ccache", **cache)
    assert ended.returncode == 0
    assert (tuner.folder / "made").read_bytes() == tuner.plain(Path("module.c"))


@pytest.mark.usefixtures("tuned")
def test_a_broken_store_is_told_and_compiles_the_plain_object(tuner: Tuner) -> None:
    (tuner.folder / "tuned.db").write_text("garbage\n")
    ended = run(tuner, "-Oz", "-w", "-c", "module.c", "-o", "made")
    assert ended.returncode == 0
    assert ended.stderr.count("\n") == 1
    assert "tuned.db, line 1: a store" in ended.stderr
    assert (tuner.folder / "made").read_bytes() == tuner.plain(Path("module.c"))


@pytest.mark.usefixtures("tuned")
def test_opt_is_given_the_store_too(tuner: Tuner) -> None:
    words = ["-Oz", "-Xclang", "-disable-llvm-passes", "-emit-llvm", "-c", "module.c", "-o", "module.bc"]
    subprocess.run([need(f"clang-{tuner.major}"), *words], cwd=tuner.folder, check=True)
    for passes in (["-passes=default<Oz>", "module.bc", "-o", "made.bc"], ["-passes=default<Oz>", "-o", "made.bc"]):
        (tuner.folder / "told.json").unlink(missing_ok=True)
        options = ["--decisions", "tuned.db", "--plugins", str(tuner.path.parent), "--stats", "told.json"]
        with (tuner.folder / "module.bc").open("rb") as module:
            ended = subprocess.run(
                command("run", *options, "--", need(f"opt-{tuner.major}"), *passes),
                cwd=tuner.folder,
                stdin=module,
                capture_output=True,
                text=True,
                check=False,
            )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert told(tuner)["store"]["applied"] > 0

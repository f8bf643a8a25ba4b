"""``policybridge replay`` of a plugin's session with both kinds of decisions."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ServerFactory, command, running_server
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.stores import Tuner
from tests.native.llvm.test_pass_choices import LOOPS
from tests.native.llvm.test_pass_sessions import BOTH, INLINED, NUMBERS, POLICY
from tests.repositories import write_python
from tests.server.ledger.asking import await_forms


@dataclass(frozen=True)
class Recorded:
    """A compilation that the ledger has, whose server is gone; ``words`` repeat it, and ``plain`` without a policy."""

    folder: Path
    ledger: Path
    session: str
    words: Sequence[str]
    plain: Sequence[str]
    inlining: int
    passes: int

    @property
    def decisions(self) -> int:
        return self.inlining + self.passes

    def replay(self, words: Sequence[str], *options: str) -> "subprocess.CompletedProcess[str]":
        with_ledger = command("replay", "--ledger", self.ledger, *options, self.session, *words)
        return subprocess.run(with_ledger, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)

    def told(self, words: Sequence[str], *options: str) -> dict[str, Any]:
        done = self.replay(["--", *words], "--json", *options)
        told: dict[str, Any] = json.loads(done.stdout)
        assert done.returncode == (0 if told["identical"] else 1)
        return told


@pytest.fixture(params=MAJORS)
def recorded(request: pytest.FixtureRequest, native: Target, tmp_path: Path, server_factory: ServerFactory) -> Recorded:
    """Compile with the plugin and a policy that inlines as LLVM does, and chooses passes."""
    tuner = Tuner.of(native, request.param, tmp_path)
    source, ledger, repository = tmp_path / "loops.c", tmp_path / "ledger.db", tmp_path / "policies"
    source.write_text(LOOPS + INLINED)
    repository.mkdir()
    write_python(repository, "size", POLICY.format(number=NUMBERS["size"]), BOTH)
    server = server_factory(repository, "--ledger", ledger)
    settings = {"server": server.socket, "policy": "size", "stats": "stats.json"}
    options = [word for name, value in settings.items() for word in ("-mllvm", f"-policybridge-{name}={value}")]
    plain = [f"clang-{request.param}", "-w", "-Oz", "-c", source.name, "-o", "made.o"]
    words = [plain[0], f"-fplugin={tuner.path}", f"-fpass-plugin={tuner.path}", *options, *plain[1:]]
    subprocess.run([*plain[:-1], "plain.o"], cwd=tmp_path, check=True)
    subprocess.run(words, cwd=tmp_path, check=True)
    server.process.terminate()
    server.process.wait(60)
    stats = tmp_path / "stats.json"
    told = json.loads(stats.read_text())
    stats.unlink()
    assert told["decisions"] > 0
    assert told["passes"]["decisions"] > 0
    (session,) = told["sessions"]
    return Recorded(tmp_path, ledger, session, words, plain, told["decisions"], told["passes"]["decisions"])


def test_a_plugins_session_with_both_kinds_is_replayed_with_the_same_decisions_and_object(recorded: Recorded) -> None:
    before = (recorded.folder / "made.o").read_bytes()
    told = recorded.told(recorded.words, "--object", "made.o")
    assert (told["identical"], told["object"], told["decisions"]) == (True, True, recorded.decisions)
    assert before == (recorded.folder / "made.o").read_bytes() != (recorded.folder / "plain.o").read_bytes()
    assert not (recorded.folder / "stats.json").exists()
    told = recorded.told(recorded.words, "--object", "plain.o")
    assert told["difference"] == "all decisions are the same, but the object differs"


def test_a_session_that_the_compiler_decided_by_the_form_is_replayed_too(
    native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tuner, source, ledger = Tuner.of(native, "22", tmp_path), tmp_path / "loops.c", tmp_path / "ledger.db"
    source.write_text(LOOPS + INLINED)
    plain = ["clang-22", "-w", "-Oz", "-c", source.name, "-o", "made.o"]
    with running_server(None, tmp_path, "--ledger", ledger) as server:
        await_forms(server.socket, "size")
        settings = {"server": server.socket, "policy": "size", "stats": "stats.json", "evaluate": "here"}
        options = [word for name, value in settings.items() for word in ("-mllvm", f"-policybridge-{name}={value}")]
        words = [plain[0], f"-fplugin={tuner.path}", f"-fpass-plugin={tuner.path}", *options, *plain[1:]]
        subprocess.run(words, cwd=tmp_path, check=True)
    told = json.loads((tmp_path / "stats.json").read_text())
    (session,) = told["sessions"]
    recorded = Recorded(tmp_path, ledger, session, words, plain, told["decisions"], told["passes"]["decisions"])
    replayed = recorded.told(words, "--object", "made.o")
    assert (replayed["identical"], replayed["object"]) == (True, True), replayed
    assert replayed["decisions"] == recorded.decisions > 0


def test_the_first_decision_about_passes_that_differs_is_told(recorded: Recorded) -> None:
    source = recorded.folder / "loops.c"
    source.write_text(source.read_text().replace("0x123456789abcdefUL)", "0x123456789abcdefUL ^ a[i + 1])"))
    told = recorded.told(recorded.words)
    assert recorded.inlining < told["step"] <= recorded.decisions
    assert told["difference"].startswith("the observation differs in ")


def test_a_command_without_the_plugin_asks_for_no_decision_and_is_told(recorded: Recorded) -> None:
    told = recorded.told(recorded.plain)
    assert told["difference"] == f"the compiler asked for 0 of the {recorded.decisions} recorded decisions"


def test_a_replay_of_a_plugins_session_needs_its_command_and_an_object_that_exists(recorded: Recorded) -> None:
    done = recorded.replay([])
    assert (done.returncode, "give it after --" in done.stderr) == (2, True)
    done = recorded.replay(["--", *recorded.words], "--object", "none.o")
    assert (done.returncode, "no object none.o to compare with" in done.stderr) == (2, True)

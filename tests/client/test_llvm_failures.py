"""The LLVM host when something fails: the build does not break, and nothing stays behind."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from tests.client.compilers import DRIVERS, left_behind, parameters, start, write_growing, write_pressure, write_source
from tests.client.peers import OPENED, PAUSE, Peer
from tests.conftest import RunningServer, ServerFactory, command

KNOWN = ["ziglang", *parameters("clang-19", "clang-22")]
"""Where LLVM's own decision is known at -Oz."""


class Hosted:
    """A ``policybridge run`` under way."""

    def __init__(self, server: str, policy: str, words: Sequence[str], *options: str) -> None:
        arguments = ["run", "--policy", policy, "--server", server, "--stats", "stats.json", *options, "--", *words]
        self.process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def end(self) -> tuple[int, str]:
        """Wait for its end and give its status and what it said."""
        said = self.process.communicate(timeout=60)[1].decode()
        return self.process.returncode, said


def host(server: str, policy: str, words: Sequence[str], *options: str) -> tuple[int, str]:
    return Hosted(server, policy, words, *options).end()


def stats() -> Any:
    return json.loads(Path("stats.json").read_text())


def wait_until(fact: Callable[[], object]) -> None:
    end = monotonic() + 60
    while not fact():
        assert monotonic() < end, "it never came to it"
        sleep(0.01)


def words_for(folder: Path, compiler: str, level: str = "-Oz") -> list[str]:
    return [*start(compiler), level, "-c", write_source(folder).name, "-o", "made.o"]


def plain(words: Sequence[str], output: str = "made.o") -> bytes:
    subprocess.run(words, check=True)
    made = Path(output).read_bytes()
    Path(output).unlink()
    return made


class TestNoServer:
    """Nobody listens from the start."""

    @pytest.mark.parametrize("compiler", DRIVERS)
    @pytest.mark.parametrize("address", ["socket:/nowhere/server.sock", "grpc:127.0.0.1:1"])
    def test_the_compiler_runs_plain_and_the_report_says_why(self, folder: Path, compiler: str, address: str) -> None:
        words = words_for(folder, compiler)
        expected = plain(words)
        status, said = host(address, "echo", words)
        assert (status, Path("made.o").read_bytes()) == (0, expected)
        assert address.partition(":")[2] in said
        assert stats()["fallback"]["status"] == 14
        assert (stats()["decisions"], stats()["fallback"]["restarted"]) == (0, False)

    def test_with_error_the_compiler_is_ended(self, folder: Path) -> None:
        status, said = host("socket:/nowhere/server.sock", "echo", words_for(folder, "ziglang"), "--fallback", "error")
        assert status == 70
        assert "/nowhere/server.sock" in said
        assert not Path("made.o").exists()

    def test_with_error_a_command_that_asks_nothing_needs_no_server(self, folder: Path) -> None:
        words = words_for(folder, "ziglang", "-O0")
        assert host("socket:/nowhere/server.sock", "echo", words, "--fallback", "error") == (0, "")
        assert Path("made.o").exists()


class TestPolicyFails:
    """The server is there, and says that there is no advice."""

    @pytest.mark.parametrize("compiler", KNOWN)
    def test_llvms_own_decisions_finish_the_compilation(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        words = words_for(folder, compiler)
        expected = plain(words)
        status, said = host(server.socket, "echo", words, "--option", "raise_at=5")
        assert (status, Path("made.o").read_bytes()) == (0, expected)
        assert "boom" in said
        fallback = stats()["fallback"]
        assert stats()["decisions"] == 4
        assert fallback["decisions"] >= 12
        assert (fallback["status"], fallback["restarted"]) == (13, False)
        assert "boom" in fallback["reason"]

    @pytest.mark.parametrize("compiler", parameters("clang-22"))
    def test_of_a_configure_scripts_source_only_the_statistics_tell(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        words = words_for(folder, compiler)
        source = next(word for word in words if word.endswith(".c"))
        Path(source).rename("conftest.c")
        trial = ["conftest.c" if word == source else word for word in words]
        assert host(server.socket, "echo", trial, "--option", "raise_at=5") == (0, "")
        assert "boom" in stats()["fallback"]["reason"]

    @pytest.mark.parametrize("compiler", KNOWN)
    def test_with_error_the_compiler_is_ended(self, server: RunningServer, folder: Path, compiler: str) -> None:
        words = words_for(folder, compiler)
        status, said = host(server.socket, "echo", words, "--option", "raise_at=5", "--fallback", "error")
        assert status == 70
        assert "boom" in said
        assert "boom" in stats()["error"]["reason"]
        assert not Path("made.o").exists()

    @pytest.mark.parametrize("compiler", KNOWN)
    def test_a_compiler_that_is_ended_leaves_no_file(self, server: RunningServer, folder: Path, compiler: str) -> None:
        names = [write_source(folder, f"{name}.c").name for name in ("a", "b")]
        words = [*start(compiler), "-Oz", "-c", *names]
        before = set(folder.iterdir())
        assert host(server.socket, "echo", words, "--option", "raise_at=20", "--fallback", "error")[0] == 70
        assert {path.name for path in set(folder.iterdir()) - before} <= {"stats.json", "a.o"}

    @pytest.mark.parametrize("compiler", parameters("clang-19"))
    def test_where_llvms_decision_is_not_known_the_compiler_runs_once_more(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        words = words_for(folder, compiler, "-O2")
        expected = plain(words)
        assert host(server.socket, "never", words, "--option", "raise_at=5")[0] == 0
        assert Path("made.o").read_bytes() == expected
        assert (stats()["decisions"], stats()["fallback"]["restarted"]) == (4, True)

    @pytest.mark.parametrize("compiler", parameters("clang-19"))
    def test_it_cannot_run_once_more_where_its_source_came_from_stdin(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        source = write_source(folder).read_bytes()
        words = [compiler, "-O2", "-x", "c", "-c", "-", "-o", "made.o"]
        arguments = ["--policy", "never", "--server", server.socket, "--option", "raise_at=5"]
        ended = subprocess.run(command("run", *arguments, "--", *words), input=source, capture_output=True, check=False)
        assert ended.returncode == 70
        assert b"stdin" in ended.stderr
        assert b"boom" in ended.stderr

    def test_an_unknown_policy_is_named(self, server: RunningServer, folder: Path) -> None:
        status, said = host(server.socket, "nobody", words_for(folder, "ziglang"), "--fallback", "error")
        assert status == 70
        assert "nobody" in said

    def test_a_missing_input_is_named(self, server: RunningServer, folder: Path) -> None:
        status, said = host(server.socket, "sum", words_for(folder, "ziglang"), "--fallback", "error")
        assert status == 70
        assert "'a'" in said


@pytest.mark.parametrize("name", parameters("llc-19", "llc-22"))
class TestIllegalAdvice:
    """LLVM would crash on it, and never gets to see it."""

    def words(self, folder: Path, name: str) -> list[str]:
        clang = name.replace("llc", "clang")
        subprocess.run([clang, "-O2", "-S", "-emit-llvm", write_pressure(folder).name, "-o", "module.ll"], check=True)
        return [name, "-O2", "module.ll", "-o", "made.s"]

    def test_the_compiler_runs_once_more_without_it(self, server: RunningServer, folder: Path, name: str) -> None:
        words = self.words(folder, name)
        expected = plain(words, "made.s")
        status, said = host(server.socket, "illegal", words, "--task", "evict")
        assert (status, Path("made.s").read_bytes()) == (0, expected)
        assert "legal here are" in said
        assert stats()["fallback"]["restarted"] is True

    def test_with_error_it_is_named_with_what_would_be_legal(
        self, server: RunningServer, folder: Path, name: str
    ) -> None:
        options = ["--task", "evict", "--fallback", "error"]
        status, said = host(server.socket, "illegal", self.words(folder, name), *options)
        assert status == 70
        assert "position" in said
        assert "legal here are" in said
        assert not Path("made.s").exists()


class TestServerDies:
    """The server is killed in the middle of a decision."""

    def hosted(self, running: RunningServer, folder: Path, compiler: str, *options: str) -> Hosted:
        asking = ["--option", "sleep_at=5", "--label", f"asleep={folder / 'asleep'}", *options]
        hosted = Hosted(running.socket, "sleepy-echo", words_for(folder, compiler), *asking)
        wait_until((folder / "asleep").exists)
        running.kill()
        return hosted

    @pytest.mark.parametrize("compiler", KNOWN)
    def test_the_compilation_ends_as_if_it_had_never_been_there(
        self, server_factory: ServerFactory, policies: Path, folder: Path, compiler: str
    ) -> None:
        expected = plain(words_for(folder, compiler))
        status, said = self.hosted(server_factory(policies), folder, compiler).end()
        assert (status, Path("made.o").read_bytes()) == (0, expected)
        assert "went away" in said
        assert stats()["decisions"] == 4
        assert stats()["fallback"]["status"] == 14

    @pytest.mark.parametrize("compiler", KNOWN)
    def test_with_error_the_compiler_is_ended(
        self, server_factory: ServerFactory, policies: Path, folder: Path, compiler: str
    ) -> None:
        hosted = self.hosted(server_factory(policies), folder, compiler, "--fallback", "error")
        assert hosted.end()[0] == 70
        assert not Path("made.o").exists()

    def test_a_server_that_hangs_is_given_up_after_the_timeout(
        self, server_factory: ServerFactory, policies: Path, folder: Path
    ) -> None:
        words = words_for(folder, "ziglang")
        expected = plain(words)
        options = ["--option", "sleep_at=5", "--timeout", "0.5"]
        assert host(server_factory(policies).socket, "sleepy-echo", words, *options)[0] == 0
        assert Path("made.o").read_bytes() == expected
        assert stats()["fallback"]["status"] == 4


class TestHostEnds:
    """The host is told to end while the compiler waits for advice."""

    @contextmanager
    def hosted(self, address: str, folder: Path, compiler: str) -> Iterator[Hosted]:
        asleep = folder / "asleep"
        asking = ["--option", "sleep_at=5", "--label", f"asleep={asleep}"]
        hosted = Hosted(address, "sleepy-echo", words_for(folder, compiler), *asking)
        try:
            wait_until(asleep.exists)
            yield hosted
        finally:
            hosted.process.kill()
            asleep.unlink(missing_ok=True)

    @pytest.mark.parametrize("compiler", DRIVERS)
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    @pytest.mark.parametrize("transport", ["socket", "grpc"])
    def test_a_signal_ends_the_compiler_too(
        self,
        server: RunningServer,
        folder: Path,
        compiler: str,
        number: signal.Signals,
        transport: str,
    ) -> None:
        with self.hosted(getattr(server, transport), folder, compiler) as hosted:
            hosted.process.send_signal(number)
            assert hosted.end() == (128 + number, "")
        assert not Path("made.o").exists()

    @pytest.mark.parametrize("compiler", DRIVERS)
    def test_a_host_that_is_killed_leaves_nothing_running(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        with self.hosted(server.socket, folder, compiler) as hosted:
            hosted.process.kill()
            hosted.end()
            channels = Path(os.environ["TMPDIR"])
            wait_until(lambda: not left_behind(channels) and not list(channels.iterdir()))
        assert not Path("made.o").exists()

    @pytest.mark.parametrize("compiler", DRIVERS)
    def test_a_compiler_that_is_killed_is_reported_and_the_server_goes_on(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        with self.hosted(server.socket, folder, compiler) as hosted:
            own_channel = f"-inliner-interactive-channel-base={os.environ['TMPDIR']}".encode()
            for process in Path("/proc").glob("[0-9]*"):
                if own_channel in _command(process):
                    os.kill(int(process.name), signal.SIGKILL)
            status, _ = hosted.end()
        assert status != 0
        assert stats()["status"] == status
        assert host(server.socket, "echo", words_for(folder, compiler)) == (0, "")


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    """Collect the peers of the test, which serve ``s`` in its folder."""
    peers: list[Peer] = []
    yield peers
    for peer in peers:
        peer.close()


@pytest.mark.parametrize("compiler", parameters("clang-22"))
class TestSlowServer:
    """The server is reached, and does not answer as it should."""

    def test_an_answer_that_trickles_is_given_up_after_the_timeout(
        self, folder: Path, peers: list[Peer], compiler: str
    ) -> None:
        peers.append(Peer(folder / "s", tuple([b"{", PAUSE] * 20), (), 0))
        words = words_for(folder, compiler)
        expected = plain(words)
        status, said = host(f"socket:{folder}/s", "echo", words, "--timeout", "0.5")
        assert (status, Path("made.o").read_bytes()) == (0, expected)
        assert "within 0.5 s" in said

    def test_an_error_line_is_told_without_waiting_for_the_end(
        self, folder: Path, peers: list[Peer], compiler: str
    ) -> None:
        line = b'\1{"error":{"status":13,"message":"boom"}}\n'
        peers.append(Peer(folder / "s", (OPENED,), (line, *[PAUSE] * 1000), 1))
        status, said = host(f"socket:{folder}/s", "echo", words_for(folder, compiler), "--timeout", "600")
        assert status == 0
        assert "boom" in said

    def test_answers_just_within_the_timeout_are_given_up_together(
        self, folder: Path, peers: list[Peer], compiler: str
    ) -> None:
        peers.append(Peer(folder / "s", (OPENED,), (PAUSE, b"\0" + bytes(8)), 100))
        status, said = host(f"socket:{folder}/s", "echo", words_for(folder, compiler), "--timeout", "0.45")
        assert status == 0
        assert "for that number" in said
        assert stats()["decisions"] < 16

    def test_a_server_that_hangs_is_waited_for_once_in_a_build(
        self, folder: Path, peers: list[Peer], compiler: str
    ) -> None:
        peers.append(Peer(folder / "s", tuple([PAUSE] * 1000), (), 0))
        words, address = words_for(folder, compiler), f"socket:{folder}/s"
        expected = plain(words)
        assert "within 0.3 s" in host(address, "echo", words, "--timeout", "0.3")[1]
        for server in (address, "socket:s"):
            status, said = host(server, "echo", words, "--timeout", "600")
            assert (status, Path("made.o").read_bytes()) == (0, expected)
            assert "it is asked again in" in said
        assert stats()["fallback"]["status"] == 4
        # Another policy, a build that does not want it, and a memory that is too old.
        assert "within 0.3 s" in host(address, "never", words, "--timeout", "0.3")[1]
        assert "within 0.3 s" in host(address, "echo", words, "--timeout", "0.3", "--retry-after", "0")[1]
        for memory in (folder / "runtime" / "policybridge").iterdir():
            os.utime(memory, (1, 1))
        assert "within 0.3 s" in host(address, "echo", words, "--timeout", "0.3")[1]

    def test_a_memory_that_others_can_write_is_not_used(self, folder: Path, peers: list[Peer], compiler: str) -> None:
        peers.append(Peer(folder / "s", tuple([PAUSE] * 1000), (), 0))
        (folder / "runtime" / "policybridge").mkdir()
        (folder / "runtime" / "policybridge").chmod(0o777)
        words = words_for(folder, compiler)
        for _ in range(2):
            assert "within 0.3 s" in host(f"socket:{folder}/s", "echo", words, "--timeout", "0.3")[1]


class TestAnyCommand:
    """A build that passes without the host passes with it."""

    @pytest.mark.parametrize("compiler", parameters("clang-19", "clang-22"))
    @pytest.mark.parametrize("file", [False, True], ids=["option", "file"])
    def test_bitcode_can_be_embedded(self, server: RunningServer, folder: Path, compiler: str, file: bool) -> None:
        (folder / "options").write_text("-fembed-bitcode")
        words = [*words_for(folder, compiler), "@options" if file else "-fembed-bitcode"]
        expected = plain(words)
        assert host(server.socket, "echo", words) == (0, "")
        assert Path("made.o").read_bytes() == expected
        assert stats()["decisions"] >= 16

    @pytest.mark.parametrize("compiler", parameters("clang-22"))
    def test_a_folder_for_temporary_files_in_which_none_can_be_made_is_passed_over(
        self, server: RunningServer, folder: Path, compiler: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        words = words_for(folder, compiler)
        expected = plain(words)
        monkeypatch.setenv("TMPDIR", "/proc")
        assert host(server.socket, "echo", words) == (0, "")
        assert Path("made.o").read_bytes() == expected


@pytest.mark.parametrize("compiler", parameters("clang-22"))
class TestGrowth:
    """A policy that always inlines."""

    def words(self, folder: Path, compiler: str) -> list[str]:
        return [compiler, "-Oz", "-c", write_growing(folder).name, "-o", "made.o"]

    def test_beyond_the_limit_the_compiler_decides_and_it_is_counted_and_told(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        status, said = host(server.socket, "always", self.words(folder, compiler))
        assert status == 0
        counted = stats()
        assert counted["limited"] > 0
        assert said.count(f"{counted['limited']} decisions are the compiler's own: ") == 1
        assert "--growth-limit" in said
        assert counted["fallback"] is None
        assert host(server.socket, "always", self.words(folder, compiler), "--growth-limit", "inf") == (0, "")
        assert (stats()["decisions"], stats()["limited"]) == (counted["decisions"] + counted["limited"], 0)

    def test_a_policy_that_follows_the_compiler_is_never_limited(
        self, server: RunningServer, folder: Path, compiler: str
    ) -> None:
        words = self.words(folder, compiler)
        expected = plain(words)
        assert host(server.socket, "echo", words, "--growth-limit", "0.001") == (0, "")
        assert (stats()["limited"], Path("made.o").read_bytes()) == (0, expected)


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("compiler", parameters("clang-19"))
def test_where_llvms_own_decision_is_not_known_the_growth_limit_is_llvms_own(
    server: RunningServer, folder: Path, compiler: str
) -> None:
    made = []
    for limit in ("1.1", "inf"):
        words = [compiler, "-O2", "-c", write_growing(folder).name, "-o", "made.o"]
        assert host(server.socket, "always", words, "--growth-limit", limit) == (0, "")
        # LLVM does not ask about what it limits.
        made.append((stats()["decisions"], stats()["limited"], len(Path("made.o").read_bytes())))
    (few, _, small), (many, _, large) = made
    assert few < many
    assert small < large
    assert [limited for _, limited, _ in made] == [0, 0]

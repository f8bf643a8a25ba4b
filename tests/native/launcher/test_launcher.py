"""What the launcher does otherwise than the Python host: passing commands through, and being started for each file."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from policybridge_client.llvm.versions import llvm_version
from policybridge_core.errors import Status
from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import demo_modules, library_root
from policybridge_server.ledger import LedgerReader
from tests.client.compilers import left_behind, parameters, write_source
from tests.client.hostile_first_server import acting, check_is_one_short_line, loud
from tests.client.test_llvm_failures import wait_until
from tests.conftest import RunningServer, command, running_server
from tests.native.launcher.running import HOST, lasting, run
from tests.native.launcher.test_malformed_input import header, observation
from tests.native.tls import serving_tls

ASKS_AND_ENDS = """
import sys, time
from pathlib import Path
base = next(word.partition("=")[2] for word in sys.argv if "channel-base=" in word)
replies, observations = open(base + ".in", "rb", buffering=0), open(base + ".out", "wb", buffering=0)
observations.write(Path("stream").read_bytes())
while not Path("asleep").exists():
    time.sleep(0.01)
sys.exit(7)
"""
"""A compiler that writes what the file ``stream`` has, and ends when the policy has begun to decide on it."""

NOWHERE = ["--policy", "echo", "--server", "socket:/nowhere/server.sock"]


def write_compiler(path: Path, lines: str) -> str:
    """Write a program that has the name of a compiler."""
    path.write_text(f"#!{sys.executable}\n{lines}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    "arguments",
    [
        "--version",
        "-print-resource-dir",
        "-E x.c",
        "-O2 -M x.c",
        "-O2 -fsyntax-only x.c",
        "-O2 -### -c x.c",
        "-cc1 -O2 x.c",
        "-c x.c",
        "-O2 -O0 -c x.c",
        "-O2 x.o y.a -lm -L lib -o program",
        "-O2 x.o libx.so.1.2 -Xlinker -E -o program.c",
        "-O2 -c x.s",
        "-O2 -c x.S",
        "-O2 -x assembler-with-cpp -c x.c",
        "-O2",
    ],
)
def test_a_command_that_needs_no_advice_becomes_the_compiler_itself(
    launcher: str, folder: Path, arguments: str
) -> None:
    compiler = write_compiler(folder / "clang", "import os, sys\nprint(os.getpid(), *sys.argv[1:])")
    words = [launcher, *NOWHERE, "--", compiler, *arguments.split()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        said, complaints = started.communicate()
    assert (said.split(), complaints) == ([str(started.pid), *arguments.split()], "")


@pytest.mark.parametrize(
    "arguments",
    [
        "-O2 -c x.c",
        "-O -c x.cc",
        "-Os -S x.ll",
        "-O2 x.c y.o -o program",
        "-O2 -x c -c x",
        "-O2 -x c -c -",
        "-O2 -MD -MF x.d -c x.c",
        "-c x.c -Xclang -Oz",
        "-c x.c -O0 -mllvm -x",
        "@arguments",
        "-O2 -Xlinker -E x.c",
        "-O2 -c -- x.c",
        "-O2 -c x.unknown",
    ],
)
def test_a_command_that_may_need_advice_gets_llvms_flags_for_it(launcher: str, folder: Path, arguments: str) -> None:
    compiler = write_compiler(folder / "clang", "import sys\nprint(*sys.argv[1:])")
    words = [launcher, "--policy", "weight", "--server", "/nowhere", "--task", "priority", "--fallback", "error"]
    said = subprocess.run([*words, "--", compiler, *arguments.split()], stdout=subprocess.PIPE, text=True, check=True)
    assert "-regalloc-enable-priority-advisor=release" in said.stdout.split()
    assert said.stdout.strip().endswith(arguments)


def test_a_launcher_that_can_make_no_process_becomes_the_compiler(
    launcher: str, server: RunningServer, folder: Path
) -> None:
    compiler = write_compiler(folder / "clang", "import os, sys\nprint(os.getpid(), *sys.argv[1:])")
    words = [
        *("prlimit", "--nofile=5:5"),
        launcher,
        "--policy",
        "weight",
        "--server",
        server.socket,
        "--task",
        "priority",
        "--",
        compiler,
        "-O2",
        "x.c",
    ]

    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as started:
        said, complaints = started.communicate()
    assert said.split() == [str(started.pid), "-O2", "x.c"]
    assert "Too many open files" in complaints


def test_a_compiler_inherits_the_same_descriptors_as_without_the_launcher(launcher: str, folder: Path) -> None:
    listing = "import os\nprint(*sorted(os.listdir('/proc/self/fd')), os.getcwd())"
    compiler = write_compiler(folder / "clang", listing)
    reading, writing = os.pipe()
    seen = []
    for before in ([], [launcher, "--policy", "x", "--server", "/nowhere", "--task", "evict", "--fallback", "error"]):
        words = [*before, compiler, "-O2", "-c", "x.c"]
        seen.append(subprocess.run(words, stdout=subprocess.PIPE, pass_fds=[reading, writing], check=True).stdout)
    assert seen[0] == seen[1]
    os.close(reading)
    os.close(writing)


def test_the_compiler_has_the_signal_mask_and_handlers_of_the_launcher(launcher: str, folder: Path) -> None:
    # Not SigQ: it counts the signals that wait for any process of this user.
    its = "[line for line in open('/proc/self/status') if line.startswith(('SigPnd', 'SigBlk', 'SigIgn', 'SigCgt'))]"
    compiler = write_compiler(folder / "clang", f"print({its})")
    words = [launcher, "--policy", "x", "--server", "/nowhere", "--task", "evict", "--fallback", "error", compiler]
    bare, hosted = ((["nohup", *start, "-O2", "x.c"]) for start in ([compiler], words))
    seen = [subprocess.run(each, capture_output=True, check=True).stdout for each in (bare, hosted)]
    assert seen[0] == seen[1]


@pytest.mark.parametrize("compiler", parameters("clang-22"))
def test_killed_at_any_moment_it_leaves_neither_pipes_nor_processes(
    launcher: str, server: RunningServer, folder: Path, compiler: str
) -> None:
    write_source(folder, functions=40)
    words = [launcher, "--policy", "echo", "--server", server.socket, "--", compiler, "-O2", "-c", "module.c"]
    chance = random.Random(5)
    for _ in range(25):
        with subprocess.Popen(words) as started:
            try:
                started.wait(chance.uniform(0, 0.1))
            except subprocess.TimeoutExpired:
                started.kill()
    channels = Path(os.environ["TMPDIR"])
    wait_until(lambda: not left_behind(channels) and not list(channels.iterdir()))


def test_the_outcome_of_a_compiler_that_ends_while_it_waits_for_advice_is_in_the_ledger(
    launcher: str, policies: Path, folder: Path
) -> None:
    compiler = write_compiler(folder / "clang", ASKS_AND_ENDS)
    (folder / "stream").write_bytes(header() + observation(0, 0.5))
    options = ["--task", "priority", "--policy", "weight", "--option", "sleep_at=1", "--fallback", "error"]
    options += ["--label", f"asleep={folder}/asleep"]
    with (
        TemporaryDirectory(prefix="pb-") as scratch,
        running_server(policies, Path(scratch), "--ledger", f"{scratch}/ledger.db") as server,
    ):
        ran = run([launcher], [*options, "--server", server.socket], [compiler, "-O2", "-c", "x.c"])
        (folder / "asleep").unlink()
        with LedgerReader(Path(scratch) / "ledger.db") as reader:
            (session,) = ran.stats["sessions"]
            outcome = reader.session(session).outcome
    assert ran.status == 7
    assert outcome is not None


@pytest.mark.parametrize("compiler", parameters("clang-22"))
def test_of_several_addresses_the_first_socket_that_answers_is_asked(
    launcher: str, server: RunningServer, folder: Path, compiler: str
) -> None:
    write_source(folder)
    addresses = f"grpcs:elsewhere:1,socket:{folder}/nobody, {server.socket},socket:{folder}/nobody-else"
    words = [compiler, "-O2", "-c", "module.c", "-o", "made.o"]
    options = ["--policy", "echo", "--fallback", "error"]
    asked = [
        run(host, options, words, {**os.environ, "POLICYBRIDGE_SERVER": addresses.replace("grpcs:elsewhere:1,", more)})
        for host, more in (([launcher], "grpcs:elsewhere:1,"), (HOST, ""))
    ]
    assert [each.stats["decisions"] > 0 for each in asked] == [True, True], asked
    nobody = addresses.replace(server.socket, f"socket:{folder}/none")
    ended = run([launcher], options, words, {**os.environ, "POLICYBRIDGE_SERVER": nobody})
    assert ended.status == 70
    assert "none of 3 servers answers" in ended.said


@pytest.mark.parametrize("address", ["grpc:127.0.0.1:50051", "127.0.0.1:50051", "inprocess:/x", "grpc:unix:/x", "name"])
def test_an_address_that_is_not_a_sockets_is_refused_with_the_alternative(launcher: str, address: str) -> None:
    words = [launcher, "--policy", "echo", "--server", address, "--", "clang", "-c", "x.c"]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert address in refused.stderr
    assert "socket:PATH" in refused.stderr
    assert "`policybridge run`" in refused.stderr
    assert "-DPOLICYBRIDGE_LAUNCHER_STATIC=OFF" in refused.stderr


@pytest.mark.parametrize(
    ("address", "cure"), [("http://localhost:80", "grpc:HOST:PORT"), ("gone.sock", "socket:gone.sock")]
)
def test_what_is_plainly_no_address_is_refused_with_the_one_that_is_meant(
    launcher: str, address: str, cure: str
) -> None:
    words = [launcher, "--policy", "echo", "--server", address, "--", "clang", "-c", "x.c"]
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (refused.returncode, address in refused.stderr, cure in refused.stderr) == (2, True, True)


@pytest.mark.parametrize("compiler", parameters("clang-22"))
def test_over_tls_the_files_of_the_command_line_let_the_launcher_in(
    grpc_launcher: str, folder: Path, compiler: str
) -> None:
    write_source(folder)
    words = [compiler, "-O2", "-c", "module.c", "-o", "made.o"]
    with serving_tls() as served:
        files = served.environment()
        options = ["--policy", "echo", "--server", served.tls, "--tls-ca", files["tls_ca"]]
        refused = run([grpc_launcher], options, words)
        asked = run([grpc_launcher], [*options, "--token-file", files["token_file"], "--fallback", "error"], words)
    assert (refused.status, refused.stats["fallback"]["status"]) == (0, Status.UNAUTHENTICATED.value)
    assert (asked.status, asked.said, asked.stats["fallback"]) == (0, "", None)
    assert asked.stats["decisions"] > 0
    assert asked.output == refused.output


@pytest.mark.parametrize("fallback", ["default", "error"])
@pytest.mark.parametrize("compiler", parameters("clang-22"))
def test_a_servers_message_is_one_short_line(launcher: str, folder: Path, compiler: str, fallback: str) -> None:
    write_source(folder)
    with acting(loud) as server:
        options = ["--policy", "echo", "--server", server, "--fallback", fallback]
        check_is_one_short_line(run([launcher], options, [compiler, "-O2", "-c", "module.c"]).said)


def test_help_names_every_option_of_the_python_command(launcher: str) -> None:
    said = subprocess.run(command("run", "--help"), capture_output=True, text=True, check=True).stdout
    options = {word.strip("[],") for word in said.split() if word.startswith("--") and len(word) > 2}
    helped = subprocess.run([launcher, "--help"], capture_output=True, text=True, check=True)
    assert options
    assert [option for option in options if option not in helped.stdout] == []


class TestVersions:
    """LLVM's version determines how its own decision becomes known; ``--version`` takes a process to find out."""

    SCRIPT = "import sys\nopen(sys.argv[0] + '.log', 'a').write(sys.argv[1] + '\\n')\nprint('clang version 22.1.0')"

    def compile(self, launcher: str, compiler: str) -> Sequence[str]:
        words = [launcher, "--policy", "echo", "--server", "/nowhere", "--fallback", "error", "--", compiler]
        subprocess.run([*words, "-O2", "-c", "x.c"], check=True, stdout=subprocess.DEVNULL)
        return Path(f"{compiler}.log").read_text().split()

    @pytest.fixture(autouse=True)
    def cache(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return folder / "cache"

    def test_version_is_run_once_for_a_compiler(self, launcher: str, folder: Path) -> None:
        compiler = write_compiler(folder / "clang", self.SCRIPT)
        for _ in range(3):
            started = self.compile(launcher, compiler)
        assert started.count("--version") == 1
        assert len(started) == 4

    def test_version_is_run_again_for_a_replaced_compiler(self, launcher: str, folder: Path) -> None:
        compiler = write_compiler(folder / "clang", self.SCRIPT)
        self.compile(launcher, compiler)
        os.utime(compiler, (1, 1))
        assert self.compile(launcher, compiler).count("--version") == 2

    def test_version_is_run_every_time_for_a_wrapper(self, launcher: str, folder: Path) -> None:
        Path(write_compiler(folder / "ccache", self.SCRIPT))
        compiler = folder / "clang"
        compiler.symlink_to(folder / "ccache")
        self.compile(launcher, str(compiler))
        assert self.compile(launcher, str(compiler)).count("--version") == 2

    def test_the_python_host_uses_the_same_cache(self, launcher: str, folder: Path, cache: Path) -> None:
        compiler = write_compiler(folder / "clang", self.SCRIPT)
        self.compile(launcher, compiler)
        assert llvm_version([compiler]) == 22
        assert self.compile(launcher, compiler).count("--version") == 1

    def test_the_version_of_ziglang_is_found_without_starting_it(
        self, launcher: str, folder: Path, server: RunningServer, cache: Path
    ) -> None:
        write_source(folder)
        zig = [sys.executable, "-m", "ziglang", "cc"]
        assert llvm_version(zig) >= 21
        (kept,) = (cache / "policybridge" / "llvm-versions").iterdir()
        kept.write_text("19")  # so that an answer from there can be told from zig's own
        options = ["--policy", "never", "--option", "raise_at=5", "--server", server.socket]
        assert run([launcher], options, [*zig, "-O2", "-c", "module.c", "-o", "made.o"]).stats["fallback"]["restarted"]


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(None, tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.mark.parametrize("compiler", parameters("clang-19", "clang-22"))
def test_an_echo_of_the_default_gives_the_demos_objects_of_plain_oz(
    launcher: str, bundled: RunningServer, tmp_path: Path, compiler: str
) -> None:
    asking = [launcher, "--policy", "inlining-default", "--server", bundled.socket, "--fallback", "error", "--"]
    modules = demo_modules()[8::6]

    def compile_both(number: int) -> bool:
        made = []
        for before in ([], asking):
            output = tmp_path / f"{number}-{len(before)}.o"
            words = [*before, *COMPILERS[compiler](modules[number], output)]
            subprocess.run(words, check=True, cwd=library_root())
            made.append(output.read_bytes())
        return made[0] == made[1]

    with ThreadPoolExecutor(4) as pool:
        identical = list(pool.map(compile_both, range(len(modules))))
    assert len(modules) > 10
    assert all(identical)


def said(*words: object) -> str:
    return subprocess.run(command(*words), capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("output", [["-o", "made.o"], []])
def test_a_compilation_of_the_launchers_can_be_replayed_from_the_ledger(
    launcher: str, policies: Path, folder: Path, tmp_path_factory: pytest.TempPathFactory, output: list[str]
) -> None:
    ledger = folder / "runs.db"
    write_source(folder)
    with running_server(policies, tmp_path_factory.mktemp("s"), "--ledger", ledger) as running:
        compiler = shutil.which("clang-22") or "clang-22"
        if not Path(compiler).exists():
            pytest.skip("no clang-22 here")
        words = [compiler, "-Oz", "-c", "module.c", *output]
        ran = run([launcher], ["--policy", "echo", "--server", running.socket, "--label", "a=b"], words)
        assert ran.stats["sessions"][0][:12] in said("sessions", "list", "--ledger", ledger, "--status", "ok")
    replayed = said("replay", "--ledger", ledger, ran.stats["sessions"][0])
    assert replayed.strip() == f"identical: {ran.stats['decisions']} observations and the object"
    assert lasting(ran.stats)["sessions"] == 1
    with LedgerReader(ledger) as reader:
        trajectory = reader.trajectory(reader.session(ran.stats["sessions"][0]))
        assert {context for batch in trajectory.batches for context in batch.contexts} == {"module.c"}

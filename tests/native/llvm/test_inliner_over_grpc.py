"""The inline advisor over gRPC and TLS: whatever listens, is demanded or is installed, a compilation succeeds."""

import json
import random
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policybridge_core.errors import Status
from tests.client.compilers import write_source
from tests.client.hostile_first_server import acting, check_is_one_short_line, loud
from tests.conftest import ServerFactory
from tests.native.conftest import Target, build_grpc
from tests.native.llvm.plugins import Plugin, built_plugin, emit, need, write_policies
from tests.native.tls import Served, serving_tls

MAJOR = "22"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
"""An empty frame of HTTP/2, with which a server begins."""

pytestmark = pytest.mark.usefixtures("own_memory")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving_tls() as served:
        yield served


@dataclass(frozen=True)
class Compilation:
    """A module, the plugin that optimises it by a policy's echo of LLVM's decision, and the result without a plugin."""

    plugin: Plugin
    module: Path
    plain: bytes

    def run(self, **settings: str) -> str:
        """Optimise with these settings; check that the result is the plain one, and give what was said."""
        made = self.plugin.opt(self.module, "echo", **settings)
        assert (made.status, made.bitcode) == (0, self.plain)
        return made.said

    def falls_back(self, **settings: str) -> str:
        """Do the same where LLVM decides everything, and one line says so."""
        said = self.run(**settings)
        assert (said.count("\n"), said.startswith("policybridge: all decisions are the compiler's own: ")) == (1, True)
        return said


@pytest.fixture(scope="module")
def compilation(native: Target, served: Served, tmp_path_factory: pytest.TempPathFactory) -> Compilation:
    build_grpc(native)
    plugin = Plugin(MAJOR, built_plugin(native, "inliner", MAJOR), served.tls)
    folder = tmp_path_factory.mktemp("module")
    module = emit(MAJOR, write_source(folder), folder / "module.bc")
    return Compilation(plugin, module, plugin.plain(module))


def test_a_client_that_trusts_the_server_and_has_a_token_is_served(
    compilation: Compilation, served: Served, tmp_path: Path
) -> None:
    assert compilation.run(stats=str(tmp_path / "stats.json"), **served.environment()) == ""
    assert json.loads((tmp_path / "stats.json").read_text())["decisions"] > 5


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"tls_ca": "others/ca.pem"}, Status.UNAVAILABLE),
        ({"tls_ca": ""}, Status.UNAVAILABLE),
        ({"tls_ca": "none.pem"}, Status.INVALID_ARGUMENT),
        ({"token_file": ""}, Status.UNAUTHENTICATED),
        ({"token_file": "nobody"}, Status.UNAUTHENTICATED),
        ({"token_file": "none"}, Status.INVALID_ARGUMENT),
    ],
)
def test_without_trust_or_a_token_the_compiler_decides_and_one_line_says_so(
    compilation: Compilation, served: Served, tmp_path: Path, changes: dict[str, str], status: Status
) -> None:
    compilation.falls_back(stats=str(tmp_path / "stats.json"), **served.environment(**changes))
    assert json.loads((tmp_path / "stats.json").read_text())["fallback"]["status"] == status.value


@contextmanager
def listening(sent: tuple[bytes, ...], *, closes: bool) -> Iterator[str]:
    """Listen on TCP, send that to whoever connects, and then close or say no more; give the target."""
    over = threading.Event()

    class Peer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                for part in sent:
                    self.request.sendall(part)
                if not closes:
                    over.wait()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Peer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()
            thread.join()


NOISE = random.Random(7).randbytes(1 << 20)


@pytest.mark.parametrize("scheme", ["grpc", "grpcs"])
@pytest.mark.parametrize(
    ("sent", "closes"),
    [((), True), ((NOISE,), False), ((SETTINGS, NOISE), False), ((b"HTTP/1.1 200 OK\r\n\r\n",), False)],
    ids=["closes", "noise", "noise-later", "web"],
)
def test_a_server_of_another_kind_changes_nothing(
    compilation: Compilation, scheme: str, sent: tuple[bytes, ...], closes: bool
) -> None:
    with listening(sent, closes=closes) as target:
        compilation.falls_back(server=f"{scheme}:{target}")


def test_a_silent_server_is_waited_for_once_and_not_at_all_where_another_answers(
    compilation: Compilation, served: Served
) -> None:
    with listening((SETTINGS,), closes=False) as target:
        first = compilation.falls_back(server=f"grpc:{target}", timeout="0.3")
        again = compilation.falls_back(server=f"grpc:{target}", timeout="600")
        assert f"no answer from the server at {target} within 0.3 s" in first
        assert "it is asked again in" in again
        several = f"grpcs:{target},{served.tls}"
        for timeout in ("2", "600"):
            assert compilation.run(server=several, timeout=timeout, **served.environment()) == ""


@pytest.mark.parametrize("fallback", ["default", "error"])
def test_a_servers_message_is_one_short_line(compilation: Compilation, fallback: str) -> None:
    with acting(loud) as server:
        made = compilation.plugin.opt(compilation.module, "echo", server=server, fallback=fallback)
    check_is_one_short_line(made.said)


def test_where_no_thread_can_be_started_the_compiler_decides(
    compilation: Compilation, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # gRPC itself would wait for its threads for ever. A limit of the system does not bind root, so a library refuses.
    source = tmp_path / "refuse.c"
    source.write_text("#include <errno.h>\nint pthread_create(void) { return EAGAIN; }\n")
    library = source.with_suffix(".so")
    subprocess.run(["g++", "-x", "c", "-w", "-shared", "-fPIC", source, "-o", library], check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    assert "this process may start only 0" in compilation.falls_back(**served.environment())


WATCHING = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
extern char *program_invocation_short_name;
static void tell(const char *what) {
  int threads, tries = 0, file = open(getenv("WATCHED"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  /* A thread that ends is listed for a moment longer, on a busy machine for a long one. A channel that was given up
     between its handshake and the server's first bytes holds gRPC for 20 seconds. */
  do {
    DIR *tasks = opendir("/proc/self/task");
    for (threads = -2; readdir(tasks); ++threads)
      ;
    closedir(tasks);
  } while (threads > 1 && strcmp(what, "thread") && ++tries < 3000 && !usleep(10000));
  dprintf(file, "%s %s %d\n", program_invocation_short_name, what, threads);
  close(file);
}
__attribute__((constructor)) static void begin(void) { tell("start"); }
__attribute__((destructor)) static void end(void) { tell("exit"); }
int pthread_create(pthread_t *made, const pthread_attr_t *how, void *(*run)(void *), void *with) {
  Dl_info from;
  if (dladdr(__builtin_return_address(0), &from) && strstr(from.dli_fname, "/libgpr."))
    tell("thread");
  return ((__typeof__(&pthread_create))dlsym(RTLD_NEXT, "pthread_create"))(made, how, run, with);
}
int posix_spawn(pid_t *made, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                char *const words[], char *const variables[]) {
  tell("spawn");
  return ((__typeof__(&posix_spawn))dlsym(RTLD_NEXT, "posix_spawn"))(made, path, actions, how, words, variables);
}
ssize_t write(int file, const void *bytes, size_t count) {
  if (file == STDERR_FILENO)
    tell("report");
  return ((__typeof__(&write))dlsym(RTLD_NEXT, "write"))(file, bytes, count);
}
"""
"""A library to preload, which tells the number of a process' threads: where gRPC starts one, at its beginning and end,
where it starts another process, and where it writes to standard error."""


@pytest.mark.parametrize(
    ("policy", "moments"),
    [("echo", {"spawn"}), ("echo", {"thread", "spawn"}), ("dying", {"thread", "spawn", "report"})],
    ids=["nothing to ask", "decisions", "a dead server"],
)
def test_grpc_has_no_threads_when_the_compiler_ends_links_or_reports(
    compilation: Compilation, server_factory: ServerFactory, tmp_path: Path, policy: str, moments: set[str]
) -> None:
    write_policies(tmp_path / "policies")
    plugin = replace(compilation.plugin, server=server_factory(tmp_path / "policies").grpc)
    source = write_source(tmp_path, functions=8 if "thread" in moments else 0)
    watch, library = tmp_path / "watch.c", tmp_path / "watch.so"
    watch.write_text(WATCHING)
    subprocess.run([need("gcc"), "-w", "-shared", "-fPIC", watch, "-o", library], check=True)
    words = ["-Oz", "-shared", "-fPIC", f"-fpass-plugin={plugin.path}", source, "-o", tmp_path / "made.so"]
    watched = {"LD_PRELOAD": str(library), "WATCHED": str(tmp_path / "watched")}
    environment = plugin.environment(policy, fallback="error") | watched
    done = subprocess.run([need(f"clang-{MAJOR}"), *map(str, words)], env=environment, capture_output=True, check=False)
    assert done.returncode == ("report" in moments), done.stderr
    told = [line.split() for line in (tmp_path / "watched").read_text().splitlines()]
    threads: dict[str, set[int]] = {}
    for program, moment, count in told:
        if program.startswith("clang"):
            threads.setdefault(moment, set()).add(int(count))
    # Where nothing is asked, the connection that was begun may have come to threads, too.
    assert {*threads} | {"thread"} == {"start", "exit", "thread", *moments}
    assert {*threads} >= {"start", "exit", *moments}
    assert max(threads.pop("thread", {2})) > 1
    assert {*map(max, threads.values())} == {1}


class TestInstallation:
    """The plugin loads what speaks gRPC from its own folder, and only where an address needs it."""

    @pytest.fixture
    def moved(self, compilation: Compilation, tmp_path: Path) -> Compilation:
        """Copy the plugin, and nothing else, into a folder."""
        folder = tmp_path / "a folder"
        folder.mkdir()
        path = Path(shutil.copy(compilation.plugin.path, folder))
        return replace(compilation, plugin=replace(compilation.plugin, path=path))

    def test_without_the_part_for_grpc_the_compiler_decides_and_a_socket_serves(
        self, moved: Compilation, served: Served
    ) -> None:
        said = moved.falls_back(**served.environment())
        assert "policybridge-grpc.so" in said
        assert "POLICYBRIDGE_GRPC=ON" in said
        assert "none of 2 servers answers" in moved.falls_back(server=f"{served.tls},{served.socket}-none")
        for server in (served.socket, f"{served.tls},{served.socket}"):
            assert moved.run(server=server, fallback="error") == ""

    @pytest.mark.parametrize(("kind", "message"), [("cut", "cannot be loaded"), ("other", "of another build")])
    def test_a_part_that_does_not_fit_is_not_used(
        self, native: Target, moved: Compilation, kind: str, message: str
    ) -> None:
        part = build_grpc(native)
        content, build = part.read_bytes(), _build_of(moved.plugin.path)
        assert content.count(build) == 1
        changed = content[: len(content) // 2] if kind == "cut" else content.replace(build, build[::-1])
        (moved.plugin.path.parent / part.name).write_bytes(changed)
        assert message in moved.falls_back()


def _build_of(plugin: Path) -> bytes:
    """Give the mark that a plugin and what it loads share."""
    mark = b"build of PolicyBridge "
    content = plugin.read_bytes()
    return content.partition(mark)[2].partition(b"\0")[0]

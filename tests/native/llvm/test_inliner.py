"""The inline advisor in stock opt and clang: a compilation succeeds, whatever happens to the server."""

import json
import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from policybridge_client.decisions import read_sites
from policybridge_serdes import Values
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from tests.client.compilers import write_growing, write_source
from tests.conftest import RunningServer, ServerFactory, command
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import (
    Plugin,
    built_plugin,
    emit,
    emit_demo,
    made_at_a_silent_server,
    need,
    write_policies,
)

REAL = (
    "libc/musl/src/stdio/vfprintf.c",
    "libunwind/src/libunwind.cpp",
    "libtsan/tsan_rtl.cpp",
)
UNREACHABLE = "libcxx/src/filesystem/operations.cpp"
"""Calls in unreachable blocks, which LLVM's heuristic may inline and its machine-learned advisor never does."""

RECURSIVE = """
#include <stdlib.h>
#include <string.h>
typedef struct cell { char *name; struct cell *link; } Cell;
static Cell *append(Cell *root, char *name) {
  if (root == NULL) {
    Cell *made = malloc(sizeof *made);
    made->name = malloc(5 + strlen(name));
    strcpy(made->name, name);
    made->link = NULL;
    return made;
  }
  Cell *last = root;
  while (last->link != NULL)
    last = last->link;
  last->link = append(last->link, name);
  return root;
}
Cell *all(char **names, int count) {
  Cell *list = NULL;
  for (int n = 0; n < count; n++)
    list = append(list, names[n]);
  return list;
}
int next(int x) { return x + 1; }
int twice(int x) { return next(next(x)); }
"""
"""As bzip2.c keeps its file names. LLVM's heuristic inlines the recursion, its machine-learned advisor never does."""

COROUTINE = """
#include <coroutine>
struct task {
  struct promise_type {
    task get_return_object() { return {}; }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
};
static void step(int x) { asm volatile("" ::"r"(x)); }
task steps(int n) {
  for (int i = 0; i < n; ++i) {
    step(i);
    co_await std::suspend_always{};
  }
}
"""
"""LLVM splits it into functions that are copies of it."""


pytestmark = pytest.mark.usefixtures("own_memory")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    return repository


@pytest.fixture(params=MAJORS)
def plugin(request: pytest.FixtureRequest, native: Target, server: RunningServer) -> Plugin:
    """Give the plugin of every major in turn."""
    return Plugin.of(native, "inliner", request.param, server)


EVERY_TRANSPORT = pytest.mark.parametrize("plugin", [*MAJORS, "22-grpc"], indirect=True)
"""For tests of what a server can do to a compilation."""


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep the demo's modules, translated once."""
    return tmp_path_factory.mktemp("demo")


@pytest.fixture
def module(plugin: Plugin, tmp_path: Path) -> Path:
    return emit(plugin.major, write_source(tmp_path), tmp_path / "module.bc")


def last_session(ledger: Path, policy: str) -> SessionRecord:
    with LedgerReader(ledger) as reader:
        return list(reader.sessions(Query(policy=policy)))[-1]


def observations(ledger: Path, session: SessionRecord) -> Values:
    with LedgerReader(ledger) as reader:
        (batch,) = reader.trajectory(session).batches
        return batch.observations


@pytest.mark.parametrize(
    ("plugin", "source"),
    [*product(MAJORS, [*REAL, UNREACHABLE]), *product(["22-grpc"], REAL)],
    indirect=["plugin"],
)
def test_an_echo_of_the_default_gives_the_bitcode_of_plain_oz(
    plugin: Plugin, demo: Path, tmp_path: Path, source: str
) -> None:
    module = emit_demo(plugin.major, source, demo)
    made = plugin.opt(module, "echo", stats=str(tmp_path / "stats.json"))
    assert (made.status, made.said) == (0, "")
    assert made.bitcode == plugin.plain(module)
    assert json.loads((tmp_path / "stats.json").read_text())["decisions"] > 5


@pytest.mark.parametrize("plugin", MAJORS, indirect=True)
def test_statistics_go_through_a_link_and_through_a_device_and_take_the_place_of_neither(
    plugin: Plugin, demo: Path, tmp_path: Path
) -> None:
    module = emit_demo(plugin.major, REAL[0], demo)
    link, full = tmp_path / "link", tmp_path / "full"
    (tmp_path / "behind").write_text("x" * 100_000)
    link.symlink_to("behind")
    full.symlink_to("/dev/full")
    assert plugin.opt(module, "echo", stats=str(link)).status == 0
    assert json.loads((tmp_path / "behind").read_text())["decisions"] > 5
    made = plugin.opt(module, "echo", stats=str(full))
    assert (made.status, made.bitcode) == (0, plugin.plain(module))
    assert "No space left on device" in made.said
    assert link.is_symlink()
    assert full.is_symlink()


@pytest.mark.parametrize("passes", ["default<O1>", "default<O2>", "default<O3>", "default<Os>", "thinlto<O2>"])
def test_an_echo_gives_the_bitcode_of_the_plain_pipeline_at_every_level(
    plugin: Plugin, tmp_path: Path, passes: str
) -> None:
    module = emit(plugin.major, write_source(tmp_path), tmp_path / "module.bc", "-O2")
    made = plugin.opt(module, "echo", passes, stats=str(tmp_path / "stats.json"))
    assert (made.status, made.said) == (0, "")
    assert made.bitcode == plugin.plain(module, passes)
    assert json.loads((tmp_path / "stats.json").read_text())["decisions"] > 5


@pytest.mark.parametrize("source", REAL)
def test_observations_are_those_of_llvms_interactive_mode(
    plugin: Plugin, demo: Path, ledger: Path, tmp_path: Path, source: str
) -> None:
    _assert_llvms_observations(plugin, emit_demo(plugin.major, source, demo), ledger, tmp_path)


_ALIKE = """
struct Pair { int first, second; int rest[6]; };
extern "C" int shown(const void *);
static int sum(Pair *to, int *from, int count) {
  if (to == nullptr || !from) return -1;
  int all = to->first;
  for (int n = 0; n < count; ++n) all += from[n] * to->second;
  return all == 3 ? shown(to) + shown(from) : all;
}
static int alone(int x) { return x * shown(&x) + shown(nullptr) * x; }
static bool same(const int *one, const int *other) { return one == other ? shown(one) > 2 : shown(other) > shown(one); }
template <int N> __attribute__((optsize)) int small(Pair *pair, int *given) {
  return sum(pair, given, N) + sum(pair, given, N);
}
int twice(Pair *pair, int *given, int n) { return sum(pair, given, n) + sum(pair, given + n, n) + sum(pair, given, n); }
int consts(Pair *pair, int *given) {
  return sum(pair, given, 4) + sum(pair, given, 0) + sum(nullptr, given, 4) + sum(pair, given, 4);
}
int locals(int *given) {
  Pair mine{1, 2, {}}, other{2, 3, {}};
  return sum(&mine, given, 3) + sum(&other, given, 3) + sum(&mine, mine.rest, 3) + sum(&other, mine.rest, 3);
}
int places(Pair *pair, long at) {
  return same(pair->rest, pair->rest) + same(pair->rest, pair->rest + 1) + same(pair->rest + 1, pair->rest + 2) +
         same(pair->rest, pair[at].rest) + same(&pair->first, pair[at].rest);
}
int again(int n, int *given) {
  Pair mine{n, n, {}};
  return n < 2 ? sum(&mine, given, 2) : again(n - 1, given) + sum(&mine, given, 2);
}
int once(int x) { return alone(x) + 1; }
static int tiny(int x) { return x * 3 + 1; }
int both(int x, int y) { return tiny(x) + tiny(y); }
static int pick(int kind, int *given) {
  if (kind == 1) return shown(given) + shown(given + 1) * shown(given + 2);
  if (kind == 2) return shown(given) - shown(given + 3);
  return shown(given + kind) * shown(given - kind) + shown(nullptr);
}
int picks(int *given, int kind) { return pick(1, given) + pick(2, given) + pick(kind, given) + pick(1, given); }
static int peek(const Pair &at) { return at.first * 3 + at.second * shown(at.rest) + at.rest[1] * at.rest[2]; }
int peeks(Pair &given) {
  Pair mine{3, 4, {}};
  return peek(given) + peek(mine) + peek(given) + peek(mine);
}
int peeks_again(Pair &given, Pair &other) { return peek(other) + peek(given) * peek(given); }
static int odd(int n, int *given);
static int even(int n, int *given) {
  return n == 0 ? shown(given) : odd(n - 1, given) + odd(n - 1, given) + shown(&n);
}
static int odd(int n, int *given) {
  return n == 0 ? shown(given) * 2 : even(n - 1, given) + even(n - 1, given) + shown(&n);
}
int parity(int n, int *given) { return even(n, given) + odd(n, given) + even(n, given); }
int first(Pair *pair, int *given) { return small<2>(pair, given) + small<5>(pair, given); }
int ring_a(int n, int *given), ring_b(int n, int *given), ring_c(int n, int *given), ring_d(int n, int *given);
static int step(int x, int *given) { return given[x] * 3 + 1; }
int ring_a(int n, int *given) { return n < 2 ? shown(given) : ring_b(n - 1, given) + shown(&n) * step(n, given); }
int ring_b(int n, int *given) { return n < 3 ? shown(given) : ring_c(n - 2, given) + step(n, given) * step(2, given); }
int ring_c(int n, int *given) { return n < 4 ? step(n, given) : ring_a(n - 3, given) + ring_d(n - 1, given); }
int ring_d(int n, int *given) { return n < 5 ? shown(given) : ring_b(n - 1, given) - shown(&n) * step(n, given); }
[[noreturn]] void ends(Pair *pair, int *given) { sum(pair, given, 4); __builtin_trap(); }
struct Guard { ~Guard() { shown(this); } };
int guarded(Pair *pair, int *given) {
  Guard guard;
  return sum(pair, given, 4) + sum(pair, given, 4) + twice(pair, given, 2);
}
"""


@pytest.mark.parametrize("level", ["-O2", "-Os", "-Oz"])
def test_observations_of_calls_that_are_alike_are_those_of_llvms_interactive_mode(
    plugin: Plugin, ledger: Path, tmp_path: Path, level: str
) -> None:
    source = tmp_path / "alike.cpp"
    source.write_text(_ALIKE)
    module = emit(plugin.major, source, tmp_path / "module.bc", level)
    sent = _assert_llvms_observations(plugin, module, ledger, tmp_path)
    measured = [name for name in sent.dtype.names or () if name in _MEASURED]
    assert len(np.unique(sent[measured])) < 0.8 * len(sent)


_MEASURED = ("cost_estimate", "callee", "constant_args", "constant_offset_ptr_args", "simplified_instructions")


def _assert_llvms_observations(plugin: Plugin, module: Path, ledger: Path, folder: Path) -> Values:
    opt = [f"opt-{plugin.major}", "-passes=default<Oz>", module, "-o", folder / "made.bc"]
    asking = command("run", "--policy", "echo", "--server", plugin.server, "--fallback", "error", "--", *opt)
    subprocess.run(asking, check=True)
    interactive = observations(ledger, last_session(ledger, "echo"))
    assert plugin.opt(module, "echo").status == 0
    sent = observations(ledger, last_session(ledger, "echo"))
    theirs = interactive.dtype.names or ()
    ours = ("site", "caller", "callee", "callee_local", "callee_discardable", "caller_discardable")
    assert sent.dtype.names == (*theirs, *ours, "callee_instructions", "caller_instructions")
    assert sent[list(theirs)].astype(interactive.dtype).tobytes() == interactive.tobytes()
    return sent


def test_observations_tell_the_site_caller_and_callee_as_a_log_of_sites_does(
    plugin: Plugin, module: Path, ledger: Path, tmp_path: Path
) -> None:
    assert plugin.opt(module, "echo").status == 0
    sent = observations(ledger, last_session(ledger, "echo"))
    log_file = tmp_path / "sites"
    assert plugin.opt(module, "echo", flags=[f"-policybridge-sites={log_file}"]).status == 0
    log = read_sites(log_file)

    def hashes(texts: Sequence[str]) -> list[str]:
        return [sha256(text.encode()).hexdigest()[:16] for text in texts]

    def shown(name: str) -> list[str]:
        return [f"{value:016x}" for value in sent[name].reshape(-1).astype(np.uint64).tolist()]

    assert shown("site") == list(log.keys)
    assert shown("caller") == hashes(log.caller)
    assert shown("callee") == hashes(log.callee)
    assert sent["callee_local"].reshape(-1).tolist() == log.numbers["callee_local"].tolist()
    assert sent["inlining_default"].reshape(-1).tolist() == log.default.tolist()


def test_observations_tell_which_functions_need_not_be_emitted_and_which_the_module_alone_can_call(
    plugin: Plugin, ledger: Path, tmp_path: Path
) -> None:
    source = tmp_path / "kinds.cpp"
    source.write_text(
        'extern "C" {\n'
        "int sink(int);\n"
        "static int own(int x) { return sink(x) + sink(x + 1) * sink(x + 2); }\n"
        "inline int everywhere(int x) { return own(x) + sink(x + 3); }\n"
        "int open(int x) { return own(x) * everywhere(x + 1) + sink(x); }\n"
        "int last(int x) { return open(x) + open(x + 1) + everywhere(x); }\n"
        "}\n"
    )
    own = "_ZL3owni"
    module = emit(plugin.major, source, tmp_path / "module.bc", "-O2")
    assert plugin.opt(module, "echo").status == 0
    sent = observations(ledger, last_session(ledger, "echo"))
    names = {sha256(name.encode()).digest()[:8]: name for name in (own, "everywhere", "open", "last")}
    told = {
        (names[int(sent[side][place, 0]).to_bytes(8, "big", signed=True)], int(sent[f"{side}_discardable"][place, 0]))
        for side in ("caller", "callee")
        for place in range(len(sent))
    }
    assert told == {(own, 1), ("everywhere", 1), ("open", 0), ("last", 0)}
    local = {
        (names[int(callee).to_bytes(8, "big", signed=True)], int(own_alone))
        for callee, own_alone in zip(sent["callee"][:, 0], sent["callee_local"][:, 0], strict=True)
    }
    assert local == {(own, 1), ("everywhere", 0), ("open", 0)}


def test_observations_tell_the_instructions_of_caller_and_callee(plugin: Plugin, ledger: Path, tmp_path: Path) -> None:
    source = tmp_path / "sizes.c"
    source.write_text("int sink(int);\nint one(int x) { return sink(x); }\nint two(int x) { return one(x + 1); }\n")
    module = emit(plugin.major, source, tmp_path / "module.bc", "-O2")
    assert plugin.opt(module, "echo").status == 0
    (sent,) = observations(ledger, last_session(ledger, "echo")).reshape(-1)
    # A call and a return; and an addition.
    assert (int(sent["callee_instructions"][0]), int(sent["caller_instructions"][0])) == (2, 3)


def test_the_default_in_the_observation_is_llvms_own_decision_and_not_computed_from_the_cost(
    plugin: Plugin, ledger: Path, tmp_path: Path
) -> None:
    module = emit(plugin.major, write_source(tmp_path), tmp_path / "module.bc", "-O2")
    assert plugin.opt(module, "echo", "default<O2>").status == 0
    sent = observations(ledger, last_session(ledger, "echo"))
    assert {0, 1} >= {*sent["inlining_default"].reshape(-1).tolist()}
    # At -O2 LLVM inlines calls that cost far more than its threshold for -Oz.
    assert sent["cost_estimate"][sent["inlining_default"] == 1].max() > 5


def test_the_policy_decides(plugin: Plugin, module: Path, tmp_path: Path) -> None:
    never = plugin.opt(module, "never", stats=str(tmp_path / "never.json"))
    always = plugin.opt(module, "always", stats=str(tmp_path / "always.json"))
    assert len({never.bitcode, always.bitcode, plugin.plain(module)}) == 3
    for name, choice in (("never", "0"), ("always", "1")):
        stats = json.loads((tmp_path / f"{name}.json").read_text())
        assert stats["advice"] == {choice: stats["decisions"]}


def test_beyond_the_growth_limit_the_compiler_decides_and_it_is_counted_and_told(
    plugin: Plugin, tmp_path: Path
) -> None:
    module = emit(plugin.major, write_growing(tmp_path), tmp_path / "growing.bc")
    stats = tmp_path / "stats.json"
    limited = plugin.opt(module, "always", stats=str(stats))
    counted = json.loads(stats.read_text())
    assert counted["limited"] > 0
    assert limited.said.count(f"{counted['limited']} decisions are the compiler's own: ") == 1
    free = plugin.opt(module, "always", stats=str(stats), growth_limit="inf")
    assert (free.status, free.said) == (0, "")
    assert json.loads(stats.read_text())["decisions"] == counted["decisions"] + counted["limited"]
    # LLVM's own limit inlines no more where it is reached.
    by_llvm = plugin.opt(module, "always", flags=["-ml-advisor-size-increase-threshold=2"], growth_limit="inf")
    assert len({limited.bitcode, free.bitcode, by_llvm.bitcode}) == 3
    echo = plugin.opt(module, "echo", growth_limit="0.001")
    assert (echo.said, echo.bitcode) == ("", plugin.plain(module))


@pytest.mark.parametrize("passes", ["default<O1>", "default<O2>", "default<O3>", "default<Os>"])
def test_an_echo_gives_the_bitcode_of_a_plain_run_where_llvm_inlines_recursion(
    plugin: Plugin, tmp_path: Path, passes: str
) -> None:
    source = tmp_path / "list.c"
    source.write_text(RECURSIVE)
    module = emit(plugin.major, source, tmp_path / "list.bc", "-O2")
    made = plugin.opt(module, "echo", passes, stats=str(tmp_path / "stats.json"))
    assert (made.status, made.said) == (0, "")
    assert made.bitcode == plugin.plain(module, passes)
    assert json.loads((tmp_path / "stats.json").read_text())["decisions"] > 0


@pytest.mark.parametrize("name", ["inliner", "passes"])
@pytest.mark.parametrize(("major", "other"), [("19", "22"), ("22", "19")])
def test_a_compiler_of_another_major_says_so_and_does_not_crash(
    native: Target, tmp_path: Path, name: str, major: str, other: str
) -> None:
    plugin = built_plugin(native, name, other)
    source = write_source(tmp_path)
    for words in (
        [need(f"opt-{major}"), f"-load-pass-plugin={plugin}", "-passes=default<O2>", source],
        [need(f"clang-{major}"), f"-fpass-plugin={plugin}", "-O2", "-c", source],
    ):
        done = subprocess.run(
            [*map(str, words), "-o", str(tmp_path / "made")], capture_output=True, text=True, check=False
        )
        # LLVM aborts opt where it refuses a plugin.
        assert done.returncode in (1, -6)
        assert f"{plugin.stem} is a plugin for LLVM {other}, and this compiler has LLVM {major}; use " in done.stderr


def test_a_server_that_hangs_is_waited_for_once_a_minute_or_always(
    plugin: Plugin, module: Path, tmp_path: Path
) -> None:
    def compiled(**settings: str) -> tuple[bytes, str]:
        made = plugin.opt(module, "echo", **settings)
        return made.bitcode, made.said

    assert made_at_a_silent_server(tmp_path, compiled) == {plugin.plain(module)}


class TestCcache:
    """An object comes from the cache only for the same version of the same policy, and only if it has decided."""

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        need("ccache")
        monkeypatch.setenv("CCACHE_DIR", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        write_source(tmp_path)

    def compile(self, plugin: Plugin, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Compile behind ccache, with the settings as options of the command line."""
        settings = [word for option in options for word in ("-mllvm", f"-policybridge-{option}")]
        # clang 19 reads its command line before it loads a pass plugin.
        words = ["ccache", need(f"clang-{plugin.major}"), "-Oz", f"-fpass-plugin={plugin.path}"]
        words += [f"-fplugin={plugin.path}"] if plugin.major == "19" else []
        environment = {**os.environ, "POLICYBRIDGE_STATS": "stats.json", **variables}
        Path("stats.json").unlink(missing_ok=True)
        command = [*words, *settings, "-c", "module.c", "-o", "made.o"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def test_settings_on_the_command_line_are_in_its_key(self, plugin: Plugin) -> None:
        made: dict[str, bytes] = {}
        for policy in ("never@1", "always@1", "never@1"):
            options = (f"server={plugin.server}", f"policy={policy}", "fallback=error")
            done = self.compile(plugin, *options)
            assert (done.returncode, done.stderr) == (0, "")
            hit = policy in made
            assert Path("stats.json").exists() is not hit
            assert made.setdefault(policy, Path("made.o").read_bytes()) == Path("made.o").read_bytes()
        assert made["never@1"] != made["always@1"]

    def test_an_object_without_the_policy_is_not_kept(self, plugin: Plugin, tmp_path: Path) -> None:
        link = tmp_path / "s"
        options = (f"server=socket:{link}", "policy=never@1", "fallback=error")
        assert self.compile(plugin, *options).returncode == 1
        link.symlink_to(plugin.server.removeprefix("socket:"))
        assert self.compile(plugin, *options).returncode == 0
        assert json.loads(Path("stats.json").read_text())["decisions"] >= 16

    @pytest.mark.parametrize(
        ("options", "variables", "message"),
        [
            (("server=socket:s", "policy=never@1"), {}, "fallback=error"),
            (("server=socket:s", "policy=never", "fallback=error"), {}, "name the version"),
            (("server=socket:s", "fallback=error"), {"POLICYBRIDGE_POLICY": "never@1"}, "not POLICYBRIDGE_POLICY"),
            (
                ("server=socket:s", "policy=never@1", "fallback=error"),
                {"POLICYBRIDGE_OPTIONS": "a=b"},
                "not POLICYBRIDGE_OPTIONS",
            ),
            (
                ("server=socket:s", "policy=never@1", "fallback=error", "explore=epsilon=0.5,seed=7"),
                {},
                "nothing explores",
            ),
            (
                ("server=socket:s", "policy=never@1", "fallback=error"),
                {"POLICYBRIDGE_EXPLORE": "temperature=1"},
                "nothing explores",
            ),
            (("policy=never@1",), {}, "fallback=error"),
            ((), {"POLICYBRIDGE_NO_DECISIONS": "1"}, "not POLICYBRIDGE_NO_DECISIONS"),
            (("decisions=tuned.db",), {}, "name tuned.db in CCACHE_EXTRAFILES"),
            ((), {"POLICYBRIDGE_DECISIONS": "tuned.db"}, "not POLICYBRIDGE_DECISIONS"),
        ],
    )
    def test_what_its_key_does_not_hold_is_an_error(
        self, plugin: Plugin, options: tuple[str, ...], variables: dict[str, str], message: str
    ) -> None:
        done = self.compile(plugin, *options, **variables)
        assert done.returncode == 1
        assert "under ccache" in done.stderr
        assert message in done.stderr
        assert "under ccache" not in self.compile(plugin, *options, **variables, CCACHE_DISABLE="1").stderr


@EVERY_TRANSPORT
def test_the_outcome_of_the_module_is_in_the_ledger(plugin: Plugin, module: Path, ledger: Path) -> None:
    made = plugin.opt(module, "always", labels="project=x,run=7", options="a=b")
    assert made.status == 0
    session = last_session(ledger, "always")
    assert session.labels["client"].startswith(f"policybridge-inliner-{plugin.major}.")
    assert (session.labels["project"], session.labels["run"], session.options) == ("x", "7", {"a": "b"})
    with LedgerReader(ledger) as reader:
        (batch,) = reader.trajectory(session).batches
        assert {*batch.contexts} == {str(module.with_name("module.c"))}
    assert session.outcome is not None
    values = session.outcome.values
    assert session.outcome.status == "ok"
    assert 0 < values["inlined"] <= values["asked"] == session.decisions
    assert (values["defaults"], values["seconds"] > 0) == (0, True)
    assert 0 < values["instructions_before"] != values["instructions_after"] > 0


def nowhere(plugin: Plugin, folder: Path) -> str:
    """Give an address at which nobody listens."""
    return "grpc:127.0.0.1:1" if plugin.transport == "grpc" else f"socket:{folder}/none"


@EVERY_TRANSPORT
def test_without_a_server_the_compiler_decides_everything(plugin: Plugin, module: Path, tmp_path: Path) -> None:
    stats = tmp_path / "stats.json"
    made = plugin.opt(module, "echo", server=nowhere(plugin, tmp_path), stats=str(stats))
    assert (made.status, made.bitcode) == (0, plugin.plain(module))
    assert made.said.count("policybridge: all decisions are the compiler's own: ") == 1
    fallback = json.loads(stats.read_text())["fallback"]
    assert (fallback["status"], fallback["decisions"], fallback["restarted"]) == (14, 0, False)


@pytest.fixture
def own_server(repository: Path, server_factory: ServerFactory) -> RunningServer:
    """Give a server that the test may kill."""
    return server_factory(repository)


@EVERY_TRANSPORT
@pytest.mark.parametrize("source", [None, UNREACHABLE])
def test_a_server_that_is_killed_in_the_middle_leaves_the_plain_bitcode(
    plugin: Plugin, own_server: RunningServer, demo: Path, tmp_path: Path, source: str | None
) -> None:
    if source is None:
        module = emit(plugin.major, write_source(tmp_path), tmp_path / "module.bc")
    else:
        module = emit_demo(plugin.major, source, demo)
    stats = tmp_path / "stats.json"
    made = plugin.opt(module, "dying", server=plugin.address_of(own_server), stats=str(stats))
    assert (made.status, made.bitcode) == (0, plugin.plain(module))
    written = json.loads(stats.read_text())
    assert (written["decisions"], written["fallback"]["status"]) == (9, 14)
    count = written["fallback"]["decisions"]
    assert made.said.startswith(f"policybridge: {count} decisions are the compiler's own: ")


@EVERY_TRANSPORT
def test_after_a_policy_that_does_not_answer_in_time_the_compiler_decides(
    plugin: Plugin, module: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "stats.json"
    made = plugin.opt(module, "sleeping", timeout="0.2", stats=str(stats))
    assert (made.status, made.bitcode) == (0, plugin.plain(module))
    assert json.loads(stats.read_text())["fallback"]["status"] == 4


@EVERY_TRANSPORT
def test_after_a_policy_that_fails_the_compiler_decides(plugin: Plugin, module: Path) -> None:
    made = plugin.opt(module, "failing")
    assert (made.status, made.bitcode) == (0, plugin.plain(module))
    assert "no such feature" in made.said


@EVERY_TRANSPORT
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy": "nobody"}, "no policy 'nobody'; there are "),
        ({"server": ""}, "-policybridge-server or POLICYBRIDGE_SERVER is not set"),
        ({"server": "pigeon:x"}, "pigeon"),
        ({"timeout": "soon"}, "POLICYBRIDGE_TIMEOUT is a number of seconds from 0.001 to 86400, not 'soon'"),
        ({"labels": "x"}, "POLICYBRIDGE_LABELS is NAME=VALUE, not 'x'"),
        ({"fallback": "maybe"}, "POLICYBRIDGE_FALLBACK is default or error, not 'maybe'"),
    ],
    ids=["policy", "no-server", "server", "timeout", "labels", "fallback"],
)
def test_with_wrong_settings_the_compiler_decides_and_one_line_says_so(
    plugin: Plugin, module: Path, settings: dict[str, str], message: str
) -> None:
    made = plugin.opt(module, **{"policy": "echo", **settings})
    assert (made.status, made.bitcode) == (0, plugin.plain(module))
    assert made.said.count("\n") == 1
    assert message in made.said


@EVERY_TRANSPORT
def test_without_a_fallback_missing_advice_is_an_error_of_the_compiler(
    plugin: Plugin, module: Path, tmp_path: Path
) -> None:
    stats = tmp_path / "stats.json"
    made = plugin.opt(module, "nobody", fallback="error", stats=str(stats))
    assert (made.status, made.bitcode) == (1, b"")
    assert "policybridge: no advice: no policy 'nobody'" in made.said
    written = json.loads(stats.read_text())
    assert (written["error"]["status"], written["fallback"]) == (5, None)


def test_the_command_line_wins_over_the_environment(plugin: Plugin, module: Path, tmp_path: Path) -> None:
    flags = [
        "-policybridge-policy=obeying@1",
        "-policybridge-option=inline=1",
        f"-policybridge-stats={tmp_path}/%p.json",
    ]
    made = plugin.opt(module, "never", flags=flags, options="inline=0,other=x")
    assert made.bitcode == plugin.opt(module, "always").bitcode
    (stats,) = tmp_path.glob("*.json")
    assert json.loads(stats.read_text())["policy"]["name"] == "obeying"


@EVERY_TRANSPORT
def test_statistics_have_the_fields_of_the_host_that_runs_compilers(
    plugin: Plugin, server: RunningServer, module: Path, tmp_path: Path
) -> None:
    made = plugin.opt(module, "never", stats=str(tmp_path / "plugin.json"))
    assert made.status == 0
    opt = [f"opt-{plugin.major}", "-passes=default<Oz>", module, "-o", tmp_path / "made.bc"]
    asking = ["--policy", "never", "--server", server.socket, "--stats", tmp_path / "host.json"]
    subprocess.run(command("run", *asking, "--", *opt), check=True)
    mine, host = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plugin", "host"))
    assert list(mine) == list(host)
    assert {name: mine[name] for name in ("policy", "task", "decisions", "advice", "fallback", "error")} == {
        name: host[name] for name in ("policy", "task", "decisions", "advice", "fallback", "error")
    }
    assert 0 < mine["latency_us"]["p50"] <= mine["latency_us"]["p99"]
    assert (mine["status"], len(mine["sessions"]), mine["command"][0]) == (None, 1, f"opt-{plugin.major}")


@EVERY_TRANSPORT
def test_two_modules_at_once_do_not_disturb_each_other(plugin: Plugin, tmp_path: Path) -> None:
    sources = [write_source(tmp_path, f"module{count}.c", functions=count) for count in (6, 9)]
    modules = [emit(plugin.major, source, source.with_suffix(".bc")) for source in sources]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda module: plugin.opt(module, "echo"), modules * 3))
    assert [one.bitcode for one in made] == [plugin.plain(module) for module in modules] * 3


@EVERY_TRANSPORT
def test_each_module_of_a_thin_link_is_a_session_of_its_own(plugin: Plugin, ledger: Path, tmp_path: Path) -> None:
    names = ("one", "two")
    for name in names:
        clang = [need(f"clang-{plugin.major}"), "-Oz", "-flto=thin", "-c"]
        subprocess.run([*clang, str(write_source(tmp_path, f"{name}.c")), "-o", f"{name}.o"], cwd=tmp_path, check=True)
    resolutions = [f"-r={name}.o,{name}{n},px" for name in names for n in range(8)]
    undefined = [f"-r={name}.o,sink," for name in names]
    link = [need(f"llvm-lto2-{plugin.major}"), "run", "-O2", *resolutions, *undefined, "one.o", "two.o"]
    subprocess.run([*link, "-o", "plain"], cwd=tmp_path, check=True)
    asking = [*link, f"-load-pass-plugin={plugin.path}", "-o", "asking"]
    subprocess.run(asking, cwd=tmp_path, env=plugin.environment("echo", labels=f"link={tmp_path.name}"), check=True)
    for task in (1, 2):
        assert (tmp_path / f"asking.{task}").read_bytes() == (tmp_path / f"plain.{task}").read_bytes()
    with LedgerReader(ledger) as reader:
        sessions = list(reader.sessions(Query(labels={"link": tmp_path.name})))
    assert (len(sessions), all(session.decisions for session in sessions)) == (2, True)


@pytest.mark.parametrize(("passes", "interactive"), [("lto<O2>", False), ("thinlto<O2>", True)])
def test_at_link_time_the_policy_decides_and_in_the_interactive_mode_for_thin_links_alone(
    plugin: Plugin, module: Path, tmp_path: Path, passes: str, interactive: bool
) -> None:
    assert plugin.opt(module, "never", passes, stats=str(tmp_path / "plugin.json")).status == 0
    opt = [f"opt-{plugin.major}", f"-passes={passes}", module, "-o", tmp_path / "made.bc"]
    asking = ["--policy", "never", "--server", plugin.server, "--stats", tmp_path / "host.json"]
    subprocess.run(command("run", *asking, "--", *opt), check=True)
    mine, host = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("plugin", "host"))
    assert (mine["decisions"] > 0, host["decisions"] > 0) == (True, interactive)


@pytest.mark.parametrize(
    "passes", ["inliner-wrapper", "function(sroa,simplifycfg),inliner-wrapper", "scc-oz-module-inliner"]
)
def test_the_policy_decides_in_explicit_pipelines_too(
    plugin: Plugin, module: Path, tmp_path: Path, passes: str
) -> None:
    made = plugin.opt(module, "echo", passes, stats=str(tmp_path / "stats.json"))
    assert (made.status, made.bitcode) == (0, plugin.plain(module, passes))
    assert json.loads((tmp_path / "stats.json").read_text())["decisions"] > 5


def test_the_pass_inline_by_itself_has_no_policy(plugin: Plugin, module: Path, tmp_path: Path) -> None:
    made = plugin.opt(module, "always", "cgscc(inline)", stats=str(tmp_path / "stats.json"))
    assert made.bitcode == plugin.plain(module, "cgscc(inline)")
    assert not (tmp_path / "stats.json").exists()


def compile_with(plugin: Plugin, policy: str | None, level: str, source: Path, *flags: str, **more: str) -> bytes:
    made = source.with_suffix(".o")
    words = [need(f"clang-{plugin.major}"), level, "-c", *flags, str(source), "-o", str(made)]
    subprocess.run(words, env=plugin.environment(policy, **more), check=True)
    return made.read_bytes()


@EVERY_TRANSPORT
@pytest.mark.parametrize("level", ["-Oz", "-O2", "-O3"])
def test_in_clang_the_policy_decides_and_an_echo_gives_the_plain_object(
    plugin: Plugin, tmp_path: Path, level: str
) -> None:
    source = write_source(tmp_path)
    stats = tmp_path / "stats.json"
    loading = f"-fpass-plugin={plugin.path}"
    plain = compile_with(plugin, None, level, source)
    assert compile_with(plugin, "echo", level, source, loading, stats=str(stats)) == plain
    assert json.loads(stats.read_text())["decisions"] > 5
    assert compile_with(plugin, "never", level, source, loading) != plain


def test_what_is_emitted_of_a_coroutine_has_no_trace_of_the_numbers_of_its_calls(
    plugin: Plugin, tmp_path: Path
) -> None:
    source = tmp_path / "coroutine.cpp"
    source.write_text(COROUTINE)
    flags = ("-std=c++20", "-S", "-emit-llvm", f"-fpass-plugin={plugin.path}")
    emitted = compile_with(plugin, "never", "-O2", source, *flags)
    assert b"call" in emitted
    assert b"!exclude" not in emitted


@EVERY_TRANSPORT
def test_clang_without_a_fallback_fails_where_there_is_no_advice(plugin: Plugin, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    loading = f"-fpass-plugin={plugin.path}"
    words = [need(f"clang-{plugin.major}"), "-Oz", "-c", loading, str(source), "-o", str(tmp_path / "x.o")]
    environment = plugin.environment("nobody", fallback="error")
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "error: policybridge: no advice: no policy 'nobody'" in done.stderr
    assert not (tmp_path / "x.o").exists()


def test_clang_accepts_the_settings_as_options_where_it_loads_the_plugin_early(plugin: Plugin, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    stats = tmp_path / "stats.json"
    loading = [f"-fplugin={plugin.path}", f"-fpass-plugin={plugin.path}"]
    options = ["-mllvm", "-policybridge-policy=never", "-mllvm", f"-policybridge-stats={stats}"]
    compile_with(plugin, "echo", "-Oz", source, *loading, *options)
    assert json.loads(stats.read_text())["policy"]["name"] == "never"


def test_a_compilation_without_decisions_opens_no_session(plugin: Plugin, tmp_path: Path) -> None:
    source = tmp_path / "lonely.c"
    source.write_text("int lonely(int x) { return x; }\n")
    module = emit(plugin.major, source, tmp_path / "lonely.bc")
    made = plugin.opt(module, "nobody", stats=str(tmp_path / "stats.json"))
    assert (made.status, made.said, made.bitcode) == (0, "", plugin.plain(module))
    assert json.loads((tmp_path / "stats.json").read_text())["sessions"] == []


def test_the_features_of_a_module_do_not_depend_on_the_policy_before_its_first_decision(
    plugin: Plugin, module: Path, ledger: Path
) -> None:
    firsts = []
    for policy in ("never", "always"):
        assert plugin.opt(module, policy).status == 0
        firsts.append(observations(ledger, last_session(ledger, policy))[:1])
    never, always = firsts
    assert np.array_equal(never, always)

"""A plugin with the policy inside: no server, no option, and the object that the server's policy gives."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_client.cli import main
from tests.client.compilers import write_source
from tests.conftest import RunningServer, running_server
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import Plugin, emit, emit_demo, need
from tests.onnx_models import make_model, write_onnx

OWN_PART = ("policybridge_plugin", "policybridge_internal")
"""Libraries of a plugin that do not depend on the policy, beside `policybridge-embedded-MAJOR`."""
DEMO = ("libunwind/src/libunwind.cpp", "libtsan/tsan_rtl.cpp")
REFUSED = """
void *use(void *), *own(long n) __attribute__((noinline));
__attribute__((noduplicate)) void once(void);
static void *dynamic(long n) { return use(__builtin_alloca(n)); }
static void *large(void) { char room[4000]; return use(room); }
static long single(long n) { once(); return n + 1; }
static long small(long n) { char room[9]; return n ? 3 * n : (long)use(room); }
void *recursive(long n) { return n ? recursive(n - 1) : use(large()); }
void *first(long n) { return use(dynamic(n)) + single(n) + small(n); }
void *second(long n) { return use(dynamic(n + 1)) + single(n) + small(n + 2) + (long)large(); }
"""
"""Calls that LLVM can inline, and calls that it refuses only after a walk of the callee."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep to the test what it learns about its servers, and let no setting reach the plugin."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("POLICYBRIDGE_") and "NATIVE" not in name]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with TemporaryDirectory(prefix="pb-") as folder, running_server(None, Path(folder)) as running:
        yield running


@pytest.fixture(scope="module", params=MAJORS)
def asking(request: pytest.FixtureRequest, native: Target, server: RunningServer) -> Plugin:
    """Give the plugin of every major that asks the server."""
    return Plugin.of(native, "inliner", request.param, server)


@pytest.fixture(scope="module")
def embedded(asking: Plugin, native: Target, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the plugin of the same major with the bundled policy inside, in a folder with a space."""
    folder = tmp_path_factory.mktemp("with space")
    return embed(native, asking.major, folder / "my-inliner.so", "inliner")


def embed(native: Target, major: str, file: Path, policy: str, *more: str) -> Path:
    need(f"clang-{major}")
    build = native(f"policybridge-embedded-{major}")
    words = ["embed", policy, "--for", f"plugin-{major}", "-o", str(file), "--build", str(build), *more]
    assert main(words) == 0
    return file


def optimised(major: str, plugin: Path, module: Path, stats: Path) -> bytes:
    command = [need(f"opt-{major}"), f"-load-pass-plugin={plugin}", "-passes=default<Oz>", str(module), "-o", "-"]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "POLICYBRIDGE_STATS": str(stats)}, check=True
    )
    assert done.stderr == b""
    return done.stdout


@pytest.mark.parametrize("source", DEMO)
def test_a_policy_in_a_plugin_gives_the_bitcode_of_the_servers(
    asking: Plugin, embedded: Path, tmp_path: Path, source: str
) -> None:
    module = emit_demo(asking.major, source, tmp_path)
    stats = tmp_path / "stats.json"
    made = optimised(asking.major, embedded, module, stats)
    assert made == asking.opt(module, "inliner").bitcode
    assert made != asking.plain(module)
    told = json.loads(stats.read_text())
    assert told["policy"]["name"] == "inliner"
    assert told["decisions"] > 5
    assert told["fallback"] is None


@pytest.mark.parametrize("features", [("callee_users",), ("callee_users", "threshold")])
def test_a_policy_that_spares_llvm_the_measuring_gives_the_bitcode_of_the_servers(
    native: Target, tmp_path: Path, features: tuple[str, ...]
) -> None:
    """The policy takes none of LLVM's costs, or one of them but no estimate; it inlines wherever LLVM can."""
    (tmp_path / "server").mkdir()
    int64: tuple[int, list[int | str]] = (TensorProto.INT64, ["n", 1])
    nodes = [helper.make_node("Max", list(features), ["most"]), helper.make_node("Sub", ["most", "most"], ["none"])]
    nodes.append(helper.make_node("Add", ["none", "one"], ["inlining_decision"]))
    weights = {"one": np.array([1], np.int64)}
    model = make_model(nodes, dict.fromkeys(features, int64), {"inlining_decision": int64}, weights)
    write_onnx(tmp_path / "policies", "eager", model)
    module = emit(MAJORS[-1], _written(tmp_path / "refused.c", REFUSED), tmp_path / "refused.bc", "-Oz")
    plugin = embed(native, MAJORS[-1], tmp_path / "eager.so", "eager", "--repository", str(tmp_path / "policies"))
    made = optimised(MAJORS[-1], plugin, module, tmp_path / "stats.json")
    with running_server(tmp_path / "policies", tmp_path / "server") as server:
        asking = Plugin.of(native, "inliner", MAJORS[-1], server)
        assert made == asking.opt(module, "eager").bitcode
    assert made != asking.plain(module)
    assert json.loads((tmp_path / "stats.json").read_text())["decisions"] > 2


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def test_a_second_policy_builds_nothing_of_the_plugins_own_part_again_and_nothing_outside_of_its_folder(
    asking: Plugin, embedded: Path, native: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = native(f"policybridge-embedded-{asking.major}") / "lib"
    names = [f"lib{name}.a" for name in (f"policybridge-embedded-{asking.major}", *OWN_PART)]
    before = [(folder / name).stat().st_mtime_ns for name in names]
    second = embed(native, asking.major, tmp_path / "second.so", "inliner-imitation")
    assert [(folder / name).stat().st_mtime_ns for name in names] == before
    assert not (tmp_path / "cache").exists()
    assert b"policybridge-embedded: inliner-imitation@1 sha256:" in second.read_bytes()
    assert b"policybridge-embedded: inliner@1 sha256:" in embedded.read_bytes()


def test_clang_needs_no_option_and_tells_the_policy_in_remarks_and_in_the_file(
    asking: Plugin, embedded: Path, tmp_path: Path
) -> None:
    command = [need(f"clang-{asking.major}"), "-Oz", "-c", f"-fpass-plugin={embedded}", str(write_source(tmp_path))]
    done = subprocess.run(
        [*command, "-Rpass-analysis=policybridge", "-o", tmp_path / "made.o"],
        capture_output=True,
        text=True,
        check=True,
    )
    content = embedded.read_bytes()
    begin = content.index(b"policybridge-embedded: inliner@1 sha256:")
    digest = content[begin : content.index(b"\0", begin)].split()[-1].decode()
    assert f"policy inliner@1 ({digest}) " in done.stderr


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("-O2",), "inliner@1 is for level Oz or Os, and the compilation has 'O2'"),
        (("-Oz", "-flto=thin"), "inliner@1 is for phase compile, and the compilation has 'pre-link'"),
    ],
)
def test_outside_of_its_scope_an_embedded_policy_leaves_all_to_the_compiler_and_tells_why_once(
    asking: Plugin, embedded: Path, tmp_path: Path, flags: tuple[str, ...], fault: str
) -> None:
    objects = []
    for loading in ((), (f"-fpass-plugin={embedded}",)):
        command = [need(f"clang-{asking.major}"), *flags, "-c", *loading, str(write_source(tmp_path)), "-o", "made.o"]
        every = {**os.environ, "POLICYBRIDGE_PHASES": "compile,pre-link,link"}
        done = subprocess.run(command, cwd=tmp_path, env=every, capture_output=True, text=True, check=True)
        objects.append((tmp_path / "made.o").read_bytes())
    assert objects[0] == objects[1]
    assert done.stderr.count("policybridge: ") == 1
    assert f"all decisions are the compiler's own: {fault}" in done.stderr


def test_a_policy_that_needs_what_the_compiler_does_not_have_is_refused_before_a_plugin_is_built(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Identity", ["x"], ["y"])
    int64: tuple[int, list[int | str]] = (TensorProto.INT64, ["n", 1])
    write_onnx(
        tmp_path / "policies", "strange", make_model([node], {"x": int64}, {"y": int64}), '[rename]\nx = "no_such"\n'
    )
    words = ["strange", "--repository", str(tmp_path / "policies"), "--for", f"plugin-{MAJORS[-1]}"]
    assert main(["embed", *words, "-o", str(tmp_path / "p.so")]) == 1
    assert "strange@1 needs no_such: int64_t[1], which llvm-22 does not have" in capsys.readouterr().err


def test_under_ccache_the_plugin_belongs_into_the_key(asking: Plugin, embedded: Path, tmp_path: Path) -> None:
    command = [need("ccache"), need(f"clang-{asking.major}"), "-Oz", "-c", f"-fpass-plugin={embedded}"]
    command += [str(write_source(tmp_path)), "-o", str(tmp_path / "made.o")]
    environment = {**os.environ, "CCACHE_DIR": str(tmp_path / "cache")}
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert refused.returncode != 0
    assert f"name {embedded} in CCACHE_EXTRAFILES" in refused.stderr
    subprocess.run(command, env={**environment, "CCACHE_EXTRAFILES": str(embedded)}, check=True)
    phased = {**environment, "CCACHE_EXTRAFILES": str(embedded), "POLICYBRIDGE_PHASES": "link"}
    told = subprocess.run([*command, "-g"], capture_output=True, text=True, env=phased, check=False)
    assert "unset POLICYBRIDGE_PHASES" in told.stderr


def test_a_missing_compiler_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "")
    assert main(["embed", "inliner", "--for", "plugin-22", "-o", str(tmp_path / "p.so")]) == 1
    assert "no compilers for C and C++ are installed" in capsys.readouterr().err

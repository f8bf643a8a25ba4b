"""The launcher and ``policybridge run``: the same command line gives the same files and messages."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.client.compilers import parameters, write_pressure, write_source
from tests.conftest import RunningServer
from tests.native.conftest import missing
from tests.native.launcher.running import HOST, lasting, run

_COMPILE = "-c module.c -o made.o"


def same(launcher: str, options: str, words: str) -> None:
    """Run both, and compare everything but times and session ids."""
    expected, got = (run(host, shlex.split(options), shlex.split(words)) for host in (HOST, [launcher]))
    assert (got.status, got.said, lasting(got.stats)) == (expected.status, expected.said, lasting(expected.stats))
    if got.stats is not None:
        assert list(got.stats) == list(expected.stats)
    assert got.output == expected.output


@pytest.mark.parametrize(
    "asked",
    [
        ("--policy echo", f"-Oz {_COMPILE}"),
        ("--policy=echo --fall error --time=5", "-Oz -r -nostdlib module.c other.c -o made.o"),
        ("--policy legal --task evict", "-O2 -c pressure.c -o made.o"),
        ("--policy illegal --task evict --fallback error", "-O2 -c pressure.c -o made.o"),
        ("--policy echo --option raise_at=5", f"-Oz {_COMPILE}"),
        ("--policy drawn --explore temperature=1e0,seed=7", f"-Oz {_COMPILE}"),
        ("--policy never --option raise_at=5", f"-O2 {_COMPILE}"),
    ],
)
@pytest.mark.parametrize("compiler", parameters("clang-19", "clang-22"))
def test_a_compilation_gives_the_same_result(
    launcher: str, server: RunningServer, folder: Path, compiler: str, asked: tuple[str, str]
) -> None:
    options, arguments = asked
    for name in ("module.c", "other.c"):
        write_source(folder, name)
    write_pressure(folder)
    same(launcher, f"--server {server.socket} {options}", f"{compiler} {arguments}")


def test_statistics_go_through_a_link_and_do_not_take_its_place(
    launcher: str, server: RunningServer, folder: Path
) -> None:
    write_source(folder, "module.c")
    link = folder / "link"
    link.symlink_to("behind")
    for host in (HOST, [launcher]):
        (folder / "behind").write_text("x" * 100_000)
        words = [
            "--stats",
            "link",
            "--server",
            server.socket,
            "--policy",
            "echo",
            "--",
            "clang-22",
            "-Oz",
            "-c",
            "module.c",
        ]
        subprocess.run([*host, *words], check=True)
        assert json.loads((folder / "behind").read_text())["status"] == 0
        assert link.is_symlink()


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("--policy never@1 --growth-limit 1.5 --label a=b=c --option x=y", f"-O2 {_COMPILE}"),
        ("--policy weight --task priority", "-O2 -c pressure.c -o made.o"),
        ("--policy echo --option raise_at=5 --fallback error", f"-Oz {_COMPILE}"),
        ("--policy illegal --task evict", "-O2 -c pressure.c -o made.o"),
        ("--policy nobody", f"-Oz {_COMPILE}"),
        ("--policy small", f"-Oz {_COMPILE}"),
        ("--policy small", f"-Oz -O2 {_COMPILE}"),
        ("--policy small --fallback error", f"-O2 {_COMPILE}"),
        ("--policy small", f"-Oz -flto=thin {_COMPILE}"),
        ("--policy small", f"-Oz -flto -fno-lto {_COMPILE}"),
        ("--policy narrow", f"-Oz {_COMPILE}"),
        ("--policy narrow", f"-Oz --target=aarch64-linux-gnu {_COMPILE}"),
        ("--policy small --label level=Oz", f"-O2 {_COMPILE}"),
        ("--policy never@9 --fallback error", f"-Oz {_COMPILE}"),
        ("--policy echo", "-Oz -c wrong.c -o made.o"),
        ("--policy echo", f"-O0 {_COMPILE}"),
        ("--policy echo", f"-Oz {_COMPILE} -mllvm -ml-advisor-size-increase-threshold=1.01"),
        ("--policy echo", f"-Oz {_COMPILE} -D'NAME=\"ü\"'"),
    ],
)
@pytest.mark.parametrize("compiler", parameters("clang-22"))
def test_a_compilation_with_less_usual_options_gives_the_same_result(  # noqa: PLR0917
    launcher: str, server: RunningServer, folder: Path, compiler: str, options: str, arguments: str
) -> None:
    write_source(folder)
    write_pressure(folder)
    (folder / "wrong.c").write_text("int f( {\n")
    same(launcher, f"--server {server.socket} {options}", f"{compiler} {arguments}")


@pytest.mark.parametrize("name", parameters("opt-19", "opt-22"))
def test_opt_gives_the_same_result(launcher: str, server: RunningServer, folder: Path, name: str) -> None:
    emit = ["-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes", "-Oz"]
    clang = name.replace("opt", "clang")
    subprocess.run([clang, *emit, write_source(folder).name, "-o", "module.ll"], check=True)
    same(launcher, f"--server {server.socket} --policy echo", f"{name} '-passes=default<Oz>' module.ll -o made.o")


def test_zig_gives_the_same_result(launcher: str, server: RunningServer, folder: Path) -> None:
    write_source(folder)
    same(launcher, f"--server {server.socket} --policy echo", f"{HOST[0]} -m ziglang cc -Oz {_COMPILE}")


def test_ccache_keeps_nothing_that_explores(
    launcher: str, server: RunningServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("ccache") is None:
        missing("ccache")
    monkeypatch.setenv("CCACHE_DIR", str(folder / "cache"))
    write_source(folder)
    options = f"--server {server.socket} --policy drawn@1 --fallback error --explore temperature=1"
    for _ in range(2):
        made = run(["ccache", launcher], options.split(), f"clang-22 -Oz {_COMPILE}".split())
        assert (made.status, made.stats["decisions"] > 0) == (0, True)


def test_without_a_server_the_result_is_the_same(launcher: str, folder: Path) -> None:
    write_source(folder)
    # zig starts slowly, and is used only where there is no clang.
    compiler = shutil.which("clang-22") or f"{HOST[0]} -m ziglang cc"
    for address in ("socket:/nowhere/server.sock", "/nowhere/server.sock", f"socket:/{'long' * 50}"):
        for fallback in ("default", "error"):
            options = f"--server {address} --policy echo --fallback {fallback}"
            same(launcher, options, f"{compiler} -Oz {_COMPILE}")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--policy echo", "clang -c x.c"),
        ("--server socket:s", "clang -c x.c"),
        ("", ""),
        ("--policy echo --server socket:s", ""),
        ("--policy echo --server socket:s", "gcc-none -c x.c"),
        ("--policy echo --server socket:s", "llc x.ll"),
        ("--policy echo --server socket:s --task evict", "opt x.ll"),
        ("--policy echo --server socket:s --task evict", "./clang-1000 x.c"),
        ("--policy echo --server socket:s --task outline", "clang -c x.c"),
        ("--policy echo --server socket:s --fallback never", "clang -c x.c"),
        ("--policy echo --server socket:s --timeout soon", "clang -c x.c"),
        ("--policy echo --server socket:s --timeout 0", "clang -c x.c"),
        ("--policy echo --server socket:s --timeout -1.5", "clang -c x.c"),
        ("--policy echo --server socket:s --timeout nan", "clang -c x.c"),
        ("--policy echo --server socket:s --growth-limit -2", "clang -c x.c"),
        ("--policy echo --server socket:s --evaluate everywhere", "clang -c x.c"),
        ("--policy echo --server socket:s --label x", "clang -c x.c"),
        ("--policy echo --server socket:s --label", "clang -c x.c"),
        ("--policy echo --server socket:s --option =x", "clang -c x.c"),
        ("--policy echo --server socket:s --explore often", "clang -c x.c"),
        ("--policy echo --server socket:s --explore epsilon=.5,epsilon=.25", "clang -c x.c"),
        ("--policy echo --server socket:s --explore epsilon=0x1", "clang -c x.c"),
        ("--policy echo --server socket:s --explore seed=7", "clang -c x.c"),
        ("--policy echo --server socket:s --explore epsilon=1.5", "clang -c x.c"),
        ("--policy echo --server socket:s --explore temperature=-1", "clang -c x.c"),
        ("--policy echo --server socket:s --explore temperature=inf", "clang -c x.c"),
        ("--policy echo --server socket:s --explore epsilon=0.5,seed=18446744073709551616", "clang -c x.c"),
        ("--decisions tuned.db --explore epsilon=0.5", "clang -c x.c"),
    ],
)
def test_a_wrong_command_is_refused_with_the_same_message(launcher: str, options: str, words: str) -> None:
    same(launcher, options, words)


@pytest.mark.usefixtures("folder")
def test_statistics_that_cannot_be_written_are_told_and_change_no_status(launcher: str) -> None:
    clang = shutil.which("clang-22") or HOST[0]
    said = []
    for host in (HOST, [launcher]):
        options = ["--policy", "echo", "--server", "/nowhere", "--stats", "missing/stats.json", "--", clang]
        words = ["-m", "ziglang", "cc"] if clang == HOST[0] else []
        ended = subprocess.run([*host, *options, *words, "--version"], capture_output=True, text=True, check=False)
        said.append((ended.returncode, ended.stderr.partition(":")[2].rpartition(".")[0]))
    assert said[0] == said[1]
    assert said[0][0] == 0
    assert "no statistics" in said[0][1]

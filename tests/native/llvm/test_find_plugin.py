"""Finding the plugin that a compiler loads."""

import os
from pathlib import Path

import pytest

from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.plugins import find_plugin
from tests.client.compilers import ZIG
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import need
from tests.native.llvm.stores import Tuner


@pytest.fixture(params=MAJORS)
def tuner(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Tuner:
    return Tuner.of(native, request.param, tmp_path)


def test_a_plugin_that_the_compiler_cannot_load_is_passed_over(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / tuner.path.name).write_bytes(b"not a shared object")
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(tuner.path.parent))
    compiler = CompilerCommand.of([need(f"clang-{tuner.major}"), "-c", "module.c"])
    assert find_plugin(compiler, broken) == tuner.path
    # A second time it is not tried again.
    assert find_plugin(compiler, broken) == tuner.path
    for zig in (ZIG, [*ZIG[:-1], "clang"]):
        assert find_plugin(CompilerCommand.of([*zig, "-c", "module.c"]), tuner.path.parent) is None


def test_a_plugin_that_is_installed_with_the_launcher_is_found_unless_anybody_may_write_there(
    tuner: Tuner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    launcher, plugins = tmp_path / "own" / "bin" / "policybridge-run", tmp_path / "own" / "lib" / "policybridge"
    for folder in (launcher.parent, plugins):
        folder.mkdir(parents=True)
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    (plugins / tuner.path.name).symlink_to(tuner.path)
    monkeypatch.delenv("POLICYBRIDGE_LAUNCHER", raising=False)
    monkeypatch.delenv("POLICYBRIDGE_PLUGINS", raising=False)
    monkeypatch.setenv("PATH", f"{launcher.parent}{os.pathsep}{os.environ['PATH']}")
    compiler = CompilerCommand.of([need(f"clang-{tuner.major}"), "-c", "module.c"])
    assert find_plugin(compiler) == plugins / tuner.path.name
    plugins.chmod(0o777)
    assert find_plugin(compiler) is None

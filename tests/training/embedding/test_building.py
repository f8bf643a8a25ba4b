"""How ``policybridge embed`` builds a plugin: where, and within which limits."""

from pathlib import Path

import pytest

from policybridge_client.cli import main
from policybridge_core.version import version
from tests.training.embedding.programs import needs_compiler

COMMANDS = ('"cmake -S "*', '"cmake --build "*', '"gcc-99 "*" -c "*', '"g++-99 -shared "*')
"""The commands of a build, as patterns of the shell: they configure, build, compile the policy's C and link."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the user's cache of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def embed(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, script: str, *words: str) -> None:
    """Embed with tools of which one command runs a script, and all others do nothing; it fails."""
    for tool in ("ninja", "llvm-config-22"):
        needs_compiler(tool)
    tools = folder / "tools"
    tools.mkdir()
    for name in ("cmake", "gcc-99", "g++-99"):
        (tools / name).write_text(f'#!/bin/sh\ncase "${{0##*/}} $*" in {command}) {script} ;; esac\n')
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    output = str(folder / "p.so")
    assert main(["embed", "inliner", "--for", "plugin-22", "-o", output, "--compiler", "gcc-99", *words]) == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_build_has_the_limit_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    # A command gets its limit just after it has started.
    script = 'until [ "$(ulimit -v)" != unlimited ]; do :; done; echo "limit: $(ulimit -v) KiB"; exit 1'
    embed(tmp_path, monkeypatch, command, script, "--memory", "1024")
    assert capsys.readouterr().err.endswith(" failed: limit: 1048576 KiB\n")


def test_a_command_of_the_build_that_takes_longer_than_its_limit_is_ended_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    embed(tmp_path, monkeypatch, COMMANDS[0], "exec sleep 600", "--seconds", "1")
    said = capsys.readouterr().err
    assert said.startswith("policybridge embed: cmake -S ")
    assert said.endswith(" failed: timeout: it was ended after 1 seconds\n")


@pytest.mark.parametrize("named", ["{0}/own", "own", ""])
def test_the_plugins_own_part_is_built_in_the_folder_that_is_named_else_in_the_users_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    own = tmp_path / "own"
    monkeypatch.chdir(tmp_path)
    embed(tmp_path, monkeypatch, COMMANDS[0], "exit 1", *(["--build", named.format(tmp_path)] if named else []))
    said = capsys.readouterr().err
    assert (f" -B {own} " in said) == bool(named)
    assert (f" -B {cache}/policybridge/embed/llvm-22-" in said) != bool(named)
    assert (own.exists(), cache.exists()) == (bool(named), not named)


def test_an_installed_part_of_another_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "embed-22"
    folder.mkdir()
    names = ("policybridge-embedded-22", "policybridge_plugin", "policybridge_internal")
    for file in ("exports.map", *(f"lib{name}.a" for name in names)):
        (folder / file).touch()
    (folder / "version").write_text("0.0.1\n")
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", str(tmp_path))
    # As where no source tree is.
    monkeypatch.setattr("policybridge_train.embedding.parts._CHECKOUT", tmp_path)
    assert main(["embed", "inliner", "--for", "plugin-22", "-o", str(tmp_path / "p.so")]) == 1
    assert f"{folder} is of PolicyBridge 0.0.1, and this is {version()}" in capsys.readouterr().err

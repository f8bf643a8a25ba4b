"""``policybridge doctor`` on this machine."""

import json
from pathlib import Path

import pytest

from policybridge_client.cli import main
from tests.conftest import ServerFactory
from tests.native.conftest import GCC
from tests.native.llvm.plugins import need


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("POLICYBRIDGE_PLUGINS", "POLICYBRIDGE_SERVER"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def diagnosed(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, object]:
    assert main(["doctor", "--json", *words]) == status
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def by_name(found: dict[str, object]) -> dict[str, dict[str, str]]:
    compilers = found["compilers"]
    assert isinstance(compilers, list)
    return {each["name"]: each for each in compilers}


def test_each_compiler_is_told_with_the_plugin_that_it_loads(
    capsys: pytest.CaptureFixture[str], major: str, plugin: Path
) -> None:
    name = need(f"clang-{major}")
    compilers = by_name(diagnosed(capsys, "--plugins", str(plugin.parent)))
    assert compilers[name]["version"].startswith(f"{major}.")
    assert Path(compilers[name]["plugin"]) == plugin
    assert compilers[f"gcc-{GCC}"]["version"].startswith(f"{GCC}.")


def test_a_missing_plugin_is_told_with_its_cure(capsys: pytest.CaptureFixture[str], major: str, folder: Path) -> None:
    name = need(f"clang-{major}")
    # A file that is no plugin is not loaded.
    (folder / f"policybridge-inliner-{major}.so").write_text("junk")
    found = by_name(diagnosed(capsys, "--plugins", str(folder)))[name]
    assert not found["plugin"]
    assert (
        f"loads no policybridge-inliner-{major}.so: install policybridge-llvm{major} (docs/install.md)" in found["note"]
    )
    assert f"build it with -DPOLICYBRIDGE_LLVM={major}" in found["note"]


def test_the_launcher_and_the_store_of_the_folder_are_told(
    capsys: pytest.CaptureFixture[str], folder: Path, launcher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".git").mkdir()
    (folder / "policybridge.decisions").write_text("policybridge-decisions 1\n")
    monkeypatch.setenv("POLICYBRIDGE_LAUNCHER", launcher)
    found = diagnosed(capsys)
    assert (found["launcher"], found["store"]) == (launcher, str(folder / "policybridge.decisions"))
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert f"launcher      {launcher}\n" in told
    assert "server        none: give --server, or set POLICYBRIDGE_SERVER" in told


def test_a_server_that_does_not_answer_is_told_and_is_the_exit_status(
    capsys: pytest.CaptureFixture[str], server_factory: ServerFactory, folder: Path
) -> None:
    server = server_factory(None)
    assert diagnosed(capsys, "--server", server.socket)["servers"] == [{"address": server.socket, "error": ""}]
    gone = f"socket:{folder}/gone.sock"
    found = diagnosed(capsys, "--server", f"{gone},{server.grpc}", status=1)["servers"]
    assert isinstance(found, list)
    assert [each["address"] for each in found if each["error"]] == [gone]

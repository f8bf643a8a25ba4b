"""The bundled policies in a clang that compiles for another machine: they decide where they were measured."""

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from policybridge_server.repository import BUNDLED
from policybridge_train.objects.elf import ObjectFile
from tests.conftest import RunningServer
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import Plugin, need

# No header, so that no target's headers need to be here.
_SOURCE: Final = """
int sink(int);
template <class T> struct Counted {
  T value;
  int twice(int by) const { return sink(static_cast<int>(value) + by) + sink(by); }
};
static int often(const Counted<long> &counted, int by) { return counted.twice(by) ^ sink(counted.twice(by + 1)); }
int one(long value) { Counted<long> counted{value}; return often(counted, 3) + often(counted, 4); }
int two(long value) { Counted<long> counted{value}; return often(counted, 5); }
"""
_MEASURED: Final = {
    "x86_64-linux-gnu": 62,
    "aarch64-linux-gnu": 183,
    "riscv64-linux-gnu": 243,
    "thumbv7-linux-gnueabihf": 40,
}


@pytest.fixture(scope="module")
def repository() -> Path:
    return BUNDLED


@pytest.fixture(params=MAJORS)
def plugin(request: pytest.FixtureRequest, native: Target, server: RunningServer) -> Plugin:
    return Plugin.of(native, "inliner", request.param, server)


def _compiled(plugin: Plugin, policy: str | None, folder: Path, target: str, **more: str) -> tuple[Path, str]:
    """Compile for a target with a policy, or plainly; give the object and the compiler's messages."""
    (folder / "a.cc").write_text(_SOURCE)
    output = folder / f"{policy}.o"
    loading = [] if policy is None else [f"-fpass-plugin={plugin.path}"]
    mode = ["-mthumb"] if target.startswith("thumb") else []
    command = [
        need(f"clang-{plugin.major}"),
        f"--target={target}",
        *mode,
        "-c",
        "-Oz",
        *loading,
        "a.cc",
        "-o",
        output.name,
    ]
    environment = plugin.environment(policy, **more)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return output, done.stderr


@pytest.mark.parametrize("policy", ["inliner", "size"])
@pytest.mark.parametrize("target", _MEASURED)
def test_a_bundled_policy_decides_for_each_measured_target(
    plugin: Plugin, tmp_path: Path, target: str, policy: str
) -> None:
    stats = tmp_path / "stats.json"
    made, said = _compiled(plugin, policy, tmp_path, target, stats=str(stats))

    assert said == ""
    assert json.loads(stats.read_text())["decisions"] > 0
    assert ObjectFile.read(made).machine == _MEASURED[target]
    assert ObjectFile.read(made).text <= 1.1 * ObjectFile.read(_compiled(plugin, None, tmp_path, target)[0]).text


@pytest.mark.parametrize("policy", ["inliner", "size"])
@pytest.mark.parametrize(("target", "label"), [("i686-linux-gnu", "i686"), ("armv7-linux-gnueabihf", "armv7")])
def test_for_a_target_that_nobody_measured_the_compiler_decides_and_says_so_in_one_line(
    plugin: Plugin, tmp_path: Path, target: str, label: str, policy: str
) -> None:
    made, said = _compiled(plugin, policy, tmp_path, target)

    assert len(said.splitlines()) == 1
    assert f"{policy}@1 is for target x86_64 or " in said
    assert f"the compilation has '{label}' ([scope] in policy.toml)" in said
    assert made.read_bytes() == _compiled(plugin, None, tmp_path, target)[0].read_bytes()

"""The scope of a policy in stock clang: outside of it LLVM decides, and it is told."""

import json
import subprocess
from pathlib import Path

import pytest

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.client.compilers import write_source
from tests.conftest import RunningServer
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import Plugin, need
from tests.repositories import answering, write_python


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "small", answering("0"), '[scope]\nlevel = ["Oz", "Os"]\nphase = ["compile"]')
    write_python(repository, "linking", answering("0"), '[scope]\nphase = ["link"]')
    write_python(repository, "arm", answering("0"), '[scope]\ntarget = ["aarch64"]')
    return repository


@pytest.fixture(params=[*MAJORS, "22-grpc"])
def plugin(request: pytest.FixtureRequest, native: Target, server: RunningServer) -> Plugin:
    return Plugin.of(native, "inliner", request.param, server)


def compiled(plugin: Plugin, policy: str | None, source: Path, *flags: str, **more: str) -> tuple[bytes, str]:
    """Compile with the plugin, or plainly, and give the object and the compiler's messages."""
    output = source.with_suffix(".o")
    loading = [] if policy is None else [f"-fpass-plugin={plugin.path}"]
    command = [need(f"clang-{plugin.major}"), "-c", *flags, *loading, source.name, "-o", output.name]
    environment = plugin.environment(policy, **more)
    done = subprocess.run(command, cwd=source.parent, env=environment, capture_output=True, text=True, check=True)
    return output.read_bytes(), done.stderr


@pytest.mark.parametrize("level", ["-Oz", "-Os"])
def test_inside_of_its_scope_a_policy_decides(plugin: Plugin, tmp_path: Path, level: str) -> None:
    source = write_source(tmp_path)
    stats = tmp_path / "stats.json"
    made, said = compiled(plugin, "small", source, level, stats=str(stats))
    assert said == ""
    assert made != compiled(plugin, None, source, level)[0]
    assert json.loads(stats.read_text())["decisions"] > 0


@pytest.mark.parametrize(
    ("policy", "flags", "fault"),
    [
        ("small", ("-O2",), "small@1 is for level Oz or Os, and the compilation has 'O2'"),
        ("small", ("-Oz", "-flto"), "small@1 is for phase compile, and the compilation has 'pre-link'"),
        ("small", ("-Oz", "-flto=thin"), "small@1 is for phase compile, and the compilation has 'pre-link'"),
        ("linking", ("-Oz",), "linking@1 is for phase link, and the compilation has 'compile'"),
        ("arm", ("-Oz",), "arm@1 is for target aarch64, and the compilation has 'x86_64'"),
    ],
)
def test_outside_of_a_policys_scope_the_compiler_decides_and_tells_why_once(
    plugin: Plugin, tmp_path: Path, policy: str, flags: tuple[str, ...], fault: str
) -> None:
    source = write_source(tmp_path)
    stats = tmp_path / "stats.json"
    made, said = compiled(plugin, policy, source, *flags, stats=str(stats), phases="compile,pre-link")
    assert made == compiled(plugin, None, source, *flags)[0]
    assert said.count("policybridge: all decisions are the compiler's own: ") == 1
    assert fault in said
    written = json.loads(stats.read_text())
    assert (written["decisions"], written["fallback"]["reason"].count(fault)) == (0, 1)
    assert written["fallback"]["decisions"] > 0


def test_a_module_at_link_time_has_the_phase_of_linking(plugin: Plugin, ledger: Path, tmp_path: Path) -> None:
    source = write_source(tmp_path, "one.c")
    subprocess.run(
        [need(f"clang-{plugin.major}"), "-Oz", "-flto=thin", "-c", source.name, "-o", "one.o"], cwd=tmp_path, check=True
    )
    resolutions = [*(f"-r=one.o,one{n},px" for n in range(8)), "-r=one.o,sink,"]
    link = [need(f"llvm-lto2-{plugin.major}"), "run", "-O2", *resolutions, "one.o", "-o", "made"]
    done = subprocess.run(
        [*link, f"-load-pass-plugin={plugin.path}"],
        cwd=tmp_path,
        env=plugin.environment("linking", labels=f"link={tmp_path.name}"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    with LedgerReader(ledger) as reader:
        (session,) = reader.sessions(Query(labels={"link": tmp_path.name}))
    assert {**session.labels, "level": "Oz", "phase": "link", "target": "x86_64"} == session.labels
    assert session.decisions > 0


def test_a_label_of_the_user_stands_for_the_compilers_own(plugin: Plugin, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    made, said = compiled(plugin, "small", source, "-O2", labels="level=Oz")
    assert said == ""
    assert made != compiled(plugin, None, source, "-O2")[0]


def test_a_module_outside_of_the_scope_is_no_error_where_missing_advice_is_one(plugin: Plugin, tmp_path: Path) -> None:
    source = write_source(tmp_path)
    made, said = compiled(plugin, "small", source, "-O2", fallback="error")
    assert made == compiled(plugin, None, source, "-O2")[0]
    assert "small@1 is for level Oz or Os" in said

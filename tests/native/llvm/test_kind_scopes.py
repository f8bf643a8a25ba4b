"""The scope of one kind of decisions in stock clang: outside of it LLVM decides the kind, and the other one goes on."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from policybridge_client.cli import main
from tests.conftest import RunningServer
from tests.native.conftest import MAJORS, Target, build_grpc
from tests.native.llvm.stores import Made, Tuner
from tests.native.llvm.test_embedded_passes import KINDS, compiled, scores
from tests.native.llvm.test_pass_choices import LOOPS
from tests.native.llvm.test_pass_sessions import INLINED, NUMBERS
from tests.onnx_models import write_onnx
from tests.repositories import write_python

POLICY = f"""
class Policy:
    def evaluate(self, observation, session):
        return 0

    def pass_choice(self, observation, session):
        return {NUMBERS["size"]}
"""
PASSES, INLINING = "pass_choice", "inlining_decision"
SCOPED = """
decides = ["inlining_decision", "pass_choice"]
[kinds.inlining_decision]
[kinds.pass_choice]
[kinds.{kind}.scope]
{scope}
"""
SCOPES = {
    "passes-at-oz": (PASSES, 'level = ["Oz"]', "level Oz, and the compilation has 'O2'"),
    "passes-of-cxx": (PASSES, 'language = ["c++", "rust"]', "language c++ or rust, and the compilation has 'c'"),
    "inlining-at-oz": (INLINING, 'level = ["Oz"]', "level Oz, and the compilation has 'O2'"),
    "inlining-of-llvm": (INLINING, 'llvm = ["5"]', "llvm 5, and the compilation has '{major}'"),
}

pytestmark = pytest.mark.usefixtures("own_memory")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    for name, (kind, scope, _) in SCOPES.items():
        write_python(repository, name, POLICY, SCOPED.format(kind=kind, scope=scope))
    for kind in (PASSES, INLINING):
        write_python(repository, f"only-{kind}", POLICY, f'decides = ["{kind}"]')
    for name, scope in (("form", "[kinds.pass_choice.scope]\nlevel = ['Oz']"), ("whole", "[scope]\nlevel = ['Oz']")):
        write_onnx(repository, name, scores(1, len(NUMBERS), NUMBERS["size"]), KINDS + scope)
        onnx.save(scores(1, 2, 1), repository / name / "1" / "inlining.onnx")
    return repository


@pytest.fixture(params=MAJORS)
def tuner(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Tuner:
    return Tuner.of(native, request.param, tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    source = tmp_path / "loops.c"
    source.write_text(LOOPS + INLINED)
    return source


def stats(made: Made) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((made.folder / "stats.json").read_text())
    return read


@pytest.fixture(params=["socket", "grpc"])
def address(request: pytest.FixtureRequest, native: Target, server: RunningServer) -> str:
    if request.param == "grpc":
        build_grpc(native)
    return str(getattr(server, request.param))


@pytest.mark.parametrize("policy", SCOPES)
def test_outside_of_its_scope_a_kind_is_llvms_and_told_once_while_the_other_one_is_the_policys(
    tuner: Tuner, address: str, source: Path, policy: str
) -> None:
    kind, _, fault = SCOPES[policy]
    other = PASSES if kind == INLINING else INLINING
    alone = tuner.compile(source, "-O2", server=address, policy=f"only-{other}").output
    made = tuner.compile(source, "-O2", server=address, policy=policy)
    assert (made.status, made.output == alone, alone == tuner.plain(source, "-O2")) == (0, True, False)
    table = f"([kinds.{kind}.scope] in policy.toml)"
    reason = f"{policy}@1 decides {kind} for {fault.format(major=tuner.major)} {table}"
    assert made.said == f"policybridge: all decisions on {kind} are the compiler's own: {reason}\n"
    told = stats(made)
    assert told["outside"] == {kind: {"reason": reason, "decisions": told["outside"][kind]["decisions"]}}
    assert told["outside"][kind]["decisions"] > 1
    assert (told["fallback"], told["error"]) == (None, None)
    assert ("passes" in told, told["decisions"] > 0) == (kind == INLINING, kind == PASSES)


def test_within_their_scopes_all_kinds_are_the_policys_and_nothing_is_told(
    tuner: Tuner, server: RunningServer, source: Path
) -> None:
    both = [tuner.compile(source, "-Oz", server=server.socket, policy=policy) for policy in SCOPES if "at-oz" in policy]
    assert both[0].output == both[1].output
    for made in both:
        assert (made.said, "outside" in stats(made)) == ("", False)
    assert stats(made)["decisions"] > 0
    assert stats(made)["passes"]["decisions"] > 1


def test_a_kind_outside_of_its_scope_is_no_error_where_missing_advice_is_one(
    tuner: Tuner, server: RunningServer, source: Path
) -> None:
    made = tuner.compile(source, "-O2", server=server.socket, policy="passes-at-oz", fallback="error")
    assert (made.status, made.said.count("policybridge: all decisions on pass_choice")) == (0, 1)


@pytest.mark.parametrize("evaluate", ["auto", "here", "there"])
def test_a_compiler_that_decides_by_the_form_leaves_the_same_kind_to_llvm(
    tuner: Tuner, server: RunningServer, source: Path, evaluate: str
) -> None:
    made = tuner.compile(source, "-O2", server=server.socket, policy="form", evaluate=evaluate)
    assert made.said.count("all decisions on pass_choice are the compiler's own: form@1 decides pass_choice for") == 1
    assert (stats(made)["decisions"] > 0, made.output) == (True, tuner.plain(source, "-O2"))


@pytest.fixture(params=["form", "whole"])
def policy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def own(tuner: Tuner, native: Target, repository: Path, policy: str) -> Path:
    """Give a plugin with the policy inside."""
    build, plugin = native(f"policybridge-embedded-{tuner.major}"), tuner.folder / "own.so"
    words = [policy, "--repository", str(repository), "--for", f"plugin-{tuner.major}", "--build", str(build)]
    assert main(["embed", *words, "-o", str(plugin)]) == 0
    return plugin


def test_a_policy_in_a_plugin_keeps_to_the_scopes_of_its_kinds_as_the_servers_does(
    tuner: Tuner, own: Path, server: RunningServer, source: Path, policy: str
) -> None:
    for level in ("-O2", "-Oz"):
        served = tuner.compile(source, level, server=server.socket, policy=policy)
        keys = ("decisions", "advice", "passes", "outside", "fallback", "policy")
        wanted = {key: stats(served).get(key) for key in keys}
        made = compiled(tuner.major, own, source, level, said=served.said)
        assert (made.output, {key: stats(made).get(key) for key in keys}) == (served.output, wanted)
        assert (served.said == "") == (level == "-Oz")

"""``policybridge embed``: the C of bundled and made policies, what it refuses, the class for LLVM."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_client import open_runner
from policybridge_client.cli import main
from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import ElementType, PolicyVersion, TensorSpec
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.head import Head
from policybridge_train.compiling.limits import Limits
from policybridge_train.embedding.compiled import CompiledPolicy
from policybridge_train.embedding.interface import Embedded, read_policy
from policybridge_train.embedding.release import class_name
from policybridge_train.embedding.toolchain import Toolchain
from tests.conftest import ServerFactory
from tests.native.conftest import missing
from tests.onnx_models import make_model, write_onnx
from tests.training.embedding.programs import (
    STRICT,
    build,
    by_onnx_runtime,
    decide,
    needs_compiler,
    random_observations,
    record_of,
)

FLOAT = TensorProto.FLOAT


def scorer(repository: Path, head: str) -> Embedded:
    """Make a policy whose scores are its four features, which are renamed and have odd names."""
    node = helper.make_node("Identity", ["x"], ["scores"])
    toml = f'{head}\n[rename]\nx = "a b*/\'"\n[settings]\nbatch = true\n'
    model = make_model([node], {"x": (FLOAT, ["n", 4])}, {"scores": (FLOAT, ["n", 4])})
    write_onnx(repository, "scorer", model, toml)
    return read_policy("scorer@1", repository)


def rows(repository: Path) -> Embedded:
    """Make a policy that takes a row of a table of three by its feature."""
    nodes = [
        helper.make_node("Cast", ["x"], ["row"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "row"], ["y"], axis=0),
    ]
    weights = {"table": np.array([5, 6, 7], np.float32)}
    model = make_model(nodes, {"x": (FLOAT, ["n", 1])}, {"y": (FLOAT, ["n", 1])}, weights)
    write_onnx(repository, "rows", model)
    return read_policy("rows", repository)


def by_head(policy: Embedded, scores: np.ndarray, mask: np.ndarray) -> list[int | None]:
    """Let the server's head choose; ``None`` where there is no advice."""
    config = policy.version.config.head
    assert config is not None
    head = Head(config, TensorSpec("scores", ElementType.FLOAT, (4,)))
    sessions = [SessionView("test", PolicyVersion("", 0, ""))] * len(scores)
    values = np.zeros(len(scores), head.scores.dtype)
    values["scores"] = scores
    results = head.choose(values, mask, sessions)
    return [None if isinstance(result, PolicyBridgeError) else int(result[0]["int"][0, 0]) for result in results]


@pytest.mark.parametrize("scores", ["logits", "probabilities"])
def test_the_head_and_the_mask_choose_in_c_as_in_the_server(tmp_path: Path, scores: str) -> None:
    needs_compiler("gcc")
    repository = tmp_path / "policies"
    policy = scorer(repository, f'[head]\nscores = "{scores}"\nmask = "legal"\ntype = "int32_t"\nadvice = "int"')
    inf, nan = np.inf, np.nan
    rows = [
        [1, 2, 3, 4], [4, 4, 1, 4], [0, 0, 0, 0], [-inf, -inf, -inf, -inf], [inf, 1, inf, 1], [nan, 1, 1, 1],
        [-1, 2, 3, 1], [1, nan, 2, 3], [0.25, 0.5, 0.25, 0], [0, 0, 0, nan],
    ]  # fmt: skip
    masks = np.array([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]])
    table = np.array(rows, np.float32).repeat(len(masks), 0)
    legal = np.tile(masks, (len(rows), 1))
    observations = np.zeros(len(table), record_of(policy))
    observations["a b*/'"], observations["legal"] = table, legal
    advice, status = decide(build(policy, tmp_path, "gcc"), policy, observations)
    given = [None if failed else int(choice) for choice, failed in zip(advice[:, 0], status, strict=True)]
    assert given == by_head(policy, table, legal)


@pytest.mark.parametrize(
    ("name", "kind", "compiler"),
    [("inliner", None, "clang-22"), ("inliner-imitation", None, "gcc"), ("size", "pass_choice", "gcc")],
)
def test_the_bundled_policies_compile_as_strict_c_and_decide_as_in_onnx_runtime(
    tmp_path: Path, name: str, kind: str | None, compiler: str
) -> None:
    needs_compiler(compiler)
    policy = read_policy(name, None, kind)
    observations = random_observations(policy, 200, 0)
    advice, status = decide(build(policy, tmp_path, compiler, ["-O1"]), policy, observations)
    given = by_onnx_runtime(policy, observations)
    assert not status.any()
    assert advice.tolist() == (given if policy.head is None else given.argmax(axis=1, keepdims=True)).tolist()


def test_an_index_beyond_its_table_is_an_error_and_no_advice(tmp_path: Path) -> None:
    needs_compiler("gcc")
    policy = rows(tmp_path / "policies")
    observations = np.zeros(5, record_of(policy))
    observations["x"][:, 0] = [0, 2, -1, 3, np.nan]
    advice, status = decide(build(policy, tmp_path, "gcc"), policy, observations)
    assert advice[:, 0].tolist() == [5, 7, 7, 0, 0]
    assert (status != 0).tolist() == [False, False, False, True, True]


def test_an_operator_without_a_form_in_c_is_named_with_those_that_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = helper.make_node("Sinh", ["x"], ["y"])
    write_onnx(tmp_path, "sinh", make_model([node], {"x": (FLOAT, ["n", 2])}, {"y": (FLOAT, ["n", 2])}))
    files = [str(tmp_path / "p.h"), str(tmp_path / "p.c")]
    assert main(["embed", "sinh", "--repository", str(tmp_path), "--for", "c", "-o", *files]) == 1
    said = capsys.readouterr().err
    assert "Sinh" in said
    assert "Gemm, " in said
    assert not list(tmp_path.glob("p.*"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["inlining-default", "--for", "c", "-o", "p.h", "p.c"], "is of the backend python; only onnx"),
        (["inliner@7", "--for", "c", "-o", "p.h", "p.c"], "7"),
        (["inliner", "--for", "c", "-o", "p.c"], "a file *.h and a file *.c"),
        (["inliner", "--for", "plugin-22", "-o", "p.so", "q.so"], "one file"),
        (["inliner", "--for", "mlir-22", "-o", "p.so"], "needs sroa_savings: int64_t[1], which mlir-22 does not have"),
    ],
    ids=["python", "version", "files", "plugins", "another compiler"],
)
def test_what_cannot_be_embedded_is_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", *words]) == 1
    assert said in capsys.readouterr().err


def test_a_saved_model_cannot_be_embedded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "saved" / "1"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").touch()
    files = [str(tmp_path / "p.h"), str(tmp_path / "p.c")]
    assert main(["embed", "saved", "--repository", str(tmp_path), "--for", "c", "-o", *files]) == 1
    assert "is of the backend tensorflow; only onnx can be embedded" in capsys.readouterr().err


def test_a_plugin_refuses_a_policy_that_does_not_give_one_integer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scorer(tmp_path, "")
    words = ["scorer", "--repository", str(tmp_path), "--for", "plugin-22", "-o", str(tmp_path / "p.so")]
    assert main(["embed", *words]) == 1
    assert "the plugin takes one int64_t" in capsys.readouterr().err


RELEASE = """
#include "model.hpp"
#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/IR/LLVMContext.h"
#include <cstdio>
#include <vector>
using namespace llvm;
int main() {
  LLVMContext context;
  std::vector<TensorSpec> specs;
  for (std::size_t index = 0; index < ours_feature_count; ++index)
    specs.push_back(TensorSpec::createSpec<int64_t>(ours_features[index].name, {1}));
  specs.push_back(TensorSpec::createSpec<int64_t>("unknown_to_the_policy", {1}));
  ReleaseModeModelRunner<OursModel> runner(context, specs, "inlining_decision");
  for (int round = -50; round < 50; ++round) {
    for (std::size_t index = 0; index < specs.size(); ++index)
      *runner.getTensor<int64_t>(index) = round * static_cast<int64_t>(index % 7);
    std::printf("%d", static_cast<int>(runner.evaluate<int64_t>()));
  }
  OursModel model;
  std::printf(" %d %d %s", model.LookupArgIndex("feed_none"), model.LookupResultIndex("other"), model.missing());
}
"""


def test_the_class_for_llvms_release_mode_decides_in_llvms_own_runner(tmp_path: Path) -> None:
    config = shutil.which("llvm-config-22")
    if config is None:
        missing("llvm-22-dev")
    files = [str(tmp_path / name) for name in ("model.hpp", "ours.h", "ours.c")]
    assert main(["embed", "inliner", "--prefix", "ours", "--for", "llvm-release", "-o", *files]) == 0
    (tmp_path / "main.cpp").write_text(RELEASE)
    flags = subprocess.check_output([str(config), "--cxxflags", "--ldflags", "--libs"], text=True).split()
    subprocess.run(["gcc", *STRICT, "-O1", "-c", "ours.c"], cwd=tmp_path, check=True)
    # LLVM's flags begin with -I, -std=c++17 and its defines.
    subprocess.run(["g++", "-O0", "main.cpp", "ours.o", "-o", "main", *flags], cwd=tmp_path, check=True)
    decisions, unknown, result, lacking = subprocess.check_output([tmp_path / "main"], text=True).split()
    assert (unknown, result, lacking) == ("-1", "-1", "sroa_savings")
    policy = read_policy("inliner", None)
    observations = np.zeros(100, record_of(policy))
    for place, feature in enumerate(policy.members):
        observations[feature.spec.name][:, 0] = np.arange(-50, 50) * (place % 7)
    advice, _ = decide(build(policy, tmp_path, "gcc", ["-O1"]), policy, observations)
    assert decisions == "".join(str(each) for each in advice[:, 0])
    assert set(decisions) == {"0", "1"}


RUNS = """
#include "model.hpp"
#include <cstdio>
int main() {
  RowsModel model;
  float *row = static_cast<float *>(model.arg_data(model.LookupArgIndex("feed_x")));
  const float *advice = static_cast<const float *>(model.result_data(model.LookupResultIndex("fetch_y")));
  for (float given : {2.0f, 3.0f, 0.0f}) {
    *row = given;
    model.Run();
    std::printf("%g %d ", *advice, model.status() == ROWS_OK);
  }
}
"""


def test_after_an_error_the_class_gives_0_in_place_of_the_last_advice_and_its_status_has_the_error(
    tmp_path: Path,
) -> None:
    needs_compiler("g++")
    rows(tmp_path / "policies")
    files = [str(tmp_path / name) for name in ("model.hpp", "rows.h", "rows.c")]
    assert (
        main(["embed", "rows", "--repository", str(tmp_path / "policies"), "--for", "llvm-release", "-o", *files]) == 0
    )
    (tmp_path / "main.cpp").write_text(RUNS)
    subprocess.run(["gcc", *STRICT, "-c", "rows.c"], cwd=tmp_path, check=True)
    subprocess.run(["g++", "-std=c++17", "main.cpp", "rows.o", "-o", "main"], cwd=tmp_path, check=True)
    assert subprocess.check_output([tmp_path / "main"], text=True).split() == ["7", "1", "0", "0", "5", "1"]


@pytest.mark.parametrize(
    ("script", "limits", "said"),
    [
        ('echo "$@" >> "${0%/*}/words"; exec gcc "$@"', Limits(), ""),
        ("exec sleep 600", Limits(seconds=0.5), "timeout: it was ended after 0.5 seconds"),
        ("seq 5000 >&2; echo this is why >&2; exit 1", Limits(), "this is why"),
    ],
    ids=["works", "is late", "fails"],
)
def test_the_c_is_compiled_by_the_named_compiler_at_its_level_within_its_limits(
    tmp_path: Path, script: str, limits: Limits, said: str
) -> None:
    needs_compiler("gcc")
    for name in ("gcc-99", "g++-99"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    toolchain = Toolchain.find(str(tmp_path / "gcc-99"), "Os", limits)
    assert toolchain.cxx == str(tmp_path / "g++-99")
    policy = read_policy("inliner", None)
    if said:
        with pytest.raises(PreconditionError, match=said):
            CompiledPolicy(policy, toolchain)
    else:
        _, status = CompiledPolicy(policy, toolchain).decide(np.zeros(3, record_of(policy)))
        assert not status.any()
        assert " -Os " in (tmp_path / "words").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--compiler", "zig"], "'zig' is not a known C compiler; supported: cc, gcc, clang"),
        (["--compiler", "gcc-98"], "gcc-98 and g++-98 are not installed"),
        (["--memory", "99999999999999"], "a compilation has more than 0 and at most"),
    ],
)
def test_an_unknown_compiler_and_an_impossible_limit_are_told(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["embed", "inliner", "--for", "plugin-22", "-o", str(tmp_path / "p.so"), *words]) == 1
    assert said in capsys.readouterr().err


def test_the_class_is_named_after_the_policy() -> None:
    assert class_name("my_inliner") == "MyInlinerModel"


def test_recorded_observations_are_decided_in_c_as_by_the_server(
    tmp_path: Path, server_factory: ServerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_compiler("gcc")
    ledger = tmp_path / "ledger.db"
    server = server_factory(None, "--ledger", ledger)
    specs = read_policy("inliner", None).members
    features = [TensorSpec(each.spec.name, each.spec.type) for each in specs]
    advice = TensorSpec("inlining_decision", ElementType.INT64)
    chance = np.random.default_rng(1)
    with open_runner(server.socket, policy="inliner", features=features, advice=advice) as runner:
        for _ in range(100):
            for each in features:
                runner[each.name] = int(chance.integers(-50, 500))
            runner.evaluate()
        runner.report("ok")
    assert main(["embed", "compare", "inliner", "--ledger", str(ledger)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.pop("nanoseconds") > 0
    assert found == {"observations": 100, "different": 0, "errors": 0, "skipped": 0}


def test_compare_counts_failures_of_both_takes_masks_of_any_type_and_skips_sessions_without_one(
    tmp_path: Path, server_factory: ServerFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_compiler("gcc")
    repository, ledger = tmp_path / "policies", tmp_path / "ledger.db"
    scorer(repository, '[head]\nmask = "legal"\nadvice = "choice"')
    rows = helper.make_node("Gather", ["table", "row"], ["y"], axis=0)
    inputs: dict[str, tuple[int, list[int | str]]] = {"row": (TensorProto.INT64, ["n", 1])}
    weights = {"table": np.array([5, 6, 7], np.float32)}
    write_onnx(repository, "rows", make_model([rows], inputs, {"y": (FLOAT, ["n", 1])}, weights))
    write_onnx(
        repository, "any", make_model([helper.make_node("Identity", ["row"], ["y"])], inputs, {"y": inputs["row"]})
    )
    server = server_factory(repository, "--ledger", ledger)
    row, scores = TensorSpec("row", ElementType.INT64), TensorSpec("a b*/'", ElementType.FLOAT, (4,))
    with open_runner(
        server.socket, policy="any", features=[row, scores], advice=TensorSpec("y", ElementType.INT64)
    ) as runner:
        for number in (0, 3, 2, -4):
            runner["row"] = number
            runner.evaluate()
        runner.report("ok")
    features = [scores, TensorSpec("legal", ElementType.FLOAT, (4,))]
    with open_runner(
        server.socket, policy="scorer", features=features, advice=TensorSpec("choice", ElementType.INT64)
    ) as runner:
        runner[scores.name], runner["legal"] = [1, 2, 3, 4], [0.5, 0.5, 0.25, 0]
        assert runner.evaluate() == 2
        runner.report("ok")
    for policy, counts in (
        ("rows", {"observations": 4, "different": 0, "errors": 2, "skipped": 1}),
        ("scorer", {"observations": 1, "different": 0, "errors": 0, "skipped": 4}),
    ):
        assert main(["embed", "compare", policy, "--repository", str(repository), "--ledger", str(ledger)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {name: found[name] for name in counts} == counts

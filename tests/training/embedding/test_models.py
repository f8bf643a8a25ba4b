"""The C of models as exporters write them, beside ONNX Runtime."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_client.cli import main
from policybridge_core.errors import UnsupportedError
from policybridge_train.embedding.interface import read_policy
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


def decides_as_onnx_runtime(folder: Path, model: onnx.ModelProto, toml: str = "") -> None:
    """Check a policy of the model on random observations, in C that is compiled without a warning."""
    needs_compiler("gcc")
    write_onnx(folder / "policies", "made", model, toml)
    policy = read_policy("made", folder / "policies")
    observations = random_observations(policy, 100, 0)
    advice, status = decide(build(policy, folder, "gcc"), policy, observations)
    assert not status.any()
    assert advice.tolist() == by_onnx_runtime(policy, observations).tolist()


def compile_files(repository: Path, name: str) -> None:
    """Check that the policy's C compiles without a warning as C99, as GNU's C, and as C++."""
    files = [str(repository / "p.h"), str(repository / "p.c")]
    assert main(["embed", name, "--repository", str(repository), "--for", "c", "-o", *files]) == 0
    for compiler, *flags in (("gcc", *STRICT), ("gcc",), ("g++", "-x", "c++", "-Wall", "-Wextra", "-Werror")):
        needs_compiler(compiler)
        command = [compiler, *flags, "-c", "p.c", "-o", "p.o"]
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]


def with_trees(
    nodes: list[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, list[int | str]]],
    outputs: Mapping[str, tuple[int, list[int | str]]],
) -> onnx.ModelProto:
    """Make a model that may have ONNX's operators of machine learning."""
    takes = [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()]
    gives = [helper.make_tensor_value_info(name, *spec) for name, spec in outputs.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(nodes, "policy", takes, gives), opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Celu", {"alpha": 1.5}),
        ("Gelu", {}),
        ("Gelu", {"approximate": "tanh"}),
        ("HardSwish", {}),
        ("Mish", {}),
        ("PRelu", {}),
        ("Selu", {}),
    ],
)
def test_an_activation_of_newer_exporters_is_computed_as_in_onnx_runtime(
    tmp_path: Path, operator: str, attributes: Mapping[str, Any]
) -> None:
    needs_compiler("gcc")
    weights = {"slope": np.array([0.25, -1, 2], np.float32)} if operator == "PRelu" else {}
    node = helper.make_node(operator, ["x", *weights], ["y"], **attributes)
    model = make_model([node], {"x": (FLOAT, ["n", 3])}, {"y": (FLOAT, ["n", 3])}, weights, opset=20)
    write_onnx(tmp_path / "policies", "new", model)
    policy = read_policy("new", tmp_path / "policies")
    observations = np.zeros(200, record_of(policy))
    observations["x"] = np.linspace(-40, 40, 600).reshape(200, 3)
    advice, status = decide(build(policy, tmp_path, "gcc"), policy, observations)
    assert not status.any()
    np.testing.assert_allclose(advice, by_onnx_runtime(policy, observations), rtol=1e-5, atol=1e-6)


def test_weights_that_the_file_lists_among_the_inputs_keep_their_shapes(tmp_path: Path) -> None:
    weights = {"w": np.array([[1, 2], [3, 4], [5, 6]], np.float32)}
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (FLOAT, ["n", 3]), "w": (FLOAT, [3, 2])}
    decides_as_onnx_runtime(tmp_path, make_model([node], inputs, {"y": (FLOAT, ["n", 2])}, weights))


TREE: Final[dict[str, Any]] = {
    "nodes_treeids": [0] * 13,
    "nodes_nodeids": list(range(13)),
    "nodes_featureids": [0] * 13,
    "nodes_values": [float(each) for each in range(13)],
    "nodes_modes": ["BRANCH_LEQ", "LEAF"] * 6 + ["LEAF"],
    "nodes_truenodeids": [1, 0, 3, 0, 5, 0, 7, 0, 9, 0, 11, 0, 0],
    "nodes_falsenodeids": [2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 12, 0, 0],
}
"""A tree that compares one column with six numbers."""


@pytest.mark.parametrize("name", ["pb", "SURREAL", "NAMED", "class"])
def test_a_policy_of_any_name_compiles_as_c_and_as_cpp(tmp_path: Path, name: str) -> None:
    leaves = [1, 3, 5, 7, 9, 11, 12]
    places: dict[str, Any] = {"target_treeids": [0] * 7, "target_nodeids": leaves, "target_ids": [0] * 7}
    attributes = TREE | places | {"target_weights": [float(each) for each in leaves]}
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **attributes)
    write_onnx(tmp_path, name, with_trees([node], {"x": (FLOAT, ["n", 1])}, {"y": (FLOAT, ["n", 1])}))
    compile_files(tmp_path, name)


def test_features_that_are_named_like_words_of_c_and_cpp_compile_as_both(tmp_path: Path) -> None:
    names = ["decltype", "co_yield", "NULL", "linux", "typeof", "int64_t", "not_eq", "bool", "naïve", "naive", "9"]
    inputs: dict[str, tuple[int, list[int | str]]] = {name: (FLOAT, ["n", 1]) for name in names}
    node = helper.make_node("Sum", names, ["decltype of all"])
    write_onnx(tmp_path, "odd", make_model([node], inputs, {"decltype of all": (FLOAT, ["n", 1])}))
    compile_files(tmp_path, "odd")


def test_nan_infinities_and_zeros_of_both_signs_are_computed_as_in_onnx_runtime(tmp_path: Path) -> None:
    needs_compiler("gcc")
    nodes = [helper.make_node(name, ["x", "z"], [name]) for name in ("Max", "Min", "Pow")]
    nodes += [helper.make_node("Sign", ["x"], ["Sign"]), helper.make_node("Reciprocal", ["Pow"], ["Reciprocal"])]
    # A policy that gives NaN has failed, so NaN becomes a number.
    for node in [*nodes]:
        nodes.append(helper.make_node("IsNaN", [node.output[0]], [f"{node.output[0]} is NaN"]))
        nodes.append(
            helper.make_node("Where", [nodes[-1].output[0], "mark", node.output[0]], [f"{node.output[0]} sure"])
        )
    nodes.append(
        helper.make_node("Concat", [each.output[0] for each in nodes if "sure" in each.output[0]], ["y"], axis=1)
    )
    weights = {"mark": np.array(-77.25, np.float32)}
    model = make_model(nodes, {"x": (FLOAT, ["n", 1]), "z": (FLOAT, ["n", 1])}, {"y": (FLOAT, ["n", 5])}, weights)
    write_onnx(tmp_path / "policies", "edges", model)
    policy = read_policy("edges", tmp_path / "policies")
    numbers = [0.0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, np.inf, -np.inf, np.nan]
    observations = np.zeros(len(numbers) ** 2, record_of(policy))
    observations["x"][:, 0], observations["z"][:, 0] = np.repeat(numbers, len(numbers)), numbers * len(numbers)
    advice, status = decide(build(policy, tmp_path, "gcc"), policy, observations)
    assert not status.any()
    np.testing.assert_allclose(advice, by_onnx_runtime(policy, observations), rtol=1e-6)


def test_numbers_of_63_bits_and_more_become_uint64_as_in_onnx_runtime(tmp_path: Path) -> None:
    needs_compiler("gcc")
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.UINT64)
    outputs: dict[str, tuple[int, list[int | str]]] = {"y": (TensorProto.UINT64, ["n", 1])}
    write_onnx(tmp_path / "policies", "wide", make_model([node], {"x": (TensorProto.DOUBLE, ["n", 1])}, outputs))
    policy = read_policy("wide", tmp_path / "policies")
    observations = np.zeros(5, record_of(policy))
    observations["x"][:, 0] = [2.0**62, 2.0**63, 1.5 * 2.0**63, 2.0**64 - 2048, -1]
    advice, _ = decide(build(policy, tmp_path, "gcc"), policy, observations)
    assert advice.tolist() == by_onnx_runtime(policy, observations).tolist()


@pytest.mark.parametrize("output", ["label", "chances"])
def test_a_classifier_of_which_one_output_is_taken_compiles_without_a_warning(tmp_path: Path, output: str) -> None:
    leaves = [1, 3, 5, 7, 9, 11, 12]
    places: dict[str, Any] = {"class_treeids": [0] * 7, "class_nodeids": leaves, "class_ids": [0, 1, 2, 0, 1, 2, 0]}
    attributes = (
        TREE | places | {"class_weights": [1.0] * 7, "classlabels_int64s": [5, 6, 7], "post_transform": "SOFTMAX"}
    )
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "chances"], domain="ai.onnx.ml", **attributes)
    outputs: dict[str, tuple[int, list[int | str]]] = {
        "label": (TensorProto.INT64, ["n"]),
        "chances": (FLOAT, ["n", 3]),
    }
    model = with_trees([node], {"x": (FLOAT, ["n", 1])}, outputs)
    write_onnx(tmp_path, "classes", model, f'[settings]\nbatch = true\noutput = "{output}"\n')
    compile_files(tmp_path, "classes")


def test_bounds_at_the_ends_of_a_type_empty_tensors_and_unread_inputs_cause_no_warning(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Clip", ["x", "least", "most"], ["clipped"]),
        helper.make_node("Max", ["clipped", "least"], ["sure"]),
        helper.make_node("Slice", ["sure", "one", "one", "one"], ["nothing"]),
        helper.make_node("Concat", ["nothing", "sure"], ["y"], axis=1),
    ]
    weights = {"least": np.array(0, np.uint8), "most": np.array(255, np.uint8), "one": np.array([1])}
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (TensorProto.UINT8, ["n", 2]), "unread": (FLOAT, ["n", 2])}
    model = make_model(nodes, inputs, {"y": (TensorProto.UINT8, ["n", 2])}, weights)
    write_onnx(tmp_path, "ends", model, '[settings.pack.unread]\nfeatures = ["a", "b"]\n')
    compile_files(tmp_path, "ends")


HALF: Final = TensorProto.FLOAT16
HALVES: Final = [
    helper.make_node("Gather", ["table", "x"], ["row"], axis=0),
    helper.make_node("Cast", ["row"], ["y"], to=FLOAT),
]
PICKED: Final = [helper.make_node("Gather", ["x", "table"], ["y"], axis=1)]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (([helper.make_node("Cast", ["x"], ["y"], to=FLOAT)], HALF, [1]), "input x is of the type FLOAT16"),
        ((HALVES, TensorProto.INT64, np.ones(3, np.float16)), "the operator Gather takes float16"),
        ((PICKED, FLOAT, [7]), "its index is beyond its table of 1"),
        ((PICKED, FLOAT, [0, 0]), "with 1 elements, and computes 2"),
        ((PICKED, FLOAT, [0] * (1 << 18)), "with 1 elements, and computes 262144"),
        ((PICKED, FLOAT, [0] * ((1 << 18) + 1)), "tensors take more than 1048576 bytes"),
    ],
    ids=["half input", "half weights", "index", "shape", "1 MiB", "more than 1 MiB"],
)
def test_a_model_that_has_no_form_in_c_is_refused_with_the_reason(
    tmp_path: Path, model: tuple[list[onnx.NodeProto], int, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, kind, weight = model
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (kind, ["n", 1])}
    write_onnx(tmp_path, "odd", make_model(nodes, inputs, {"y": (FLOAT, ["n", 1])}, {"table": np.array(weight)}))
    files = [str(tmp_path / "p.h"), str(tmp_path / "p.c")]
    assert main(["embed", "odd", "--repository", str(tmp_path), "--for", "c", "-o", *files]) == 1
    assert said in capsys.readouterr().err


def test_products_of_integers_wrap_in_c_as_in_onnx_runtime(tmp_path: Path) -> None:
    needs_compiler("gcc")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (TensorProto.INT64, ["n", 2])}
    outputs: dict[str, tuple[int, list[int | str]]] = {"y": (TensorProto.INT64, ["n", 2])}
    model = make_model([node], inputs, outputs, {"w": np.array([[3, -1], [5, 2**62]])})
    write_onnx(tmp_path / "policies", "wide", model)
    policy = read_policy("wide", tmp_path / "policies")
    observations = np.zeros(3, record_of(policy))
    observations["x"] = [[2**63 - 1, 9], [-(2**63), -1], [7, 3]]
    advice, _ = decide(build(policy, tmp_path, "gcc"), policy, observations)
    assert advice.tolist() == by_onnx_runtime(policy, observations).tolist()


@pytest.mark.parametrize("bound", [-np.inf, np.inf, np.nan])
@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT", "BRANCH_GTE"])
@pytest.mark.parametrize("missing", [0, 1])
def test_a_tree_that_compares_with_infinity_or_nan_decides_as_in_onnx_runtime(
    tmp_path: Path, bound: float, mode: str, missing: int
) -> None:
    needs_compiler("gcc")
    first = {"nodes_values": [bound, *TREE["nodes_values"][1:]], "nodes_modes": [mode, *TREE["nodes_modes"][1:]]}
    leaves: dict[str, Any] = {"target_treeids": [0, 0], "target_nodeids": [1, 12], "target_ids": [0, 0]}
    tracks: dict[str, Any] = {"nodes_missing_value_tracks_true": [missing] * 13, "target_weights": [1.0, 2.0]}
    attributes = TREE | first | leaves | tracks
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **attributes)
    write_onnx(tmp_path / "p", "tree", with_trees([node], {"x": (FLOAT, ["n", 1])}, {"y": (FLOAT, ["n", 1])}))
    policy = read_policy("tree", tmp_path / "p")
    observations = np.zeros(6, record_of(policy))
    observations["x"][:, 0] = [-np.inf, np.inf, np.nan, 0, 11.5, 99]
    advice, _ = decide(build(policy, tmp_path, "gcc", ["-O1"]), policy, observations)
    assert advice.tolist() == by_onnx_runtime(policy, observations).tolist()


@pytest.mark.parametrize("name", ["größe", "what?", "50%"])
def test_the_source_includes_a_header_of_any_name_that_c_can_include(tmp_path: Path, name: str) -> None:
    needs_compiler("gcc")
    files = [str(tmp_path / f"{name}.h"), str(tmp_path / f"{name}.c")]
    assert main(["embed", "inliner-imitation", "--for", "c", "-o", *files]) == 0
    subprocess.run(["gcc", *STRICT, "-c", files[1], "-o", str(tmp_path / "made.o")], check=True)


def test_a_header_whose_name_c_cannot_include_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [str(tmp_path / 'a"b.h'), str(tmp_path / "ab.c")]
    assert main(["embed", "inliner-imitation", "--for", "c", "-o", *files]) == 1
    assert "a header cannot be named" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_of_a_policy_with_a_model_for_each_kind_one_kind_is_named(tmp_path: Path) -> None:
    model = make_model([helper.make_node("Identity", ["x"], ["y"])], {"x": (FLOAT, [1])}, {"y": (FLOAT, [1])})
    write_onnx(tmp_path, "both", model, 'decides = ["a", "b"]\n[kinds.a]\n[kinds.b]\n')
    for kind in (None, "c"):
        with pytest.raises(UnsupportedError, match="both has a model for each of a, b: name one by --kind"):
            read_policy("both", tmp_path, kind)
    files = [str(tmp_path / "p.h"), str(tmp_path / "p.c")]
    words = ["embed", "both", "--repository", str(tmp_path), "--for"]
    assert main([*words, "c", "--kind", "b", "-o", *files]) == 0
    assert "both@1 sha256:" in (tmp_path / "p.c").read_text()
    assert main([*words, "plugin-22", "--kind", "b", "-o", str(tmp_path / "p.so")]) == 1

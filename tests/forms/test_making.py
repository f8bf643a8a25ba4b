"""Which versions have a form, and why others have none."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.forms.making import forms_of
from tests.forms.parts import forms, stored
from tests.onnx_models import make_model, write_onnx

FLOAT = TensorProto.FLOAT


def _model(operator: str, shape: list[int | str], **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    return make_model([node], {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)})


@pytest.mark.parametrize(
    ("model", "toml", "said"),
    [
        (_model("Sinh", ["n", 2]), "", "has the operator Sinh, without a portable form; operators with one are Abs, "),
        (_model("Relu", ["n", "m"]), "", r"has x: float\[-1\]; only"),
        (_model("Relu", ["n", 2]), '[head]\nscores = "choice"\nchoices = 2\n', "takes one integer"),
        (_model("Softmax", ["n", 2, 3], axis=1), "", "the operator Softmax has no portable form where its axis is not"),
        (_model("Relu", ["n", (1 << 18) + 1]), "", "tensors take more than 1048576 bytes|at most"),
    ],
    ids=["operator", "varying shape", "head", "axis", "size"],
)
def test_a_version_without_a_form_says_why_in_one_line(
    tmp_path: Path, model: onnx.ModelProto, toml: str, said: str
) -> None:
    write_onnx(tmp_path, "made", model, toml)
    with pytest.raises(PolicyBridgeError, match=said) as raised:
        forms("made", tmp_path)
    assert "\n" not in str(raised.value)


def test_a_policy_in_python_has_no_form() -> None:
    with pytest.raises(PolicyBridgeError, match="is of the backend python; only onnx has a portable form"):
        forms_of(stored("inlining-default"))


def test_a_form_has_the_names_defaults_and_mask_of_the_policy(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["scores"])
    model = make_model([node], {"x": (FLOAT, ["n", 3])}, {"scores": (FLOAT, ["n", 3])})
    pack = '[settings.pack.x]\ntype = "int64_t"\nfeatures = ["a", {name = "b", type = "double"}, "c"]\n'
    toml = f'[fill]\nb = 0.5\n[rename]\nc = "C"\n[head]\nmask = "legal"\nadvice = "choice"\n{pack}'
    write_onnx(tmp_path, "made", model, toml)
    form = forms("made", tmp_path)[""]
    assert [str(each.spec) for each in form.content.features] == [
        "a: int64_t[1]",
        "b: double[1]",
        "C: int64_t[1]",
        "legal: int64_t[3]",
    ]
    assert [None if each.fill is None else each.fill.tolist() for each in form.content.features] == [
        None,
        [0.5],
        None,
        None,
    ]
    assert str(form.content.advice) == "choice: int64_t[1]"
    assert form.evaluate({"a": 1, "C": 2, "legal": [1, 1, 0]}).tolist() == [0]
    assert form.evaluate({"a": 1, "C": 2, "b": 1.5, "legal": np.array([1, 1, 0])}).tolist() == [1]


def test_an_output_that_is_no_tensor_and_no_advice_is_no_obstacle(tmp_path: Path) -> None:
    # As scikit-learn's converter writes a classifier by default.
    odds = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
    )
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("ZipMap", ["x"], ["odds"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]
    x, y = (helper.make_tensor_value_info(name, FLOAT, ["n", 2]) for name in "xy")
    graph = helper.make_graph(nodes, "classifier", [x], [y, helper.make_value_info("odds", odds)])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    write_onnx(
        tmp_path, "made", helper.make_model(graph, opset_imports=opsets, ir_version=9), '[settings]\noutput = "y"\n'
    )
    assert forms("made", tmp_path)[""].content.advice.count == 2

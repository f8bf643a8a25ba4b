"""Decisions by a form in Python, beside those by the policy's C, by ONNX Runtime and by the server's head."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_core.errors import InvalidError, PolicyFailedError
from policybridge_forms import Form, Status
from policybridge_train.embedding.interface import read_policy
from tests.forms.every import every, numbers
from tests.forms.parts import SMALL, forms, records, same
from tests.onnx_models import make_model, write_onnx
from tests.training.embedding.networks import HEADS, random_network, write_network
from tests.training.embedding.programs import build, by_onnx_runtime, decide, needs_compiler, random_observations

FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize(
    ("name", "kind"),
    [("inliner", ""), ("size", "inlining_decision"), ("size", "pass_choice"), ("inliner-imitation", "")],
)
def test_a_bundled_policy_decides_as_its_c_and_as_onnx_runtime(tmp_path: Path, name: str, kind: str) -> None:
    needs_compiler("gcc")
    form = forms(name)[kind]
    policy = read_policy(name, None, kind or None)
    observations = random_observations(policy, 300, 5)
    for field in observations.dtype.names or ():
        observations[field] *= np.random.default_rng(3).integers(1, 90, observations[field].shape)
    found = form.decide(records(form, observations))
    assert same(found, decide(build(policy, tmp_path, "gcc", ["-O1"]), policy, observations))
    scores = by_onnx_runtime(policy, observations)
    choices = scores if policy.head is None else scores.argmax(axis=1, keepdims=True)
    assert found[0].tolist() == choices.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_a_random_network_of_every_operator_has_the_bits_of_its_c(tmp_path: Path, seed: int) -> None:
    needs_compiler("gcc")
    repository = write_network(tmp_path / "policies", "net", random_network(seed), HEADS[seed])
    (form,) = forms("net", repository).values()
    policy = read_policy("net", repository)
    observations = random_observations(policy, 200, seed)
    found = form.decide(records(form, observations))
    assert same(found, decide(build(policy, tmp_path, "gcc", ["-O1"]), policy, observations))


def test_an_observation_is_decided_alone_as_among_others(tmp_path: Path) -> None:
    repository = write_network(tmp_path, "net", random_network(7), HEADS[0])
    (form,) = forms("net", repository).values()
    observations = records(form, random_observations(read_policy("net", repository), 20, 1))
    together = form.decide(observations)
    for row in range(20):
        alone = form.decide(observations[row : row + 1])
        assert same(alone, [each[row : row + 1] for each in together])


@pytest.mark.parametrize("scores", ["logits", "probabilities"])
def test_a_head_takes_the_first_of_the_best_legal_choices(tmp_path: Path, scores: str) -> None:
    inf, nan = np.inf, np.nan
    rows: Sequence[tuple[Sequence[float], Sequence[int], int | None]] = [
        ([1, 2, 3, 4], [1, 1, 1, 1], 3),
        ([4, 4, 1, 4], [0, 1, 1, 1], 1),
        ([0, 0, 0, 0], [0, 0, 0, 0], None),
        ([inf, 1, inf, 1], [1, 1, 1, 1], 0),
        ([nan, 1, 1, 2], [1, 1, 1, 1], None),
        ([nan, 1, 1, 2], [0, 1, 1, 1], 3),
        ([-1, 2, 3, 1], [1, 1, 1, 1], 2 if scores == "logits" else None),
    ]
    node = helper.make_node("Identity", ["x"], ["scores"])
    head = f'[head]\nscores = "{scores}"\nmask = "legal"\ntype = "int32_t"\n[settings]\nbatch = true\n'
    write_onnx(tmp_path, "scorer", make_model([node], {"x": (FLOAT, ["n", 4])}, {"scores": (FLOAT, ["n", 4])}), head)
    (form,) = forms("scorer", tmp_path).values()
    observations = np.zeros(len(rows), form.record)
    observations["x"], observations["legal"] = [row[0] for row in rows], [row[1] for row in rows]
    advice, status = form.decide(observations)
    found = [None if code else int(choice) for choice, code in zip(advice[:, 0], status, strict=True)]
    assert found == [row[2] for row in rows]
    assert status[2] == Status.NO_LEGAL_CHOICE


def test_a_choice_out_of_range_or_that_the_mask_forbids_is_an_error(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["choice"])
    head = '[head]\nscores = "choice"\nchoices = 3\nmask = "legal"\n[settings]\nbatch = true\n'
    kinds: dict[str, tuple[int, list[int | str]]] = {"x": (TensorProto.INT64, ["n", 1])}
    write_onnx(tmp_path, "chooser", make_model([node], kinds, {"choice": kinds["x"]}), head)
    (form,) = forms("chooser", tmp_path).values()
    observations = np.zeros(4, form.record)
    observations["x"][:, 0], observations["legal"] = [2, 3, -1, 1], [1, 0, 1]
    advice, status = form.decide(observations)
    assert advice[:, 0].tolist() == [2, 0, 0, 0]
    assert status.tolist() == [0, *[Status.ILLEGAL_CHOICE] * 3]


def test_an_index_beyond_its_table_is_an_error(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["table", "row"], ["y"], axis=0)
    weights = {"table": np.array([5, 6, 7], np.float32)}
    model = make_model([node], {"row": (TensorProto.INT64, ["n", 1])}, {"y": (FLOAT, ["n", 1])}, weights)
    write_onnx(tmp_path, "rows", model)
    (form,) = forms("rows", tmp_path).values()
    observations = np.zeros(4, form.record)
    observations["row"][:, 0] = [0, 2, -1, 3]
    advice, status = form.decide(observations)
    assert advice[:, 0].tolist() == [5, 7, 7, 0]
    assert status.tolist() == [0, 0, 0, Status.BAD_INDEX]
    with pytest.raises(PolicyFailedError, match="an index is beyond its table"):
        form.evaluate({"row": [-4]})


@pytest.mark.parametrize(
    ("observation", "wanted"),
    [({"x": [2]}, 10.75 + 20), ({"x": 3, "y": [-1]}, 10.75), ({"x": 2, "y": -1, "z": 9}, 20.75)],
    ids=["a default", "the first child", "an unknown feature"],
)
def test_one_observation_is_decided_by_the_names_of_its_features(observation: dict[str, Any], wanted: float) -> None:
    advice = Form.of(SMALL).evaluate(observation)
    assert advice.tolist() == [wanted]


@pytest.mark.parametrize(
    ("observation", "said"),
    [
        ({"y": 1}, "lacks the feature x: int64_t"),
        ({"x": [1, 2]}, r"the feature x: int64_t\[1\] is given int64\[2\]"),
        ({"x": 0.5}, r"is given float64\[\]"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused(observation: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=said):
        Form.of(SMALL).evaluate(observation)


def test_every_function_of_every_type_takes_numbers_of_every_kind() -> None:
    form = Form.of(every())
    observations = numbers(form.content, 100, 0)
    scores, status = form.scores(observations)
    assert not status.any()
    alone, _ = form.scores(observations[17:18])
    assert alone.tobytes() == scores[17:18].tobytes()
    assert 0 < np.isnan(scores).mean() < 0.1

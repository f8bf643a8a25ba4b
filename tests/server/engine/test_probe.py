"""How many batches a model evaluates when it is probed."""

import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_core.errors import PreconditionError
from policybridge_serdes import ElementType, Layout, PolicyReference, TensorSpec, Values
from policybridge_server.backends.contract import Batch, ModelSignature
from policybridge_server.engine.loading import Allowances
from policybridge_server.engine.probe import MAX_BATCH, confirm_probe, probe
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import Repository
from tests.onnx_models import make_model, write_onnx

X, ADVICE = TensorSpec("x", ElementType.FLOAT), TensorSpec("advice", ElementType.FLOAT)


class Counted:
    """A model that notes the sizes of its batches; as kernels may, those of small ones have another last bit."""

    signature = ModelSignature(Layout((X,)), ADVICE)
    batched = True
    inline: bool | None = None

    def __init__(self, least: int) -> None:
        self._least = least
        self.sizes: list[int] = []

    def evaluate(self, batch: Batch) -> Values:
        """Give each observation's own number."""
        self.sizes.append(len(batch.values))
        advice: Values = np.zeros(len(batch.values), batch.advice.dtype)
        advice["advice"] = batch.values["x"]
        if len(batch.values) < self._least:
            advice["advice"] = np.nextafter(advice["advice"], np.float32(np.inf))
        return advice

    def close(self) -> None:
        """There is nothing to free."""


class Waiting(Counted):
    """A model that takes some seconds for each observation, and more for its first one."""

    batched = False

    def __init__(self, first: float, seconds: float) -> None:
        super().__init__(least=1)
        self._first = first
        self._seconds = seconds

    def evaluate(self, batch: Batch) -> Values:
        """Give the observation's own number."""
        threading.Event().wait(self._seconds if self.sizes else self._first)
        return super().evaluate(batch)


@pytest.mark.parametrize(("first", "seconds", "runs"), [(0.2, 0.2, 2), (0.2, 0.0, 5), (0.0, 0.0, 5)])
def test_a_model_is_asked_five_times_for_its_fastest_run_and_a_slow_one_twice(
    first: float, seconds: float, runs: int
) -> None:
    model = Waiting(first, seconds)
    found = probe(model)
    assert model.sizes == [1] * runs
    assert found.most == 1
    assert (found.seconds or 0.0) >= seconds


def test_of_new_weights_only_a_sample_of_batches_is_probed() -> None:
    base, new = Counted(least=4), Counted(least=4)
    found = probe(base)
    assert (found.least, found.most) == (4, MAX_BATCH)
    assert confirm_probe(new, found) == found
    assert new.sizes == [4] * 8 + [32]
    assert len(base.sizes) > 5 * len(new.sizes)


def test_new_weights_whose_sample_does_not_agree_are_probed_in_full() -> None:
    new = Counted(least=8)
    assert confirm_probe(new, probe(Counted(least=4))).least == 8
    assert MAX_BATCH in new.sizes


class Diverged(Counted):
    """A model that gives NaN for ``x`` above ``most``."""

    def __init__(self, most: float, *, batched: bool) -> None:
        super().__init__(least=1)
        self.batched, self._most = batched, most

    def evaluate(self, batch: Batch) -> Values:
        """Give the observation's own number, or NaN."""
        advice = super().evaluate(batch)
        return np.where(batch.values["x"] > self._most, np.nan, advice["advice"]).astype(np.float32).view(advice.dtype)


@pytest.mark.parametrize("batched", [True, False])
def test_a_model_that_gives_nan_for_every_observation_is_refused(batched: bool) -> None:
    with pytest.raises(PreconditionError, match=r"every observation .* gives NaN alone for advice: float\[1\]"):
        probe(Diverged(-np.inf, batched=batched), must_answer=True)


@pytest.mark.parametrize("batched", [True, False])
def test_a_model_that_gives_nan_for_some_observations_is_probed_like_any_other(batched: bool) -> None:
    found = probe(Diverged(0.0, batched=batched), must_answer=True)
    assert found.most == (MAX_BATCH if batched else 1)
    assert found.seconds is not None


def test_new_weights_that_give_nan_for_every_observation_are_refused() -> None:
    found = probe(Diverged(np.inf, batched=True))
    with pytest.raises(PreconditionError, match="gives NaN alone"):
        confirm_probe(Diverged(-np.inf, batched=True), found)


class Drawing(Counted):
    """A model that now and then draws another advice."""

    def __init__(self, *, batched: bool) -> None:
        super().__init__(least=1)
        self.batched, self._draw = batched, np.random.default_rng(1)

    def evaluate(self, batch: Batch) -> Values:
        """Give the observation's own number, or the next one."""
        advice = super().evaluate(batch)
        advice["advice"] += self._draw.random(advice["advice"].shape) < 0.3
        return advice


@pytest.mark.parametrize("batched", [True, False])
def test_a_model_that_draws_random_numbers_is_found(batched: bool) -> None:
    assert not probe(Drawing(batched=batched)).repeats
    assert probe(Counted(least=4)).repeats
    assert probe(Counted(least=1000)).repeats


@pytest.mark.parametrize(("operator", "warned"), [("RandomNormalLike", True), ("Neg", False)])
def test_the_log_warns_of_a_model_that_draws_random_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, operator: str, warned: bool
) -> None:
    x: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 2])
    node = helper.make_node(operator, ["x"], ["y"])
    write_onnx(tmp_path, "mine", make_model([node], {"x": x}, {"y": x}))
    versions = LoadedVersions(Repository([tmp_path]), Allowances(allow_python=False))
    versions.load(PolicyReference("mine"))
    assert ("mine@1 gives other advice when it is asked the same again" in caplog.text) == warned
    versions.close()

"""Portable forms in C++, beside those in Python: the same bits, the same refusals."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from policybridge_core.errors import PolicyBridgeError
from policybridge_forms import Drawing, Form, Status
from policybridge_forms.codec import write
from policybridge_forms.content import plain
from policybridge_serdes import Exploration
from tests.forms.every import every, numbers
from tests.forms.parts import SMALL, forms
from tests.native.conftest import Target
from tests.training.embedding.networks import HEADS, random_network, write_network


@pytest.fixture(scope="module")
def program(native: Target) -> Path:
    return native("policybridge-form") / "bin" / "policybridge-form"


def decides_alike(program: Path, folder: Path, form: Form, observations: npt.NDArray[Any]) -> None:
    """Check outcomes, scores and advice; NaN may have another sign."""
    (folder / "form").write_bytes(form.data)
    done = subprocess.run([program, folder / "form"], input=observations.tobytes(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    content = form.content
    fields = [
        ("status", np.dtype(np.uint8), 1),
        ("scores", plain(content.result.dtype), content.results),
        ("advice", plain(content.advice.type.dtype), content.advice.count),
    ]
    found = np.frombuffer(done.stdout, np.dtype([(name, dtype, (count,)) for name, dtype, count in fields]))
    advice, status = form.decide(observations)
    scores, _ = form.scores(observations)
    assert found["status"][:, 0].tolist() == status.tolist()
    assert found["advice"][status == 0].tobytes() == advice[status == 0].tobytes()
    whole = status != Status.BAD_INDEX
    ours, theirs = scores[whole], found["scores"][whole]
    is_nan = np.isnan(ours) if ours.dtype.kind == "f" else np.zeros(ours.shape, np.bool_)
    assert np.array_equal(np.isnan(theirs) if ours.dtype.kind == "f" else is_nan, is_nan)
    assert theirs[~is_nan].tobytes() == ours[~is_nan].tobytes()


def whole_numbers(form: Form, count: int, seed: int) -> npt.NDArray[Any]:
    """Make observations of whole numbers."""
    random, made = np.random.default_rng(seed), np.zeros(count, form.record)
    for name in made.dtype.names or ():
        made[name] = random.integers(-200, 2000, made[name].shape)
    return made


def test_every_function_of_every_type_gives_the_bits_of_numpy(program: Path, tmp_path: Path) -> None:
    form = Form.of(every())
    decides_alike(program, tmp_path, form, numbers(form.content, 300, 11))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("inliner", ""), ("size", "inlining_decision"), ("size", "pass_choice"), ("inliner-imitation", "")],
)
def test_a_bundled_policy_decides_in_cpp_as_in_python(program: Path, tmp_path: Path, name: str, kind: str) -> None:
    form = forms(name)[kind]
    decides_alike(program, tmp_path, form, whole_numbers(form, 300, 1))


EXPLORATIONS = ("temperature=1,seed=7", "temperature=0.3,epsilon=0.1,seed=18446744073709551615", "epsilon=0.5")


def draws_alike(program: Path, folder: Path, form: Form, observations: npt.NDArray[Any], explored: str) -> None:
    """Check outcomes, advice and log-probabilities, the steps counted from 1 over all observations."""
    (folder / "form").write_bytes(form.data)
    done = subprocess.run(
        [program, folder / "form", explored], input=observations.tobytes(), capture_output=True, check=True
    )
    content = form.content
    advice = plain(content.advice.type.dtype)
    fields = [
        ("status", np.dtype(np.uint8), 1),
        ("scores", plain(content.result.dtype), content.results),
        ("advice", advice, 1),
        ("chance", np.dtype("<f4"), 1),
    ]
    found = np.frombuffer(done.stdout, np.dtype([(name, dtype, (count,)) for name, dtype, count in fields]))
    exploration = Exploration.parse(explored)
    for number, theirs in enumerate(found, 1):
        made, status, chance = form.draw(observations[number - 1 : number], Drawing(exploration, number))
        assert theirs["status"].item() == status.item()
        assert (theirs["advice"].item(), theirs["chance"].item()) == (made.item(), chance)
    assert len(set(found["advice"][found["status"] == 0].tolist())) > 1


@pytest.mark.parametrize("explored", EXPLORATIONS)
def test_trees_draw_in_cpp_as_in_python(program: Path, tmp_path: Path, explored: str) -> None:
    form = forms("size")["pass_choice"]
    draws_alike(program, tmp_path, form, whole_numbers(form, 100, 2), explored)


@pytest.mark.parametrize("explored", EXPLORATIONS)
@pytest.mark.parametrize("seed", [1, 2, 4, 5])
def test_a_random_network_draws_in_cpp_as_in_python(program: Path, tmp_path: Path, seed: int, explored: str) -> None:
    repository = write_network(tmp_path / "policies", "net", random_network(seed), HEADS[seed % 3])
    (form,) = forms("net", repository).values()
    observations = whole_numbers(form, 100, seed)
    for name in observations.dtype.names or ():
        observations[name] %= 3
    draws_alike(program, tmp_path, form, observations, explored)


@pytest.mark.parametrize("seed", range(3))
def test_a_random_network_with_a_head_decides_in_cpp_as_in_python(program: Path, tmp_path: Path, seed: int) -> None:
    repository = write_network(tmp_path / "policies", "net", random_network(seed), HEADS[seed])
    (form,) = forms("net", repository).values()
    observations = whole_numbers(form, 200, seed)
    for name in observations.dtype.names or ():
        observations[name] %= 7
    decides_alike(program, tmp_path, form, observations)


def test_what_python_refuses_is_refused_in_cpp_and_told(program: Path, tmp_path: Path) -> None:
    data, random = Form.of(SMALL).data, np.random.default_rng(4)
    for place in random.choice(len(data), 60, replace=False).tolist():
        hostile = data[:place] + bytes([data[place] ^ int(random.integers(1, 256))]) + data[place + 1 :]
        (tmp_path / "form").write_bytes(hostile)
        done = subprocess.run([program, tmp_path / "form"], input=b"", capture_output=True, check=False)
        try:
            assert write(Form.read(hostile).content) == hostile
            assert done.returncode == 0, done.stderr
        except PolicyBridgeError:
            assert done.returncode == 1
            assert done.stderr.startswith((b"the form ", b"a decision by the form "))

"""The advice head, on scores that a client seldom sees."""

from pathlib import Path

import numpy as np
import pytest

from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_forms import Drawing
from policybridge_serdes import ElementType, Exploration, Layout, PolicyVersion, TensorSpec, Values
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.head import Head
from policybridge_server.repository import HeadConfig
from tests.forms.parts import forms
from tests.training.embedding.networks import HEADS, random_network, write_network

_SCORES = TensorSpec("scores", ElementType.FLOAT, (3,))
_OWN = TensorSpec("own", ElementType.INT64)


def session(exploration: Exploration | None = None) -> SessionView:
    view = SessionView("id", PolicyVersion("p", 1, "sha256:0"), exploration=exploration)
    view.drawing = None if exploration is None else Drawing(exploration)
    return view


def record(spec: TensorSpec, value: object) -> Values:
    values: Values = np.zeros(1, Layout((spec,)).dtype)
    values[spec.name] = value
    return values


def test_where_no_legal_choice_is_possible_a_legal_one_is_made() -> None:
    head = Head(HeadConfig(scores="probabilities"), _SCORES)
    for exploration in (None, Exploration(temperature=1.0)):
        (result,) = head.choose(record(_SCORES, [1, 0, 0]), np.array([[0, 1, 1]]), [session(exploration)])
        assert isinstance(result, tuple)
        assert result[0]["advice"].item() in (1, 2)


@pytest.mark.parametrize(("own", "mask"), [(3, None), (-1, None), (1, [[1, 0, 1]])])
def test_a_policys_own_choice_is_checked(own: int, mask: object) -> None:
    head = Head(HeadConfig(scores="choice", choices=3), _OWN)
    given = None if mask is None else np.array(mask)
    for exploration in (None, Exploration(epsilon=0.5)):
        (result,) = head.choose(record(_OWN, own), given, [session(exploration)])
        assert isinstance(result, PolicyFailedError)


def test_a_policys_own_choice_has_no_temperature_and_is_one_integer() -> None:
    head = Head(HeadConfig(scores="choice", choices=3), _OWN)
    (result,) = head.choose(record(_OWN, 2), None, [session()])
    assert isinstance(result, tuple)
    assert result[0]["advice"].item() == 2
    with pytest.raises(InvalidError, match="by epsilon alone"):
        head.check(Exploration(temperature=1.0, epsilon=0.5))
    with pytest.raises(PreconditionError, match="takes one integer"):
        Head(HeadConfig(scores="choice", choices=3), _SCORES)
    for wrong in ({"scores": "choice"}, {"choices": 3}):
        with pytest.raises(ValueError, match="belong together"):
            HeadConfig(**wrong)


def expected(logits: list[float], legal: list[int], temperature: float, epsilon: float) -> np.ndarray:
    """Give the probability of each choice, from the definition."""
    kept = np.array(legal, bool)
    if temperature:
        weights = np.where(kept, np.exp(np.array(logits) / temperature), 0)
    else:
        weights = np.where(np.arange(3) == np.argmax(np.where(kept, logits, -np.inf)), 1.0, 0.0)
    return np.asarray((1 - epsilon) * weights / weights.sum() + epsilon * kept / kept.sum())


@pytest.mark.parametrize("legal", [[1, 1, 1], [0, 1, 1]])
@pytest.mark.parametrize(("temperature", "epsilon"), [(0.0, 0.25), (0.5, 0.0), (2.0, 0.0), (2.0, 0.25)])
def test_a_choice_is_drawn_with_the_probability_that_is_told(
    legal: list[int], temperature: float, epsilon: float
) -> None:
    head, logits = Head(HeadConfig(scores="logits"), _SCORES), [1.0, 0.5, -1.0]
    chances = expected(logits, legal, temperature, epsilon)
    one = session(Exploration(temperature=temperature, epsilon=epsilon))
    drawn = np.zeros(3)
    for _ in range(2000):
        (result,) = head.choose(record(_SCORES, logits), np.array([legal]), [one])
        assert isinstance(result, tuple)
        choice = int(result[0]["advice"].item())
        # The logits are rounded to steps of 1/256.
        assert result[1] == pytest.approx(np.log(chances[choice]), abs=1 / 128)
        drawn[choice] += 1
    # 0.05 is more than four standard deviations.
    assert drawn / 2000 == pytest.approx(chances, abs=0.05)
    assert not drawn[np.array(legal) == 0].any()


@pytest.mark.parametrize("head", HEADS[1:])
def test_the_server_draws_by_the_steps_of_docs_forms(tmp_path: Path, head: str) -> None:
    (form,) = forms("net", write_network(tmp_path, "net", random_network(1), head)).values()
    observations = np.zeros(200, form.record)
    random = np.random.default_rng(3)
    for name in observations.dtype.names or ():
        observations[name] = random.integers(0, 3, observations[name].shape)
    scores, _ = form.scores(observations)
    spec = TensorSpec("scores", ElementType.FLOAT, (form.content.head.choices,))
    masked = form.content.head.mask is not None
    chooser = Head(HeadConfig(scores="probabilities" if masked else "logits", mask="legal" if masked else None), spec)
    explored = Exploration(seed=5, temperature=0.7, epsilon=0.2)
    one, drawing = session(explored), Drawing(explored)
    for row, observation in zip(scores, observations, strict=True):
        mask = observation["legal"][None] if masked else None
        (result,) = chooser.choose(record(spec, row), mask, [one])
        advice, status, chance = form.draw(observation[None], drawing)
        if isinstance(result, tuple):
            assert (result[0]["advice"].item(), result[1]) == (advice.item(), chance)
        else:
            assert status[0]


def test_the_draws_of_a_seed_are_those_of_splitmix64() -> None:
    # The first results of the seed 1234567, as its authors' test has them.
    expected = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    even = Head(HeadConfig(scores="logits"), TensorSpec("scores", ElementType.FLOAT, (3,)))
    one = session(Exploration(seed=1234567, epsilon=1.0))
    for number in expected:
        (result,) = even.choose(record(_SCORES, [0, 0, 0]), None, [one])
        assert isinstance(result, tuple)
        assert result[0]["advice"].item() == number * 3 // 2**64
        assert result[1] == pytest.approx(-np.log(3))


@pytest.mark.parametrize("scores", [[0.0, -np.inf, 3e38], [np.inf, 1.0, np.inf], [-np.inf] * 3, [1e-45, 0, -1e-45]])
@pytest.mark.parametrize("temperature", [1e-300, 1e-30, 1.0, 1e38, 1e300])
def test_extreme_scores_and_temperatures_give_a_choice_and_its_finite_log_probability(
    scores: list[float], temperature: float
) -> None:
    head = Head(HeadConfig(scores="logits"), _SCORES)
    one = session(Exploration(temperature=temperature))
    for _ in range(20):
        (result,) = head.choose(record(_SCORES, scores), None, [one])
        assert isinstance(result, tuple)
        assert result[1] is not None
        assert -800 < result[1] <= 0


@pytest.mark.parametrize(
    "scores",
    [
        TensorSpec("scores", ElementType.INT64, (3,)),
        TensorSpec("scores", ElementType.FLOAT, (-1,)),
        None,
    ],
)
def test_scores_are_floats_of_a_fixed_shape(scores: TensorSpec | None) -> None:
    with pytest.raises(PreconditionError, match="takes a float or double per choice, of fixed shape"):
        Head(HeadConfig(scores="logits"), scores)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (0,)])
def test_the_best_of_one_choice_is_refused_with_the_score_that_is_missing(shape: tuple[int, ...]) -> None:
    # The sigmoid of a classifier: the best choice would always be 0.
    with pytest.raises(PreconditionError, match="is one number: let the model give a score for no beside that for yes"):
        Head(HeadConfig(), TensorSpec("p", ElementType.FLOAT, shape))


@pytest.mark.parametrize("scores", ["logits", "probabilities"])
def test_without_exploration_the_best_legal_choice_is_taken_and_nan_is_an_error(scores: str) -> None:
    head = Head(HeadConfig(scores=scores), _SCORES)  # type: ignore[arg-type]
    values = np.concatenate([record(_SCORES, each) for each in ([0.5, 0.3, 0.2], [0.5, float("nan"), 0.2])])
    best, nan = head.choose(values, np.array([[0, 1, 1], [1, 1, 1]]), [session(), session()])
    assert isinstance(best, tuple)
    assert (best[0]["advice"].item(), best[1]) == (1, None)
    assert isinstance(nan, PolicyFailedError)


def test_the_mask_is_the_feature_that_policy_toml_names_with_one_element_for_each_choice() -> None:
    mask = TensorSpec("legal", ElementType.INT64, (3,))
    assert Head(HeadConfig(scores="logits"), _SCORES).mask_of(Layout((mask,))) is None
    head = Head(HeadConfig(scores="logits", mask="legal"), _SCORES)
    assert head.mask_of(Layout((_OWN, mask))) == "legal"
    for wrong in (_OWN, TensorSpec("legal", ElementType.INT64, (2,)), TensorSpec("legal", ElementType.INT64, (-1,))):
        with pytest.raises(InvalidError, match="the legality mask 'legal' needs 3 elements"):
            head.mask_of(Layout((wrong,)))

"""The advice head, on scores that a client seldom sees."""

import numpy as np
import pytest

from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_serdes import ElementType, Exploration, Layout, PolicyVersion, TensorSpec, Values
from policybridge_server.backends.contract import SessionView
from policybridge_server.engine.head import Head
from policybridge_server.repository import HeadConfig

_SCORES = TensorSpec("scores", ElementType.FLOAT, (3,))
_OWN = TensorSpec("own", ElementType.INT64)


def session(exploration: Exploration | None = None) -> SessionView:
    view = SessionView("id", PolicyVersion("p", 1, "sha256:0"), exploration=exploration)
    view.generator = np.random.default_rng(1)
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
        assert result[1] == pytest.approx(np.log(chances[choice]), rel=1e-5)
        drawn[choice] += 1
    # 0.05 is more than four standard deviations.
    assert drawn / 2000 == pytest.approx(chances, abs=0.05)
    assert not drawn[np.array(legal) == 0].any()


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

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

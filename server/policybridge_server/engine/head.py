"""The advice head: from a model's logits or probabilities, or its own choice, to one choice, and how probable it was.

Without exploration it takes the best legal choice. A session that explores draws: its seed and its observations
determine its advice, whatever else is in the batch; see `Drawing`.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_forms.arithmetic import log
from policybridge_serdes import ElementType, Exploration, Layout, TensorSpec, Values
from policybridge_server.backends.contract import SessionView, batch_cure
from policybridge_server.engine.decision import Result
from policybridge_server.repository import HeadConfig

ONE_SCORE: Final = "let the model give a score for no beside that for yes, 1 − p beside p or 0 beside a logit"
"""What to do with a model of one output, such as a sigmoid: the best of one choice is always that one."""

Scores = npt.NDArray[np.float64]


class Head:
    """Chooses among ``count`` advices.

    Args:
        config: the ``[head]`` of policy.toml.
        scores: the model's output: a float or double per choice, any shape; one integer if it is the choice.

    Raises:
        PreconditionError: the output cannot be scores, or the choice.

    """

    def __init__(self, config: HeadConfig, scores: TensorSpec | None) -> None:
        given = "no declared advice" if scores is None else f"{scores}{batch_cure(scores)}"
        if config.choices is not None:
            if scores is None or not scores.fixed or scores.count != 1 or scores.type.dtype.kind not in "iub":
                raise PreconditionError(f'[head] with scores = "choice" takes one integer; the model gives {given}')
        elif scores is None or not scores.fixed or scores.type.dtype.kind != "f":
            raise PreconditionError(
                f"[head] takes a float or double per choice, of fixed shape; the model gives {given}"
            )
        elif scores.count < 2:
            raise PreconditionError(f"[head] takes a float or double per choice; {given} is one number: {ONE_SCORE}")
        self.scores = Layout((scores,))
        self.count = scores.count if config.choices is None else config.choices
        self.advice = TensorSpec(config.advice, ElementType(config.type), (1,))
        self._advice_dtype = Layout((self.advice,)).dtype
        self._config = config

    def check(self, exploration: Exploration) -> None:
        """Check that sessions can explore in this way.

        Raises:
            InvalidError: a temperature needs scores, and the policy gives only its choice.

        """
        if exploration.temperature > 0 and self._config.choices is not None:
            raise InvalidError("the policy gives its choice without scores, so it explores by epsilon alone")

    def mask_of(self, client: Layout) -> str | None:
        """Give the name of the client's feature that marks the legal choices.

        Raises:
            InvalidError: policy.toml names a mask that the client lacks, or whose number of elements differs.

        """
        name = self._config.mask
        if name is None:
            return None
        spec = client.by_name.get(name)
        if spec is None or not spec.fixed or spec.count != self.count:
            given = spec or f"none among {', '.join(client.by_name)}"
            raise InvalidError(f"the legality mask {name!r} needs {self.count} elements; the client sends {given}")
        return name

    def choose(self, values: Values, mask: npt.NDArray[Any] | None, sessions: Sequence[SessionView]) -> list[Result]:
        """Choose for each record of scores in ``values``; ``mask`` has shape [n, …], and 0 is illegal."""
        scores = self._scores(values)
        legal = np.ones_like(scores, bool) if mask is None else mask.reshape(scores.shape) != 0
        wrong = np.isnan(scores) | ((scores < 0) & (self._config.scores == "probabilities"))
        failed = (wrong & legal).any(axis=1)
        scores = np.where(legal, scores, -np.inf)
        if self._config.choices is None:
            # No legal choice has a probability above 0: each is as good as the other, and an illegal one never is.
            scores = np.where(np.isneginf(scores).all(axis=1, keepdims=True) & legal, 0.0, scores)
        best = scores.argmax(axis=1)
        return [
            self._failure() if failed[row] else self._choose(session, scores[row], legal[row], int(best[row]))
            for row, session in enumerate(sessions)
        ]

    def _scores(self, values: Values) -> Scores:
        (spec,) = self.scores.specs
        if self._config.choices is not None:
            own = values[spec.name].reshape(len(values), 1)
            chosen: Scores = np.where(own == np.arange(self.count), 0.0, -np.inf)
            return chosen
        scores: Scores = values[spec.name].reshape(len(values), -1).astype(np.float64)
        return scores

    def _failure(self) -> PolicyFailedError:
        return PolicyFailedError(f"the policy gave NaN (or a negative probability) for {self.scores.specs[0]}")

    def _choose(self, session: SessionView, scores: Scores, legal: npt.NDArray[np.bool_], best: int) -> Result:
        if not legal.any():
            return PolicyFailedError(f"the mask {self._config.mask!r} allows no choice at all")
        if np.isneginf(scores[best]):
            return PolicyFailedError(
                f"the policy's own choice is not legal: it must be one of 0 to {self.count - 1} that the mask allows"
            )
        if session.drawing is None:
            return self._made(best), None
        if self._config.scores == "probabilities":
            scores = log(np.where(legal, scores, 0.0))
        drawn, log_probability = session.drawing.draw(scores, legal, best)
        return self._made(drawn), log_probability

    def _made(self, choice: int) -> Values:
        made: Values = np.zeros(1, self._advice_dtype)
        made[self.advice.name] = choice
        return made

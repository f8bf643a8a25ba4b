"""The advice head: from a model's logits or probabilities, or its own choice, to one choice, and how probable it was.

Without exploration it takes the best legal choice. A session that explores draws from its own generator: its seed and
its observations determine its advice, whatever else is in the batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyFailedError, PreconditionError
from policybridge_serdes import ElementType, Exploration, Layout, TensorSpec, Values
from policybridge_server.backends.contract import SessionView, batch_cure
from policybridge_server.engine.decision import Result
from policybridge_server.repository import HeadConfig

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
        logits = self._logits(values)
        legal = np.ones_like(logits, bool) if mask is None else mask.reshape(logits.shape) != 0
        logits = np.where(legal, logits, -np.inf)
        if self._config.choices is None:
            # No legal choice has a probability above 0: each is as good as the other, and an illegal one never is.
            logits = np.where(np.isneginf(logits).all(axis=1, keepdims=True) & legal, 0.0, logits)
        best = logits.argmax(axis=1)
        return [self._choose(session, logits[row], legal[row], int(best[row])) for row, session in enumerate(sessions)]

    def _logits(self, values: Values) -> Scores:
        (spec,) = self.scores.specs
        if self._config.choices is not None:
            own = values[spec.name].reshape(len(values), 1)
            chosen: Scores = np.where(own == np.arange(self.count), 0.0, -np.inf)
            return chosen
        scores = values[spec.name].reshape(len(values), -1).astype(np.float64)
        if self._config.scores == "logits":
            return scores
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(scores)

    def _choose(self, session: SessionView, logits: Scores, legal: npt.NDArray[np.bool_], best: int) -> Result:
        if np.isnan(logits).any():
            return PolicyFailedError(f"the policy gave NaN (or a negative probability) for {self.scores.specs[0]}")
        if not legal.any():
            return PolicyFailedError(f"the mask {self._config.mask!r} allows no choice at all")
        if np.isneginf(logits[best]):
            return PolicyFailedError(
                f"the policy's own choice is not legal: it must be one of 0 to {self.count - 1} that the mask allows"
            )
        exploration, generator = session.exploration, session.generator
        if exploration is None or generator is None:
            return self._made(best), None
        chances = self._chances(logits, legal, best, exploration.temperature, exploration.epsilon)
        drawn = _draw(chances, generator.random())
        return self._made(drawn), float(np.log(chances[drawn]))

    def _chances(
        self, logits: Scores, legal: npt.NDArray[np.bool_], best: int, temperature: float, epsilon: float
    ) -> Scores:
        if temperature > 0:
            weights = np.exp((logits - logits[best]) / temperature)
        else:
            weights = np.zeros_like(logits)
            weights[best] = 1.0
        chances: Scores = (1 - epsilon) * weights / weights.sum() + epsilon * legal / legal.sum()
        return chances

    def _made(self, choice: int) -> Values:
        made: Values = np.zeros(1, self._advice_dtype)
        made[self.advice.name] = choice
        return made


def _draw(chances: Scores, uniform: float) -> int:
    ends = chances.cumsum()
    # The sum may be rounded below 1. Then a draw near 1 must not give a choice of probability 0.
    index = int(np.searchsorted(ends, uniform * ends[-1], side="right"))
    return min(index, int(np.flatnonzero(chances)[-1]))

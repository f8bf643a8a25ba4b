"""A form: bytes that were checked, and the decisions by them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_core.digest import content_digest
from policybridge_core.errors import InvalidError, PolicyFailedError
from policybridge_forms.checks import check
from policybridge_forms.codec import read, write
from policybridge_forms.content import Content, plain
from policybridge_forms.drawing import Drawing
from policybridge_forms.evaluating import SAID, Evaluator, Status


class Form:
    """A policy version that decides by itself.

    Attributes:
        content: what the form says.
        data: its bytes.

    """

    def __init__(self, content: Content, data: bytes) -> None:
        self.content = content
        self.data = data
        self._evaluator = Evaluator(content)

    @classmethod
    def read(cls, data: bytes) -> "Form":
        """Read and check a form.

        Raises:
            InvalidError: the bytes are no form, or break a rule of docs/forms.md.
            TooLargeError: it exceeds a bound.

        """
        content = read(data)
        check(content)
        return cls(content, data)

    @classmethod
    def of(cls, content: Content) -> "Form":
        """Write a form, and read it as others do; see `read`."""
        return cls.read(write(content))

    @property
    def digest(self) -> str:
        """The digest of the policy version that the form was made of: ``sha256:`` and hexadecimal digits."""
        return f"sha256:{self.content.digest.hex()}"

    @property
    def name(self) -> str:
        """The digest of the form's own bytes, likewise."""
        return content_digest(self.data)

    @property
    def record(self) -> np.dtype[Any]:
        """The record of one observation, with a field for each feature."""
        return self.content.record

    def decide(self, observations: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
        """Give the advice of each record, shape [n, elements], and its `Status`; without OK the advice is 0."""
        return self._evaluator.decide(observations)

    def draw(
        self, observation: npt.NDArray[Any], drawing: Drawing
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8], float]:
        """Decide about one record and draw the choice: the advice, its status, its log-probability.

        Only for forms with a head. Without OK the log-probability is 0, and nothing is drawn.
        """
        return self._evaluator.draw(observation, drawing)

    def scores(self, observations: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]:
        """Give the result of each record before the head, shape [n, elements], and its `Status`: OK or BAD_INDEX."""
        return self._evaluator.scores(observations)

    def evaluate(self, observation: Mapping[str, npt.ArrayLike]) -> npt.NDArray[Any]:
        """Decide about one observation: the advice, in its shape. Features that the form does not know are ignored.

        Raises:
            InvalidError: a feature without a default is missing, or does not fit.
            PolicyFailedError: there is no advice.

        """
        advice, status = self.decide(self._recorded(observation))
        if status[0]:
            raise PolicyFailedError(SAID[Status(int(status[0]))])
        spec = self.content.advice
        made: npt.NDArray[Any] = advice[0].astype(spec.type.dtype).reshape(spec.shape)
        return made

    def _recorded(self, observation: Mapping[str, npt.ArrayLike]) -> npt.NDArray[Any]:
        made = np.zeros(1, self.record)
        for each in self.content.features:
            spec = each.spec
            given = observation.get(spec.name, each.fill)
            if given is None:
                raise InvalidError(f"the observation lacks the feature {spec}")
            values = np.asarray(given)
            if values.size != spec.count or not np.can_cast(values.dtype, spec.type.dtype, "same_kind"):
                raise InvalidError(f"the feature {spec} is given {values.dtype}{list(values.shape)}")
            made[spec.name][0] = values.reshape(spec.shape).astype(plain(spec.type.dtype))
        return made

"""The probe of a model when it is loaded: how fast it is, and which batch sizes give the same bytes.

The same observation must give the same bytes, alone or in a batch. Kernels differ by batch size (torch has another one
for 1 and 2 than for 4 and more), so small batches are padded to the smallest size from which all sizes agree.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.authors import describe, interrupts
from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import Layout, PolicyVersion, Values
from policybridge_serdes.values import fit
from policybridge_server.backends.contract import Batch, Model, SessionView

Numbers = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]

MAX_BATCH = 256
_SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 64, 128)
_REPEATS = 5
_SLOW = 0.1
"""Seconds. A model that takes longer, when it is warm, is slow however often it is asked."""

_SAMPLE = 8
"""Batches of each size: a kernel is chosen by the size, so a few show whether it agrees."""

_NUMBERS: Final[tuple[tuple[Numbers, Numbers], ...]] = (
    (lambda numbers: numbers, lambda numbers: numbers),
    # Indices into a table are refused beyond its end, and most tables have two rows.
    (lambda numbers: numbers > 0, lambda numbers: numbers),
    (np.zeros_like, lambda numbers: numbers),
    (np.zeros_like, np.zeros_like),
    (np.ones_like, np.ones_like),
)
"""Makes integers and floats of random numbers; the next pair where the model refuses those of the one before."""


@dataclass(frozen=True)
class Probe:
    """Limits for batches.

    Attributes:
        least: observations in a batch; fewer are padded to it.
        most: observations in a batch; more are split.
        seconds: for the smallest batch, warm; ``None``: unknown.
        repeats: whether the same observations gave the same bytes again.

    """

    least: int = 1
    most: int = MAX_BATCH
    seconds: float | None = None
    repeats: bool = True


def probe(model: Model, given: Mapping[str, Any] | None = None, *, must_answer: bool = False) -> Probe:
    """Warm ``model`` up, and compare batch sizes on random observations where the model can batch.

    Args:
        model: a loaded one.
        given: input → value in every observation, in place of random numbers.
        must_answer: whether a model that refuses all observations is refused.

    Raises:
        PreconditionError: it is.
        InvalidError: a given value does not fit.

    """
    features, advice = model.signature.features, model.signature.advice
    if features is None or advice is None or not (features.fixed and advice.fixed):
        return Probe(most=1)
    reasons: list[str] = []
    for numbers in _NUMBERS:
        observations = _random(features, MAX_BATCH if model.batched else 1, numbers, given or {})
        try:
            return _probed(model, observations, Layout((advice,)))
        except BaseException as error:
            # A model may refuse random input, and a policy's code may raise anything.
            if interrupts(error):
                raise
            reasons.append(describe(error))
    if must_answer:
        raise PreconditionError(
            f"it fails at every observation of the probe: {reasons[-1]}. If it takes others, say one under [probe] in "
            "policy.toml: INPUT = VALUE"
        )
    # Its batches are unknown then, so each observation is evaluated alone.
    return Probe(most=1)


def _probed(model: Model, observations: Values, layout: Layout) -> Probe:
    least = _least(model, observations, layout)
    seconds, repeats = _fastest(model, observations[: least or 1], layout)
    if model.batched and not least:
        # A model that draws random numbers agrees with itself for no size. One observation may be drawn alike.
        some = observations[: 4 * _SAMPLE]
        first, second = (_evaluate(model, some, layout).tobytes() for _ in range(2))
        repeats = repeats and first == second
    return Probe(least=least or 1, most=MAX_BATCH if least else 1, seconds=seconds, repeats=repeats)


def _fastest(model: Model, observations: Values, layout: Layout) -> tuple[float, bool]:
    """Give the seconds of the fastest of five runs, or of two of a slow model: the first one may warm it up.

    And give whether the runs had the same advice.
    """
    seconds, advice = _timed(model, observations, layout)
    repeats = True
    for _ in range(_REPEATS - 1):
        took, again = _timed(model, observations, layout)
        seconds, repeats = min(seconds, took), repeats and again == advice
        if seconds > _SLOW:
            break
    return seconds, repeats


def confirm_probe(model: Model, expected: Probe, given: Mapping[str, Any] | None = None) -> Probe:
    """Warm ``model`` up and compare a sample of batches only; see `probe`.

    ``expected`` is the probe of the same architecture with other weights. If the sample does not agree with it, the
    model is probed in full.
    """
    features, advice = model.signature.features, model.signature.advice
    if expected.most == 1 or features is None or advice is None:
        return expected
    layout, size = Layout((advice,)), expected.least
    for numbers in _NUMBERS:
        with suppress(Exception):
            observations = _random(features, size * _SAMPLE, numbers, given or {})
            if _split(model, observations, layout, size) == _answers(model, observations, layout).tobytes():
                return expected
            break
    return probe(model, given, must_answer=True)


def _answers(model: Model, observations: Values, layout: Layout) -> Values:
    """Evaluate, and refuse what training leaves that has diverged: a model that gives NaN whatever it is asked.

    Raises:
        PolicyFailedError: all elements of all advice are NaN. Some may be, those of illegal choices for example.

    """
    advice = _evaluate(model, observations, layout)
    (spec,) = layout.specs
    if spec.type.dtype.kind == "f" and spec.count and np.isnan(advice[spec.name]).all():
        raise PolicyFailedError(f"the model gives NaN alone for {spec}")
    return advice


def _least(model: Model, observations: Values, layout: Layout) -> int | None:
    """Return the smallest size from which on all sizes agree with `MAX_BATCH`; ``None`` if none does."""
    if not model.batched:
        return None
    wanted = _answers(model, observations, layout).tobytes()
    agreeing = None
    for size in reversed(_SIZES):
        got = _split(model, observations[: size * _SAMPLE], layout, size)
        if got != wanted[: len(got)]:
            break
        agreeing = size
    return agreeing


def _split(model: Model, observations: Values, layout: Layout, size: int) -> bytes:
    """Give the bytes of the advice in whole batches of ``size``."""
    batches = (observations[end - size : end] for end in range(size, len(observations) + 1, size))
    return b"".join(_evaluate(model, batch, layout).tobytes() for batch in batches)


def _evaluate(model: Model, observations: Values, layout: Layout) -> Values:
    session = SessionView("probe", PolicyVersion("probe", 0, ""))
    return model.evaluate(Batch(observations, [session] * len(observations), layout))


def _timed(model: Model, observations: Values, layout: Layout) -> tuple[float, bytes]:
    # Of a model that batches, one observation alone may well give NaN.
    evaluate = _evaluate if model.batched else _answers
    started = time.perf_counter()
    advice = evaluate(model, observations, layout)
    return time.perf_counter() - started, advice.tobytes()


def _random(features: Layout, count: int, numbers: tuple[Numbers, Numbers], given: Mapping[str, Any]) -> Values:
    generator = np.random.default_rng(0)
    values: Values = np.zeros(count, features.dtype)
    integers, floats = numbers
    for spec in features.specs:
        drawn = generator.normal(scale=10, size=(count, *spec.shape))
        made = (integers if spec.type.dtype.kind in "iu" else floats)(drawn)
        with np.errstate(invalid="ignore"):
            values[spec.name] = np.abs(made) if spec.type.dtype.kind == "u" else made
        if spec.name in given:
            values[spec.name] = fit(spec, given[spec.name])
    return values

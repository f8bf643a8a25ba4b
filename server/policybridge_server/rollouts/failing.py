"""The sequential test of failures: whether more files fail with a version than chance explains.

A hash of the file's name decides which version the file gets. If both versions fail alike, each failing file is one of
the new version with the probability of its share, whatever the files are and however many sessions each has. The test
bets against that: its stake grows with each failing file of the new version and shrinks with each one of the old. The
mean of many bets is a test martingale, which exceeds 1 / `ERROR` with a probability of at most `ERROR`, however often
one looks at it (Ville 1939).
"""

from typing import Final

import numpy as np

from policybridge_server.engine.trials import Trial

ERROR: Final = 0.01
"""With which a version is withdrawn though both fail alike."""

WHOLE: Final = 0.05
"""At a share of 100 % no file gets the old version. The test then asks whether more than this part of files fails."""

_BETS: Final = 1000


def evidence(failing: int, others: int, expected: float) -> float:
    """Give how many times likelier the failures are if the new version fails more often.

    Args:
        failing: files that fail with the new version.
        others: files that fail with the old one.
        expected: the part of the failing files that the new version has if both fail alike.

    """
    bets = expected + (1 - expected) * (np.arange(_BETS) + 0.5) / _BETS
    logs = failing * np.log(bets / expected) + others * np.log((1 - bets) / (1 - expected))
    return float(np.exp(np.minimum(logs, 700.0)).mean())


def judged(trial: Trial, share: float) -> tuple[int, int, float]:
    """Give the failing files of the new version and of the old one, and the `evidence`."""
    failing = sum(trial.failed.values())
    old = len(trial.failed) - failing
    if share < 1:
        return failing, old, evidence(failing, old, share)
    return failing, old, evidence(failing, len(trial.well), WHOLE)

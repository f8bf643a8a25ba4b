"""Gymnasium environments: an episode is one compilation of a module of a corpus by a real compiler."""

from typing import Final

from policybridge_core.errors import PreconditionError

ENVIRONMENTS: Final = {
    "policybridge/InlineForSize-v0": "policybridge_train.environments.inlining:InlineForSize",
    "policybridge/PassesForSize-v0": "policybridge_train.environments.passes:PassesForSize",
    "policybridge/Evict-v0": "policybridge_train.environments.eviction:Evict",
}
"""By the id that `gymnasium.make` takes: the class. Gymnasium imports it when the first one is made."""


def register() -> None:
    """Tell Gymnasium the ids of these environments; calls after the first one change nothing.

    Gymnasium 1 has no entry points for environments, and importing a module of ours registers nothing.

    Raises:
        PreconditionError: Gymnasium is not installed.

    """
    try:
        import gymnasium  # noqa: PLC0415 - a package of an extra
    except ModuleNotFoundError as error:
        raise PreconditionError(
            "environments need the Python package gymnasium: pip install 'policybridge[gym]'"
        ) from error
    for name, entry_point in ENVIRONMENTS.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point)

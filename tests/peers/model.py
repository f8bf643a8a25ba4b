"""The model alone, evaluated in the client's process: no server can be faster.

This module alone imports the server's packages.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from policybridge_serdes import PolicyReference, Signature, Values
from policybridge_server.backends.contract import Batch, SessionView, load_backend
from policybridge_server.repository import Repository


def evaluation(
    repository: Path, policy: str, signature: Signature, observations: Sequence[Values]
) -> Callable[[int], None]:
    """Load a policy and give the function that evaluates it on the observation of a number."""
    stored = Repository([repository]).resolve(PolicyReference(policy))
    model = load_backend(stored.config.backend).load(stored.folder, stored.config)
    view = SessionView("bench", stored.policy)
    batches = [Batch(values, [view], signature.advice_layout) for values in observations]

    def evaluate(number: int) -> None:
        model.evaluate(batches[number % len(batches)])

    return evaluate

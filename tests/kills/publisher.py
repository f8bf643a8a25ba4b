"""A publisher: versions, each with a number of its own in a file, roll-outs and ways back; told when acknowledged."""

import itertools
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from policybridge_client.policies import Conditions, RepositoryClient
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import PolicyReference
from tests.kills.messages import Named, Naming, Published, Publishing, say


def run(task: Publishing) -> None:
    """Publish until the server is gone, then wait to be killed."""
    files = Path(shutil.copytree(task.files, task.scratch, dirs_exist_ok=True))
    publisher = _Publisher(RepositoryClient(task.grpc), task.policy, files)
    for number in itertools.count():
        try:
            publisher.round(number)
        except PolicyBridgeError:
            break
    signal.pause()


class _Publisher:
    """Publishes versions, and lets `latest` go forth and back."""

    def __init__(self, client: RepositoryClient, policy: str, files: Path) -> None:
        self._client = client
        self._policy = policy
        self._files = files
        rollout = client.show(policy).rollout
        if rollout is not None and rollout.state == "running":
            # The publisher before was killed in it.
            self._changed(rollout.version, lambda: client.end_rollout(policy, promote=True))

    def round(self, number: int) -> None:
        """Publish a version; then leave it, roll it out to its end, or go back."""
        before = self._client.show(self._policy).summary.latest
        (self._files / "number.txt").write_text(f"{os.getpid()} {number}")
        say(Naming(0))
        made = self._client.publish(self._policy, self._files)
        say(Published(made.version, made.digest))
        say(Named(made.version))
        if number % 4 == 1:
            self._changed(before, lambda: self._client.roll_back(self._policy))
        elif number % 4 > 1:
            version, promote = PolicyReference(self._policy, made.version), number % 4 == 2
            self._changed(before, lambda: self._client.roll_out(version, 0.5, conditions=Conditions()))
            end = made.version if promote else before
            self._changed(end, lambda: self._client.end_rollout(self._policy, promote=promote))

    def _changed(self, latest: int, change: Callable[[], object]) -> None:
        say(Naming(latest))
        change()
        say(Named(latest))

"""A publisher: one version after the other, each with a number of its own in a file; told when it is acknowledged."""

import itertools
import os
import shutil
import signal
from pathlib import Path

from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyBridgeError
from tests.kills.messages import Published, Publishing, say


def run(task: Publishing) -> None:
    """Publish until the server is gone, then wait to be killed."""
    client = RepositoryClient(task.grpc)
    files = Path(shutil.copytree(task.files, task.scratch, dirs_exist_ok=True))
    for number in itertools.count():
        (files / "number.txt").write_text(f"{os.getpid()} {number}")
        try:
            made = client.publish(task.policy, files)
        except PolicyBridgeError:
            break
        say(Published(made.version, made.digest))
    signal.pause()

"""Policy repositories for tests, written as a user would write them."""

from pathlib import Path
from textwrap import dedent


def write_python(repository: Path, name: str, source: str, toml: str = "", version: int = 1) -> None:
    """Add a Python policy: the body of its file, and what policy.toml says beside the backend."""
    folder = repository / name / str(version)
    folder.mkdir(parents=True)
    (folder / "policy.py").write_text(dedent(source))
    (repository / name / "policy.toml").write_text(f'backend = "python"\n{dedent(toml)}')


_DYING = """
import os
import signal


class Policy:
    asked = 0

    def evaluate(self, observation, session):
        self.asked += 1
        if self.asked > {after}:
            os.kill(os.getpid(), signal.SIGKILL)
        return {expression}
"""

_SLEEPING = """
import time


class Policy:
    asked = 0

    def evaluate(self, observation, session):
        self.asked += 1
        if self.asked > {after}:
            time.sleep(1)
        return {expression}
"""


def answering(expression: str) -> str:
    """Give the source of a policy that answers ``expression`` of ``observation`` and ``session``."""
    return f"class Policy:\n    def evaluate(self, observation, session):\n        return {expression}\n"


def dying(expression: str, after: int) -> str:
    """Give the source of a policy that answers ``expression``, and ends the server after so many decisions."""
    return _DYING.format(expression=expression, after=after)


def sleeping(expression: str, after: int) -> str:
    """Give the source of a policy that answers ``expression``, after so many decisions only in a second each."""
    return _SLEEPING.format(expression=expression, after=after)

"""The policies that the client's tests are answered by, as a user would write them."""

from pathlib import Path

from tests.repositories import write_python

_ANSWERS = {
    "echo": 'observation["inlining_default"]',
    "never": "0",
    "always": "7",
    "sum": 'observation["a"] + observation["b"]',
    "sleepy": 'observation["a"] + observation["b"]',
    "sleepy-echo": 'observation["inlining_default"]',
    "longest": 'max(observation["names"], key=len)',
    "mean": 'observation["values"].mean(dtype="float32")',
    "legal": 'int(np.flatnonzero(observation["mask"])[-1])',
    "illegal": 'int(np.flatnonzero(observation["mask"] == 0)[0]) if observation["mask"].min() == 0 else 1000',
    "weight": 'observation["weight"]',
}

DRAWN = """
advice = {name = "scores", type = "float", shape = [2]}
[head]
"""
"""What policy.toml says of a policy that gives two scores, and so can explore."""

SMALL_KIND = """
decides = ["inlining_decision", "pass_choice"]
[kinds.pass_choice]
[kinds.inlining_decision.scope]
level = ["Oz"]
"""
"""What policy.toml says of a policy that decides inlining at one level, and passes at all."""

_SOURCE = """
import time
from pathlib import Path

import numpy as np


class Policy:
    def __init__(self):
        self.asked = {{}}

    def evaluate(self, observation, session):
        asked = self.asked[session.id] = self.asked.get(session.id, 0) + 1
        if asked == int(session.options.get("raise_at", 0)):
            raise RuntimeError("boom")
        if asked == int(session.options.get("sleep_at", 0)):
            sleep(session.labels.get("asleep"))
        return {answer}


def sleep(asleep):
    if asleep is None:
        time.sleep(3)
        return
    Path(asleep).touch()
    while Path(asleep).exists():
        time.sleep(0.01)
"""


def write_policies(repository: Path) -> None:
    """Add them all. The options ``raise_at`` and ``sleep_at`` give the number of a decision that fails, or sleeps.

    A decision sleeps for 3 s; where the label ``asleep`` names a file, it makes the file and sleeps until that is
    removed. While a policy sleeps it answers no other session: this is what the sleepy ones are for.
    """
    for name, answer in _ANSWERS.items():
        write_python(repository, name, _SOURCE.format(answer=answer))
    write_python(repository, "never", _SOURCE.format(answer="0"), version=2)
    write_python(repository, "narrow", _SOURCE.format(answer="0"), '[scope]\ntarget = ["x86_64"]\n')
    write_python(repository, "small", _SOURCE.format(answer="0"), '[scope]\nlevel = ["Oz"]\nphase = ["compile"]\n')
    write_python(repository, "both", _SOURCE.format(answer="0"), 'decides = ["inlining_decision", "pass_choice"]')
    write_python(repository, "small-kind", _SOURCE.format(answer="0"), SMALL_KIND)
    write_python(repository, "drawn", _SOURCE.format(answer='np.zeros(2, "float32")'), DRAWN)

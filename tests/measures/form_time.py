"""What a decision by a portable form takes in C++, beside the C: ``python -m tests.measures.form_time [POLICY]``.

Both decide by turns about the same observations of whole numbers; the nanoseconds of a decision are those of the
fastest round. The library is built as the tests build it.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Final

import numpy as np

from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import Values
from policybridge_train.command_line import count
from policybridge_train.embedding.compiled import CompiledPolicy
from policybridge_train.embedding.interface import read_policy
from tests.forms.parts import forms, records
from tests.native.conftest import built

_OBSERVATIONS: Final = 2000
_TURNS: Final = 5


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; the exit status is 2 for what cannot be done."""
    parser = argparse.ArgumentParser(prog="tests.measures.form_time", description=__doc__)
    parser.add_argument("policy", nargs="?", default="inliner", metavar="POLICY")
    parser.add_argument("--rounds", type=count, default=100, metavar="N")
    arguments = parser.parse_args(words)
    try:
        print(json.dumps(_measured(arguments.policy, arguments.rounds)))
    except PolicyBridgeError as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2
    return 0


def _measured(policy: str, rounds: int) -> dict[str, float]:
    form = next(iter(forms(policy).values()))
    compiled = CompiledPolicy(read_policy(policy, None))
    random, given = np.random.default_rng(0), np.zeros(_OBSERVATIONS, compiled.observations)
    for name in given.dtype.names or ():
        given[name] = random.integers(-200, 2000, given[name].shape)
    program = built("policybridge-form") / "bin" / "policybridge-form"
    with TemporaryDirectory(prefix="pb-") as folder:
        file = Path(folder) / "form"
        file.write_bytes(form.data)
        command = [str(program), str(file), str(rounds)]
        data = records(form, given).tobytes()

        def by_form() -> float:
            return float(subprocess.run(command, input=data, capture_output=True, check=True).stdout)

        ways: dict[str, Callable[[], float]] = {"form": by_form, "c": lambda: _by_c(compiled, given, rounds)}
        turns = [{name: way() for name, way in ways.items()} for _ in range(_TURNS)]
    return {name: round(min(turn[name] for turn in turns), 1) for name in ways}


def _by_c(compiled: CompiledPolicy, given: Values, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = perf_counter_ns()
        compiled.decide(given)
        times.append((perf_counter_ns() - begun) / len(given))
    return min(times)


if __name__ == "__main__":
    sys.exit(main())

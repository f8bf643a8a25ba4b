"""``policybridge embed compare``: recorded observations through a policy's C and the server's engine."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_forms import Head as FormHead
from policybridge_serdes import Layout, PolicyVersion, Signature, TensorSpec, Values
from policybridge_server.backends.contract import Batch, Model, SessionView
from policybridge_server.backends.onnx.backend import OnnxBackend
from policybridge_server.engine.binding import bind
from policybridge_server.engine.head import Head
from policybridge_server.ledger.contract import load_ledger
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.trajectory import DecisionBatch
from policybridge_train.embedding.compiled import CompiledPolicy
from policybridge_train.embedding.interface import Embedded, read_policy
from policybridge_train.embedding.toolchain import Toolchain, add_toolchain

_DIFFERENT: Final = 1
_FAILED: Final = 2
_BATCH: Final = 256

_DESCRIPTION: Final = """
Gives every recorded observation to the policy in C and to the server's engine, and compares.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit status: 0; 1 if a decision differs; 2 for what cannot be done."
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("policy", metavar="POLICY", help="NAME, NAME@VERSION or NAME@ALIAS")
    add("--repository", type=Path, metavar="DIR", help="where it is (default: the policies of this package)")
    add("--kind", metavar="KIND", help="of a policy with several models: the decisions to compare")
    add("--ledger", type=Path, required=True, metavar="FILE", help="holds the observations, of any policy")
    add("--ledger-store", default="sqlite", metavar="NAME", help="the kind of ledger: sqlite (default: sqlite)")
    add_toolchain(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print the counts as JSON; return the exit status."""
    try:
        with closing(load_ledger(arguments.ledger_store).open_reader(arguments.ledger)) as reader:
            batches = (batch for session in reader.sessions(Query()) for batch in reader.segments(session))
            policy = read_policy(arguments.policy, arguments.repository, arguments.kind)
            counts = compare(policy, batches, Toolchain.of(arguments))
    except (PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge embed compare: {error}\n")
        return _FAILED
    print(json.dumps(counts))
    return _DIFFERENT if counts["different"] else 0


def compare(policy: Embedded, batches: Iterator[DecisionBatch], toolchain: Toolchain) -> dict[str, int]:
    """Count the decisions, and those that differ.

    ``observations``, ``different`` decisions, ``errors`` (of both), and ``nanoseconds`` that a decision takes in C, of
    the median batch; where the model scores the choices also ``ties`` (the two best scores are the same), ``inexact``
    (a score differs in its last bits) and ``ulps``, the most. Observations are skipped that lack a feature, and counted
    as ``skipped``.

    Raises:
        InvalidError: there is no observation that the policy can be asked.

    """
    comparison = _Comparison(policy, toolchain)
    for batch in batches:
        comparison.add(batch)
    if not comparison.counts["observations"]:
        raise InvalidError("no observation has the features that the policy needs")
    return {**comparison.counts, "nanoseconds": round(median(comparison.nanoseconds))}


class _Comparison:
    def __init__(self, policy: Embedded, toolchain: Toolchain) -> None:
        self.counts: Counter[str] = Counter({"observations": 0, "different": 0, "errors": 0, "skipped": 0})
        self.nanoseconds: list[float] = []
        self._policy = policy
        self._model: Model = OnnxBackend().load(policy.version.folder, policy.version.config)
        advice = self._model.signature.advice
        if advice is None:
            raise AssertionError("a model of ONNX has a specification of its output")
        self._scores: TensorSpec = advice
        self._head = None if policy.head is None else Head(policy.head, advice)
        self._compiled = CompiledPolicy(policy, toolchain)
        # The same model without its head gives the scores.
        bare = replace(policy, content=replace(policy.content, head=FormHead(), advice=advice))
        self._bare = None if policy.head is None else CompiledPolicy(bare, toolchain)

    def add(self, batch: DecisionBatch) -> None:
        """Compare the decisions about the observations of a batch."""
        for part in batch.split(_BATCH):
            try:
                signature = Signature(part.signature.features, self._policy.advice)
                head = (
                    self._model.signature
                    if self._head is None
                    else replace(self._model.signature, advice=self._head.advice)
                )
                move = bind(signature, head, self._policy.version).move
                if self._head is not None and signature.features is not None:
                    self._head.mask_of(signature.features)
            except PolicyBridgeError:
                self.counts["skipped"] += len(part)
                continue
            self._compare(part.observations, move(part.observations))

    def _compare(self, sent: Values, values: Values) -> None:
        count = len(sent)
        observations = self._observations(self._compiled, sent, values)
        begun = perf_counter_ns()
        advice, status = self._compiled.decide(observations)
        self.nanoseconds.append((perf_counter_ns() - begun) / count)
        self.counts["observations"] += count
        for rows, given in self._evaluated(values):
            if given is None:
                self.counts["errors"] += 1
                self.counts["different"] += int((status[rows] == 0).sum())
            else:
                self._count(sent[rows], values[rows], given, (advice[rows], status[rows]))

    def _evaluated(self, values: Values) -> Iterator[tuple[slice, Values | None]]:
        """Give the model's output. If it fails, go row by row, with ``None`` for each row that fails."""
        sessions = [SessionView("compare", PolicyVersion("", 0, ""))] * len(values)
        try:
            yield slice(None), self._model.evaluate(Batch(values, sessions, Layout((self._scores,))))
        except PolicyBridgeError:
            if len(values) == 1:
                yield slice(None), None
                return
            for row in range(len(values)):
                for _, given in self._evaluated(values[row : row + 1]):
                    yield slice(row, row + 1), given

    def _count(
        self, sent: Values, values: Values, given: Values, own: tuple[npt.NDArray[Any], npt.NDArray[np.uint8]]
    ) -> None:
        advice, status = own
        count = len(sent)
        if self._head is None:
            wanted = given[self._scores.name].reshape(count, -1)
            fine = status == 0
            wrong = (wanted != advice).any(axis=1) & fine | (~fine & ~np.isnan(wanted).any(axis=1))
            self.counts["different"] += int(wrong.sum())
            self.counts["errors"] += int((~fine).sum())
            return
        mask = None if self._policy.mask is None else sent[self._policy.mask.spec.name]
        sessions = [SessionView("compare", PolicyVersion("", 0, ""))] * count
        for result, made, error in zip(self._head.choose(given, mask, sessions), advice, status, strict=True):
            # None is no advice.
            choice = None if isinstance(result, PolicyBridgeError) else int(result[0][self._head.advice.name][0, 0])
            self.counts["different"] += choice != (None if error else int(made[0]))
            self.counts["errors"] += choice is None
        self._count_scores(sent, values, given[self._scores.name].reshape(count, -1))

    def _count_scores(self, sent: Values, values: Values, wanted: np.ndarray) -> None:
        if self._bare is None or wanted.dtype.kind != "f":
            return
        scores, status = self._bare.decide(self._observations(self._bare, sent, values))
        # Where a score is NaN, C gives none.
        scores, wanted = scores[status == 0], wanted[status == 0]
        if not len(scores):
            return
        steps = np.abs(_ordered(scores) - _ordered(wanted)).max(axis=1)
        best = np.sort(wanted, axis=1)[:, -2:]
        self.counts["ties"] += int((best[:, 0] == best[:, -1]).sum()) if best.shape[1] > 1 else 0
        self.counts["inexact"] += int((steps > 0).sum())
        self.counts["ulps"] = max(self.counts["ulps"], int(steps.max()))

    def _observations(self, compiled: CompiledPolicy, sent: Values, values: Values) -> Values:
        made: Values = np.zeros(len(sent), compiled.observations)
        mask = self._policy.mask
        if mask is not None and mask.spec.name in (compiled.observations.names or ()):
            # The client's mask may have another type, and a half is no 0.
            made[mask.spec.name] = (sent[mask.spec.name] != 0).reshape(len(sent), -1)
        for name in values.dtype.names or ():
            made[self._policy.version.config.rename.get(name, name)] = values[name].reshape(len(sent), -1)
        return made


def _ordered(scores: np.ndarray) -> np.ndarray:
    """Give integers in the order of the floats: the distance of two is that in units in the last place."""
    bits = np.ascontiguousarray(scores).view(np.int32 if scores.dtype.itemsize == 4 else np.int64).astype(np.int64)
    lowest = -(2**31) if scores.dtype.itemsize == 4 else -(2**63)
    return np.where(bits < 0, lowest - bits, bits)

"""Publishing alone, as a trainer does in a tight loop; and under clients that ask all the time."""

import argparse
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
import numpy as np
from onnx import numpy_helper

from policybridge_bench.bounds import Bound
from policybridge_bench.contenders.contract import Serving
from policybridge_bench.contenders.own import policybridge
from policybridge_bench.drive import command, drive
from policybridge_bench.load import Load, Report
from policybridge_bench.loads import Candidate
from policybridge_bench.measuring import finish, measure
from policybridge_bench.network import SIGNATURE, make_network, write_network
from policybridge_bench.options import fill, numbers
from policybridge_bench.ratios import find, ratio
from policybridge_bench.results import Case, Round, Run, timed
from policybridge_client.connection import connect
from policybridge_client.policies import RepositoryClient
from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import PolicyReference, SessionOptions
from tests.peers.clients import POLICY, PROGRAM, Published, Version
from tests.peers.publishing import Publisher, check_answers, write_first, write_numbered

_ALONE, _LOADED = "alone", "policybridge"
_CALLS = 10
"""Publications in each round of the cases without clients."""
_CORRUPT = 10
"""Every n-th artifact is corrupt."""


def run(arguments: argparse.Namespace) -> int:
    """Measure publishing alone, and decisions with and without publishing.

    Raises:
        PolicyFailedError: a decision is of another artifact than its session's version.

    """
    fill(arguments, clients="16", rounds=10, seconds=2.0)
    with TemporaryDirectory(prefix="pb-") as name:
        folder, loaded = Path(name), []
        write_network(folder / _ALONE, "network")
        write_first(folder / _LOADED)
        options = [*arguments.serve_option, "--allow-publish"]
        contenders = {
            name: policybridge(arguments, repository=folder / name, policy=policy, options=options)
            for name, policy in ((_ALONE, "network"), (_LOADED, POLICY))
        }

        def candidates(serving: Mapping[str, Serving]) -> list[Candidate]:
            loaded.append(_Loaded(arguments, folder, serving[_LOADED]))
            return [*_alone(serving[_ALONE], folder), *loaded[0].candidates()]

        run = measure(arguments, contenders, wanted=lambda _: False, more=candidates)
        loaded[0].check()
    return finish(run, arguments, loaded[0].figures().items(), _bounds(run))


def _addresses(serving: Serving) -> dict[str, str]:
    return {route.way: route.load.address for route in serving.routes}


def _case(contender: str, way: str, clients: int = 1) -> Case:
    return Case(contender=contender, way=way, generator="python", clients=clients, backend="onnx")


def _alone(serving: Serving, folder: Path) -> Iterator[Candidate]:
    """Give the cases of weights alone, from the call to the first session on them, and of all files, the call."""
    addresses = _addresses(serving)
    publisher, asker = RepositoryClient(addresses["grpc"]), connect(addresses["socket"])
    base = {each.name: numpy_helper.to_array(each) for each in make_network(packed=True).graph.initializer}
    files, count = shutil.copytree(folder / _ALONE / "network" / "1", folder / "files"), itertools.count()

    def weights() -> None:
        changed = {name: value + np.float32(next(count) / 1000) for name, value in base.items()}
        made = publisher.publish_weights(PolicyReference("network"), changed)
        opened = asker.open(PolicyReference("network"), SIGNATURE, SessionOptions())
        opened.close()
        if opened.policy != made:
            raise PolicyFailedError(f"a session after the publication of {made} got {opened.policy}")

    yield Candidate(_case(_ALONE, "publish-weights"), partial(timed, weights, calls=_CALLS))
    yield Candidate(
        _case(_ALONE, "publish-files"), partial(timed, lambda: publisher.publish("network", files), calls=_CALLS)
    )


@dataclass
class _Loaded:
    """The server that gets versions while clients ask."""

    arguments: argparse.Namespace
    folder: Path
    serving: Serving
    seen: dict[Version, set[int]] = field(default_factory=dict)
    sessions: int = 0
    decisions: int = 0

    def __post_init__(self) -> None:
        self._clients = [int(count) for count in numbers(self.arguments.clients)]
        self._publisher = Publisher(_addresses(self.serving)["grpc"], self.folder / "sent")
        self._numbers = iter(range(2, self.arguments.versions + 2))
        self._share = self.arguments.versions // (self.arguments.rounds * len(self._clients))

    def candidates(self) -> Iterator[Candidate]:
        address, arguments = _addresses(self.serving)["socket"], self.arguments
        load = Load(kind="publish", address=address, program=PROGRAM)
        load = msgspec.structs.replace(load, seconds=arguments.seconds, warm_up=arguments.warm_up)
        for clients in self._clients:
            measure = partial(drive, command(load), clients, self.serving.pid, look=self._look)
            yield Candidate(_case(_LOADED, "socket-quiet", clients), measure)
            yield Candidate(_case(_LOADED, "socket-publishing", clients), partial(self._publishing, measure))

    def _publishing(self, measure: Callable[..., Round]) -> Round:
        # Prepared: making them takes CPU from the clients.
        share = list(itertools.islice(self._numbers, self._share))
        files = {number: write_numbered(self.folder / "made" / str(number), number) for number in share}

        def publish() -> None:
            end = time.perf_counter() + self.arguments.seconds
            for number, each in files.items():
                if time.perf_counter() < end:
                    self._publisher.send(each, number, corrupt=number % _CORRUPT == 0)

        return measure(during=publish)

    def _look(self, report: Report) -> None:
        published = msgspec.json.decode(report.more, type=Published)
        self.sessions += published.sessions
        self.decisions += report.count
        for version, digest, answered in published.seen:
            self.seen.setdefault((version, digest), set()).update(answered)

    def check(self) -> None:
        self._publisher.close()
        check_answers(self.seen, self._publisher)

    def figures(self) -> dict[str, float]:
        return {
            "versions published under clients": len(self._publisher.seconds),
            "corrupt ones refused": self._publisher.refused,
            "versions that answered": len(self.seen),
            "sessions": self.sessions,
            "decisions": self.decisions,
            "publishing under clients, p50, ms": median(self._publisher.seconds) * 1e3,
        }


def _bounds(run: Run) -> Iterator[Bound]:
    """Bound the decisions during publishing by those of the same clients without publishing."""
    for publishing in find(run.cases, way="socket-publishing"):
        (quiet,) = find(run.cases, way="socket-quiet", clients=publishing.case.clients)
        memory = [each.server_rss for each in publishing.rounds if each.server_rss]
        clients = f"{publishing.case.clients} clients"
        yield Bound(f"{clients}: p99 publishing / quiet", ratio(publishing, quiet, "p99"), 2, at_least=False)
        yield Bound(f"{clients}: memory after the last round / the first", memory[-1] / memory[0], 1.1, at_least=False)

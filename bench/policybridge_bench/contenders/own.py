"""PolicyBridge itself."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from policybridge_bench.contenders.contract import Route, Serving, Setting
from policybridge_bench.load import Load
from policybridge_bench.policies import backends_of, policy_name, write_policies
from policybridge_bench.processes import server


@dataclass(frozen=True)
class PolicyBridge:
    """Our server, with the policies of `write_policies`, or with those of somebody's ``repository``.

    Attributes:
        python: the interpreter that runs it; another one's, to measure another build.
        repository: of policies; with it, ``policy`` names the one that is asked.
        policy: which is asked instead of ours.
        addresses: of a server that runs already; then none is started.
        pid: of that server, where its use of CPU and memory shall be known.
        options: more options of ``policybridge serve``.

    """

    python: str = sys.executable
    repository: Path | None = None
    policy: str | None = None
    addresses: Sequence[str] = ()
    pid: int | None = None
    options: Sequence[str] = ()

    def prepare(self, cache: Path) -> None:
        """Nothing is missing."""

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve on every transport."""
        if self.addresses:
            yield Serving(self.pid, list(self._routes(self.addresses, setting)))
            return
        repository = self.repository or setting.folder / "policies"
        if self.repository is None:
            write_policies(repository, setting.payloads, setting.backends)
        listen = [
            "--grpc",
            "127.0.0.1:0",
            "--grpc",
            f"unix:{setting.folder}/grpc",
            "--socket",
            f"{setting.folder}/socket",
        ]
        start = [
            self.python,
            "-m",
            "policybridge_client.cli",
            "serve",
            "--repository",
            str(repository),
            "--allow-python",
        ]
        with server([*start, *listen, *self.options], log=setting.folder / "policybridge.log") as started:
            addresses = [*started.addresses, f"inprocess:{repository}"]
            yield Serving(started.pid, list(self._routes(addresses, setting)))

    def _routes(self, addresses: Sequence[str], setting: Setting) -> Iterator[Route]:
        for payload in setting.payloads:
            for backend in [self.policy] if self.policy else setting.backends:
                if self.policy or backend in backends_of(payload):
                    for address in addresses:
                        policy = self.policy or policy_name(payload, backend)
                        yield from _routes(address, policy, payload, backend, setting.serdes)


def _routes(address: str, policy: str, payload: str, backend: str, serdes: Sequence[str]) -> Iterator[Route]:
    def route(way: str, kind: str, name: str, generators: Sequence[str]) -> Route:
        load = Load(kind=kind, address=address, policy=policy, payload=payload, serdes=name)
        return Route(way, load, generators, backend)

    scheme, _, target = address.partition(":")
    if scheme != "grpc":
        # Both have one form of their own: LLVM's bytes, and none at all.
        if "bitstream" in serdes:
            yield route(
                scheme, "session", "bitstream", ("native", "wire", "python") if scheme == "socket" else ("python",)
            )
        return
    way = "grpc-unix" if target.startswith("unix:") else "grpc"
    for name in serdes:
        yield route(way, "session", name, ("native", "python") if name == "bitstream" else ("python",))
        yield route(f"{way}-unary", "evaluate", name, ("native", "python"))

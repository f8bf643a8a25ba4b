"""PolicyBridge: this tree's, or another build."""

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from policybridge_bench.contenders.contract import Contender, Route, Serving, Setting
from policybridge_bench.load import Load
from policybridge_bench.payloads import FIXED, payload
from policybridge_bench.policies import backends_of, policy_name, write_policies
from policybridge_bench.processes import server
from policybridge_core.errors import InvalidError

_ROOTS: Final = ("proto", "core", "serdes", "server", "clients/python")
"""Folders of a checkout that the server's packages are imported from; older ones have no core."""


@dataclass(frozen=True)
class PolicyBridge(Contender):
    """Our server, with the policies of `write_policies`, or with those of the folder ``repository``.

    Attributes:
        python: an interpreter that runs the server, or the folder of a checkout that this interpreter runs.
        repository: folder of policies; needs ``policy``.
        policy: the measured policy, instead of those of `write_policies`.
        addresses: of a running server; then no server is started.
        pid: process id of that server, to measure its CPU and memory.
        options: more options of ``policybridge serve``.
        env: more environment variables of the server.

    """

    python: str = sys.executable
    repository: Path | None = None
    policy: str | None = None
    addresses: Sequence[str] = ()
    pid: int | None = None
    options: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Serve on every transport."""
        if self.addresses:
            yield Serving(self.pid, list(self._routes(self.addresses, setting)))
            return
        repository = self.repository or setting.folder / "policies"
        if self.repository is None:
            write_policies(repository, setting.payloads, setting.backends)
        command, env = serve_command(self.python)
        command += ["--repository", str(repository), "--allow-python", "--grpc", "127.0.0.1:0"]
        command += ["--grpc", f"unix:{setting.folder}/grpc", "--socket", f"{setting.folder}/socket", *self.options]
        with server(command, env={**env, **self.env}, log=setting.folder / "policybridge.log") as started:
            # An evaluation in the client's process runs this tree's code, so it says nothing of another build.
            inprocess = [f"inprocess:{repository}"] if self.python == sys.executable else []
            yield Serving(started.pid, list(self._routes([*started.addresses, *inprocess], setting)))

    def _routes(self, addresses: Sequence[str], setting: Setting) -> Iterator[Route]:
        for name in setting.payloads:
            for backend in [self.policy] if self.policy else setting.backends:
                if self.policy or backend in backends_of(name):
                    policy = self.policy or policy_name(name, backend)
                    for address in addresses:
                        yield from _routes(address, policy, name, backend, setting)


WAYS: Final = (
    "socket",
    "inprocess",
    *(f"{scheme}{call}" for scheme in ("grpc", "grpc-unix") for call in ("", "-unary", "-tensors", "-infer")),
)
"""The ways of asking that `PolicyBridge` may offer."""


def policybridge(arguments: argparse.Namespace, **changes: Any) -> PolicyBridge:
    """Make the contender that the command line describes, with ``changes`` of its attributes.

    Raises:
        InvalidError: a server or a repository is given, but no policy to ask.

    """
    if (arguments.server or arguments.repository) and not arguments.policy:
        raise InvalidError("--server and --repository go with --policy, which names the policy to ask")
    described = PolicyBridge(
        arguments.python,
        arguments.repository,
        arguments.policy,
        arguments.server,
        arguments.server_pid,
        arguments.serve_option,
    )
    return dataclasses.replace(described, **changes)


def serve_command(python: str) -> tuple[list[str], Mapping[str, str]]:
    """Give the command that serves, and its environment; ``python`` is an interpreter or the folder of a checkout.

    Raises:
        InvalidError: it is a folder, but no checkout.

    """
    env: dict[str, str] = {}
    if Path(python).is_dir():
        roots = [root for name in _ROOTS if (root := Path(python).absolute() / name).is_dir()]
        if len(roots) < len(_ROOTS) - 1:
            raise InvalidError(f"{python} is no checkout of PolicyBridge: it lacks some of {', '.join(_ROOTS)}")
        env["PYTHONPATH"] = os.pathsep.join(map(str, roots))
        python = sys.executable
    elif python != sys.executable:
        # Another environment has its own packages; this tree's must not come before them.
        env["PYTHONPATH"] = ""
    return [python, "-m", "policybridge_client.cli", "serve"], env


def _way(address: str) -> str:
    scheme, _, target = address.partition(":")
    return "grpc-unix" if scheme == "grpc" and target.startswith("unix:") else scheme


def _routes(address: str, policy: str, name: str, backend: str, setting: Setting) -> Iterator[Route]:
    def route(way: str, kind: str, serdes: str, generators: Sequence[str]) -> Route:
        load = Load(kind=kind, address=address, policy=policy, payload=name, serdes=serdes)
        return Route(way, load, generators, backend)

    way = _way(address)
    if not way.startswith("grpc"):
        # A socket carries LLVM's bytes alone, and a call within the process carries none.
        if "bitstream" in setting.serdes:
            generators = ("native", "wire", "python") if way == "socket" else ("python",)
            yield route(way, "session", "bitstream", generators)
        return
    for serdes in setting.serdes:
        yield route(way, "session", serdes, ("native", "python") if serdes == "bitstream" else ("python",))
        yield route(f"{way}-unary", "evaluate", serdes, ("native", "python"))
    if "protobuf" in setting.serdes:
        yield route(f"{way}-tensors", "evaluate-tensors", "protobuf", ("native", "python"))
    if name in FIXED:
        # Late: a process that has imported Triton's client, whose messages have the same names, cannot import these.
        from policybridge_bench import inference  # noqa: PLC0415

        # A Python policy does not declare its output; of a user's policy it is not known.
        declared = backend != "python" and policy == policy_name(name, backend)
        described = None if declared else payload(name).signature.advice
        file = inference.write_requests(setting.folder, name, policy, described)
        load = Load(kind="unary", address=address, method=inference.INFER, payload=name, file=file)
        yield Route(f"{way}-infer", load, ("native", "python"), backend)

"""A floor: the model alone, which each client evaluates in its own process."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from policybridge_bench.contenders.contract import Route, Serving, Setting
from policybridge_bench.load import Load
from policybridge_bench.policies import backends_of, policy_name, write_policies


class ModelAlone:
    """No server: a request is one evaluation."""

    def prepare(self, cache: Path) -> None:
        """Do nothing: all is there."""

    @contextlib.contextmanager
    def serve(self, setting: Setting) -> Iterator[Serving]:
        """Write the policies."""
        write_policies(setting.folder, setting.payloads, setting.backends)
        pairs = [
            (name, backend) for name in setting.payloads for backend in setting.backends if backend in backends_of(name)
        ]
        yield Serving(None, [_route(setting.folder, name, backend) for name, backend in pairs])


def _route(folder: Path, name: str, backend: str) -> Route:
    load = Load(kind="model", address=str(folder), policy=policy_name(name, backend), payload=name)
    return Route("alone", load, ("python",), backend)

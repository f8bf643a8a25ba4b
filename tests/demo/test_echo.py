"""Under a policy that echoes LLVM's own decision, the objects of the demo are those that plain -Oz makes.

One compiler makes all of them, every third over the socket and the others over gRPC; other compilers make every third.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from policybridge_client.llvm.config import HostConfig
from policybridge_demo.compilation import compile_asking, compile_plain
from policybridge_demo.corpus import Module, demo_modules
from policybridge_demo.workers import for_each
from policybridge_serdes import PolicyReference
from tests.client.compilers import parameters
from tests.conftest import RunningServer, running_server
from tests.locks import one_at_a_time

Digests = Mapping[str, str]
"""Of each module's object, by the module's path."""

_PARTS = {"zig": slice(None), "clang-22": slice(0, None, 3), "clang-19": slice(1, None, 3)}
"""The modules that each compiler makes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(None, tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture(scope="session")
def plain(shared: Path) -> Callable[[str], Digests]:
    """Compile each compiler's part without a policy, once in a run of the tests: it takes as long as a test."""

    def digests(compiler: str) -> Digests:
        file = shared / f"plain-{compiler}.json"
        with one_at_a_time(file):
            if not file.exists():
                modules = demo_modules()[_PARTS[compiler]]
                built = for_each(partial(compile_plain, compiler), modules, os.cpu_count() or 1)
                file.write_text(json.dumps({each.module.path: each.digest for _, each in built}))
        made: Digests = json.loads(file.read_text())
        return made

    return digests


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("transport", "jobs", "thirds"), [("socket", 1, (2,)), ("grpc", 8, (0, 1))])
def test_zigs_objects_under_the_echo_of_the_default_are_those_of_plain_oz(
    server: RunningServer, plain: Callable[[str], Digests], transport: str, jobs: int, thirds: Sequence[int]
) -> None:
    modules = [module for number, module in enumerate(demo_modules()) if number % 3 in thirds]
    check_identical(getattr(server, transport), plain, "zig", jobs, modules)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("compiler", parameters("clang-22", "clang-19"))
def test_debians_objects_under_the_echo_of_the_default_are_those_of_plain_oz(
    server: RunningServer, plain: Callable[[str], Digests], compiler: str
) -> None:
    check_identical(server.socket, plain, compiler, 8, demo_modules()[_PARTS[compiler]])


def check_identical(
    address: str, plain: Callable[[str], Digests], compiler: str, jobs: int, modules: Sequence[Module]
) -> None:
    config = HostConfig(PolicyReference("inlining-default"), address)
    asking = [result for _, result in for_each(partial(compile_asking, compiler, config), modules, jobs)]
    assert sum(tally.decisions for _, tally in asking) > 1000
    assert [tally.fallback for _, tally in asking if tally.fallback is not None] == []
    digests = plain(compiler)
    assert len(modules) > 20
    assert {built.module.path: built.digest for built, _ in asking} == {
        each.path: digests[each.path] for each in modules
    }

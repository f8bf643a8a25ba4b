"""The example of a pass plugin: a policy chooses each function's passes."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from tests.client.compilers import write_source
from tests.conftest import RunningServer, running_server
from tests.native.conftest import MAJORS, Target, build_grpc
from tests.native.llvm.plugins import Plugin, emit, write_policies

PASSES = "policybridge-passes"


@pytest.fixture(scope="module")
def server(ledger: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    write_policies(repository)
    with running_server(repository, ledger.parent, "--ledger", ledger) as running:
        yield running


@pytest.fixture(params=MAJORS)
def plugin(request: pytest.FixtureRequest, native: Target, server: RunningServer) -> Plugin:
    """Give the plugin of every major in turn."""
    return Plugin.of(native, "passes", request.param, server)


@pytest.fixture
def module(plugin: Plugin, tmp_path: Path) -> Path:
    return emit(plugin.major, write_source(tmp_path, functions=3), tmp_path / "module.bc")


def test_passes_run_in_the_order_that_the_policy_chooses(plugin: Plugin, module: Path) -> None:
    made = plugin.opt(module, "", PASSES, passes_policy="passes")
    assert (made.status, made.said) == (0, "")
    # The policy begins again after each pass that changed something, and stops when none of its three does.
    again = ",".join(["sroa", "instcombine", "sroa", "simplifycfg"] * 5)
    assert made.bitcode == plugin.plain(module, f"function({again})")
    assert made.bitcode != plugin.plain(module, "verify")


def test_each_function_is_a_context_of_one_session_and_ends_at_stop(plugin: Plugin, module: Path, ledger: Path) -> None:
    assert plugin.opt(module, "", PASSES, passes_policy="passes").status == 0
    with LedgerReader(ledger) as reader:
        session = list(reader.sessions(Query(policy="passes")))[-1]
        (batch,) = reader.trajectory(session).batches
    functions = [f"middle{n}" for n in range(3)] + [f"module{n}" for n in range(3)] + ["tiny"]
    assert sorted({*batch.contexts}) == sorted(functions)
    contexts = [*batch.contexts, None]
    lasts = [row for row in range(len(batch)) if contexts[row] != contexts[row + 1]]
    stop = batch.observations["mask"].shape[-1] - 1
    assert {*batch.advices["pass"][lasts].reshape(-1).tolist()} == {stop}
    assert session.outcome is not None
    values = session.outcome.values
    assert 0 < values["instructions_after"] < values["instructions_before"]


def test_a_pass_that_has_run_is_masked_until_another_changes_the_function(
    plugin: Plugin, module: Path, ledger: Path
) -> None:
    assert plugin.opt(module, "", PASSES, passes_policy="passes").status == 0
    with LedgerReader(ledger) as reader:
        (batch,) = reader.trajectory(list(reader.sessions(Query(policy="passes")))[-1]).batches
    masks, sizes = batch.observations["mask"], [name for name in batch.observations.dtype.names or () if name != "mask"]
    again = 0
    for row in range(1, len(batch)):
        if batch.contexts[row] != batch.contexts[row - 1]:
            assert masks[row].all()
            continue
        changed, unchanged = np.ones_like(masks[row]), masks[row - 1].copy()
        changed[batch.advices["pass"][row - 1]] = unchanged[batch.advices["pass"][row - 1]] = 0
        # A function may also change in what its numbers do not tell.
        same = batch.observations[sizes][row - 1] == batch.observations[sizes][row]
        assert masks[row].tolist() in ([changed.tolist(), unchanged.tolist()] if same else [changed.tolist()])
        again += bool((masks[row] > masks[row - 1]).any())
    assert again > 5
    assert (masks == 0).sum(axis=-1).max() > 1


def test_a_policy_that_stops_at_once_changes_nothing(plugin: Plugin, module: Path) -> None:
    made = plugin.opt(module, "", PASSES, passes_policy="no-passes")
    assert (made.status, made.said) == (0, "")
    assert made.bitcode == plugin.plain(module, "verify")


@pytest.mark.parametrize("plugin", ["22-grpc"], indirect=True)
def test_over_grpc_both_plugins_share_what_they_load(
    plugin: Plugin, native: Target, server: RunningServer, module: Path, tmp_path: Path
) -> None:
    # From two folders: the protobuf library would end the process where two copies announced the same messages.
    inliner = Plugin.of(native, "inliner", "22-grpc", server)
    for path in (inliner.path, build_grpc(native)):
        shutil.copy(path, tmp_path)
    flags = [f"-load-pass-plugin={tmp_path / inliner.path.name}", "-policybridge-fallback=error"]
    made = plugin.opt(module, "echo", f"default<Oz>,{PASSES}", flags, passes_policy="no-passes")
    assert (made.status, made.said, made.bitcode) == (0, "", plugin.plain(module))


@pytest.mark.parametrize(
    ("policy", "message"), [("wild-passes", "advises pass 1000"), ("nobody", "no policy 'nobody'")]
)
def test_an_illegal_advice_leaves_the_module_unchanged(plugin: Plugin, module: Path, policy: str, message: str) -> None:
    made = plugin.opt(module, "", PASSES, passes_policy=policy)
    assert (made.status, made.bitcode) == (0, plugin.plain(module, "verify"))
    assert made.said.count("\n") == 1
    assert message in made.said


def test_a_default_pipeline_runs_the_passes_last_where_a_server_is_set(
    plugin: Plugin, module: Path, ledger: Path
) -> None:
    made = plugin.opt(module, "", "default<O2>", passes_policy="no-passes")
    assert (made.status, made.bitcode) == (0, plugin.plain(module, "default<O2>"))
    with LedgerReader(ledger) as reader:
        assert list(reader.sessions(Query(policy="no-passes")))[-1].decisions > 0


def test_both_plugins_work_in_one_process(
    plugin: Plugin, native: Target, server: RunningServer, module: Path, ledger: Path
) -> None:
    inliner = Plugin.of(native, "inliner", plugin.major, server)
    loading = [f"-load-pass-plugin={inliner.path}"]
    made = plugin.opt(module, "echo", "default<Oz>", loading, passes_policy="no-passes")
    assert (made.status, made.said, made.bitcode) == (0, "", plugin.plain(module))
    with LedgerReader(ledger) as reader:
        assert [session.policy.name for session in reader.sessions()][-2:] == ["echo", "no-passes"]

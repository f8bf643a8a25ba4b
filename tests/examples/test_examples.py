"""The example policies, served as their README says and asked by the stand-in compilers beside them."""

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from examples.compilers import loop_distribution, pass_sequence, register_allocation

from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Exploration
from tests.conftest import RunningServer, running_server
from tests.frameworks import require

require("torch")

import torch  # noqa: E402
from examples import make_models  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"
CODE = ["pass-sequence", "loop-distribution", "register-allocation"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(EXAMPLES / "policies", tmp_path_factory.mktemp("s")) as running:
        yield running


@pytest.fixture(params=["socket", "grpc"])
def address(server: RunningServer, request: pytest.FixtureRequest) -> str:
    return server.socket if request.param == "socket" else server.grpc


class TestPassSequence:
    def optimise(self, address: str, seeds: list[int], exploration: Exploration | None = None) -> list[list[int]]:
        """Optimise a module for each seed in one session."""
        with pass_sequence.open_session(address, exploration) as runner:
            return [pass_sequence.optimise(runner, pass_sequence.Module(f"module {seed}", seed)) for seed in seeds]

    def test_an_episode_is_a_legal_sequence_that_the_policy_ends(self, address: str) -> None:
        (done,) = self.optimise(address, [1])
        assert 0 < len(done) < pass_sequence.MOST
        assert set(done) <= set(range(pass_sequence.SUB_SEQUENCES))
        assert all(one != other for one, other in pairwise(done))

    def test_each_module_is_an_episode_of_its_own(self, address: str) -> None:
        assert self.optimise(address, [1, 2, 3]) == [self.optimise(address, [seed])[0] for seed in (1, 2, 3)]

    def test_a_session_that_explores_takes_other_actions_and_the_same_ones_for_its_seed(self, address: str) -> None:
        drawn = self.optimise(address, [1, 2, 3], Exploration(seed=5, temperature=3.0))
        assert drawn == self.optimise(address, [1, 2, 3], Exploration(seed=5, temperature=3.0))
        assert drawn != self.optimise(address, [1, 2, 3])

    def test_both_transports_give_the_same_sequences(self, server: RunningServer) -> None:
        assert self.optimise(server.socket, [4, 5]) == self.optimise(server.grpc, [4, 5])


class TestLoopDistribution:
    def test_loops_of_any_size_are_distributed_as_their_dependences_allow(self, address: str) -> None:
        with loop_distribution.open_session(address) as runner:
            for seed, size in enumerate([1, 2, 5, 40]):
                loops = loop_distribution.distribute(runner, loop_distribution.make_loop("loop", size, seed))
                assert sorted(node for nodes in loops for node in nodes) == list(range(size))
                assert all(loops)

    def test_some_nodes_stay_together_and_some_do_not(self, address: str) -> None:
        with loop_distribution.open_session(address) as runner:
            loops = loop_distribution.distribute(runner, loop_distribution.make_loop("loop", 40, 3))
        assert 1 < len(loops) < 40

    def test_a_loop_without_dependences_has_no_edges(self, address: str) -> None:
        loop = loop_distribution.make_loop("loop", 6, 0)
        loop.edges = np.zeros((0, 2), np.int64)
        with loop_distribution.open_session(address) as runner:
            assert sum(map(len, loop_distribution.distribute(runner, loop))) == 6

    @pytest.mark.parametrize(
        ("edges", "message"),
        [
            ([[0, 1], [1, 2], [2, 0]], r"dependences of the nodes \[0, 1, 2\] are circular"),
            ([[0, 3]], "an edge names a node outside 0 to 2"),
            ([[-1, 0]], "an edge names a node outside 0 to 2"),
        ],
    )
    def test_a_graph_that_is_none_of_a_loop_is_an_error_and_no_advice(
        self, address: str, edges: list[list[int]], message: str
    ) -> None:
        loop = loop_distribution.make_loop("loop", 3, 0)
        loop.edges = np.array(edges, np.int64)
        with loop_distribution.open_session(address) as runner, pytest.raises(PolicyFailedError, match=message):
            loop_distribution.distribute(runner, loop)


class TestRegisterAllocation:
    def test_a_function_is_allocated_without_a_conflict(self, address: str) -> None:
        function = register_allocation.make_function("function", 30, 1)
        with register_allocation.open_session(address) as runner:
            registers = register_allocation.allocate(runner, function)
        assert registers.keys() == function.ranges.keys()
        assert all(register not in function.taken(number) for number, register in registers.items())

    def test_live_ranges_are_split_and_spilled_too(self, address: str) -> None:
        function = register_allocation.make_function("function", 30, 2)
        with register_allocation.open_session(address) as runner:
            registers = register_allocation.allocate(runner, function)
        assert len(function.ranges) > 30
        assert 0 < list(registers.values()).count(register_allocation.STACK) < len(registers)

    def test_a_live_range_is_described_once_however_many_decisions_there_are(self, address: str) -> None:
        function = register_allocation.make_function("function", 30, 2)
        with register_allocation.open_session(address) as runner:
            register_allocation.allocate(runner, function)
        splits = len(function.ranges) - 30
        assert function.sent == 30 + 2 * splits

    def test_each_function_is_an_episode_of_its_own_even_under_the_same_name(self, address: str) -> None:
        functions = [register_allocation.make_function("function", 20, seed) for seed in (1, 1, 2)]
        with register_allocation.open_session(address) as runner:
            first, again, other = (register_allocation.allocate(runner, function) for function in functions)
        assert first == again
        assert first != other

    def test_sessions_at_the_same_time_do_not_see_each_other(self, address: str) -> None:
        alone = register_allocation.make_function("function", 20, 3)
        with register_allocation.open_session(address) as runner:
            register_allocation.allocate(runner, alone)
        function = register_allocation.make_function("function", 20, 3)
        with register_allocation.open_session(address) as outer, register_allocation.open_session(address) as inner:
            register_allocation.allocate(outer, register_allocation.make_function("other", 20, 4))
            register_allocation.allocate(inner, function)
        assert function.registers == alone.registers

    def test_a_change_of_a_live_range_that_was_never_sent_is_an_error(self, address: str) -> None:
        function = register_allocation.make_function("function", 5, 1)
        with register_allocation.open_session(address) as runner:
            function.observe(runner)
            runner["edges"] = np.array([[0, 99]])
            with pytest.raises(PolicyFailedError, match="KeyError: 99"):
                runner.evaluate()


@pytest.mark.parametrize("name", CODE)
def test_the_stand_in_compilers_are_programs(server: RunningServer, name: str) -> None:
    program = EXAMPLES / "compilers" / f"{name.replace('-', '_')}.py"
    ran = subprocess.run([sys.executable, program, server.socket], capture_output=True, text=True, check=True)
    assert len(ran.stdout.splitlines()) == 3


@pytest.mark.parametrize("name", make_models.examples())
def test_the_models_are_small_and_those_that_their_script_makes(name: str) -> None:
    file = make_models.path(name)
    assert file.stat().st_size < 100_000
    kept, made = torch.export.load(file).state_dict, make_models.make(name).state_dict()
    assert kept.keys() == made.keys()
    for key, weight in made.items():
        assert torch.equal(kept[key], weight)


@pytest.mark.parametrize("name", make_models.examples())
def test_a_model_that_is_made_anew_says_nothing_of_the_machine(name: str, tmp_path: Path) -> None:
    torch.export.save(make_models.export(name), tmp_path / "model.pt2")
    assert str(EXAMPLES.parent).encode() not in (tmp_path / "model.pt2").read_bytes()


def test_a_server_with_these_policies_ends_cleanly(tmp_path: Path) -> None:
    with running_server(EXAMPLES / "policies", tmp_path) as server:
        with loop_distribution.open_session(server.socket) as runner:
            loop_distribution.distribute(runner, loop_distribution.make_loop("loop", 5, 1))
        server.process.terminate()
        assert server.process.wait(60) == 0

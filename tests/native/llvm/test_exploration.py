"""Compilations that explore: what they draw is determined by the seed and the module, and the ledger has it all."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from policybridge_core.session import Exploration
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.client.compilers import write_source
from tests.client.policies import DRAWN
from tests.conftest import RunningServer, running_server
from tests.native.llvm.plugins import ECHO, Plugin, emit
from tests.repositories import answering, write_python

_EXPLORED = "seed=7,temperature=2.0,epsilon=.1"
_CHOICE = '[head]\nscores = "choice"\nchoices = 2\n'
_ADVICE = 'advice = {name = "advice", type = "int64_t", shape = [1]}\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, ledger: Path) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("policies")
    scores = "__import__('numpy').array([0, observation['inlining_default'].item()], 'float32')"
    for version in (1, 2):
        folder = repository / "drawn" / str(version)
        folder.mkdir(parents=True)
        (folder / "policy.py").write_text(answering(scores))
    (repository / "drawn" / "policy.toml").write_text(f'backend = "python"\n{DRAWN}')
    write_python(repository, "own", answering(ECHO), _ADVICE + _CHOICE)
    write_python(repository, "headless", answering(ECHO))
    with running_server(repository, ledger.parent, "--ledger", ledger) as running:
        yield running


@pytest.fixture
def modules(major: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    sources = [write_source(tmp_path, name) for name in ("one.c", "other.c")]
    return [emit(major, source, source.with_suffix(".bc")) for source in sources]


@pytest.fixture
def asking(major: str, plugin: Path, server: RunningServer) -> Plugin:
    return Plugin(major, plugin, server.socket)


def last(ledger: Path, policy: str) -> tuple[SessionRecord, DecisionBatch]:
    with LedgerReader(ledger) as reader:
        session = list(reader.sessions(Query(policy=policy)))[-1]
        (batch,) = reader.trajectory(session).batches
    return session, batch


def test_the_seed_and_the_module_determine_what_is_drawn_and_the_ledger_has_version_and_chances(
    asking: Plugin, modules: list[Path], ledger: Path
) -> None:
    drawn = []
    for module in (modules[0], modules[0], modules[1]):
        assert asking.opt(module, "drawn@1", explore=_EXPLORED).said == ""
        session, batch = last(ledger, "drawn")
        assert (session.policy.version, session.decisions) == (1, len(batch.log_probabilities))
        wanted = Exploration.parse(_EXPLORED).of_module(str(module.with_suffix(".c")))
        assert session.exploration == wanted
        inlined = batch.advices["inlining_decision"].reshape(-1)
        score = batch.observations["inlining_default"].reshape(-1) / 2
        yes = 0.9 * np.exp(score) / (1 + np.exp(score)) + 0.05
        assert batch.log_probabilities == pytest.approx(np.log(np.where(inlined != 0, yes, 1 - yes)))
        drawn.append(inlined.tolist())
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]


def test_a_choice_without_scores_explores_by_epsilon_alone(asking: Plugin, modules: list[Path], ledger: Path) -> None:
    assert asking.opt(modules[0], "own", explore="epsilon=0.5,seed=3").said == ""
    _, batch = last(ledger, "own")
    chances = np.exp(batch.log_probabilities)
    assert set(chances.round(3)) <= {0.25, 0.75}
    assert "explores by epsilon alone" in asking.opt(modules[0], "own", explore="temperature=1").said


@pytest.mark.parametrize(
    ("policy", "explored", "message"),
    [
        ("headless", "epsilon=0.5", 'scores = "choice"'),
        (
            "drawn",
            "epsilon=2",
            "POLICYBRIDGE_EXPLORE is wrong: epsilon is a probability, not 2",
        ),
        ("drawn", "often", "temperature=T,epsilon=E,seed=S"),
    ],
)
def test_an_exploration_that_cannot_be_is_told_and_llvm_decides(
    asking: Plugin, modules: list[Path], policy: str, explored: str, message: str
) -> None:
    made = asking.opt(modules[0], policy, explore=explored)
    assert (made.status, made.bitcode) == (0, asking.plain(modules[0]))
    assert message in made.said
    assert asking.opt(modules[0], policy, explore=explored, fallback="error").status == 1

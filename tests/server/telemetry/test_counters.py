"""How many series clients can make a server count: few, however many versions they ask for."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_serdes import PolicyReference, SessionOptions, pack
from policybridge_server.counters import Counters, Histogram, VersionCounters
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.session import Session
from policybridge_server.repository import Repository
from tests.repositories import answering, write_python
from tests.server.engine.misbehaving import X
from tests.server.engine.test_batches import Told

VERSIONS = 220


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    for version in range(1, VERSIONS + 1):
        write_python(tmp_path, "many", answering("1"), version=version)
    engine = Engine(Repository([tmp_path]), allow_python=True)
    yield engine
    engine.close()


def asked(engine: Engine, version: int) -> Session:
    """Open a session on a version, and ask once."""
    session = engine.open(engine.load(PolicyReference("many", version)), SessionOptions(), Told())
    session.bind(X)
    session.submit(pack(X.features, {"x": 1}))
    engine.flush()
    return session


def counted(engine: Engine) -> dict[tuple[str, str], VersionCounters]:
    return {(each.policy, each.version): each for each in engine.counters.versions}


def test_beyond_200_loaded_versions_all_others_are_counted_together(engine: Engine) -> None:
    for version in range(1, VERSIONS + 1):
        asked(engine, version)
    found = counted(engine)
    assert len(found) == 201
    assert found["other", ""].decisions == VERSIONS - 200
    assert all(each.decisions == 1 for name, each in found.items() if name[0] == "many")


def test_the_numbers_of_the_last_16_unloaded_versions_stay_and_go_on_where_one_is_loaded_again(
    engine: Engine,
) -> None:
    # The newest version stays loaded: an alias names it.
    for version in range(1, 31):
        asked(engine, version).close()
    gone = {int(version) for _, version in counted(engine)} - {VERSIONS}
    assert gone == set(range(15, 31))
    again = asked(engine, 20)
    assert counted(engine)["many", "20"].decisions == 2
    again.close()
    asked(engine, 1).close()
    assert counted(engine)["many", "1"].decisions == 1, "what is forgotten begins anew"


def test_a_quantile_lies_where_its_share_of_the_numbers_lies_below_it() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.5) == 0
    histogram.add(10, 90)
    histogram.add(1000, 10)
    # 10 has four bits, 1000 has ten.
    assert 8 <= histogram.quantile(0.5) < 16
    assert 512 <= histogram.quantile(0.95) <= 1024
    assert (histogram.count, histogram.total) == (100, 10_900)


def test_a_batch_is_counted_in_each_stage_by_its_decisions() -> None:
    counters = VersionCounters("many", "1")
    counters.batch(3, 10, 200, 3000, 40_000)
    counters.batch(1, 11, 201, 3001, 40_001)
    stages = (counters.read, counters.queued, counters.evaluated, counters.answered)
    assert [stage.total for stage in stages] == [41, 801, 12_001, 160_001]
    assert [stage.count for stage in stages] == [4] * 4
    assert (counters.decisions, counters.batches.count) == (4, 2)


def test_the_versions_of_the_last_4096_sessions_are_known_for_their_outcomes() -> None:
    counters, version = Counters(), VersionCounters("p", "1")
    for number in range(4097):
        counters.closed(f"s{number}", version)
    assert version.closed == 4097
    assert counters.version_of("s1") is counters.version_of("s4096") is version
    assert counters.version_of("s0").policy == "other"

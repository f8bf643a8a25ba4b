"""What is promised beside floors and peers, held against a run."""

from collections.abc import Iterable

from policybridge_bench.results import Case, Measured, Round
from tests.peers.promises import bounds


def case(who: str, clients: int, p50: float, throughput: float, payload: str = "inliner") -> Measured:
    contender, _, way = who.partition("/")
    one = Round(p50=p50, p90=p50, p99=p50 * 3, p999=p50, throughput=throughput, count=1, spectrum=[], client_cpu=1)
    asked = Case(contender=contender, way=way, generator="native", clients=clients, payload=payload)
    return Measured(case=asked, rounds=[one, one, one])


def verdicts(cases: Iterable[Measured]) -> dict[str, bool]:
    return {bound.text: bound.holds for bound in bounds(list(cases))}


def test_a_promise_is_held_against_the_baseline_with_as_many_clients() -> None:
    own, echo = case("policybridge/socket", 1, 30, 1), case("grpc-echo/unary", 1, 100, 1)
    assert verdicts([own, echo, case("grpc-echo/unary", 8, 10, 1)]) == {
        "1 × socket / grpc-echo/unary, inliner, p50": True
    }
    slow = case("policybridge/socket", 1, 40, 1)
    assert verdicts([slow, echo]) == {"1 × socket / grpc-echo/unary, inliner, p50": False}


def test_the_fastest_peer_counts_among_those_that_were_asked_the_same() -> None:
    own, other = case("policybridge/socket", 8, 1, 50_000), case("triton/stream", 8, 1, 40_000, payload="vector")
    slow, fast = case("triton/unary", 8, 1, 5_000), case("mosec/raw", 8, 1, 12_000)
    assert verdicts([own, slow, other]) == {"8 × socket / fastest peer, inliner, throughput": True}
    assert verdicts([own, slow, fast, other]) == {"8 × socket / fastest peer, inliner, throughput": False}


def test_a_crowd_must_not_be_slower_than_a_few_clients() -> None:
    few, many = case("policybridge/socket", 8, 1, 50_000), case("policybridge/socket", 32, 1, 40_000)
    assert verdicts([few, many]) == {
        "socket: 32 clients / 8, throughput": False,
        "socket: 32 clients, p99 / p50": True,
    }


def test_what_was_not_measured_is_not_promised() -> None:
    assert verdicts([case("policybridge/socket", 1, 30, 1)]) == {}

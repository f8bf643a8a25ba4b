"""Attackers that come again and again, or several at once: repeat, time and two at once; see `README.md`."""

import itertools
import json
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import grpc
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2, replication_service_pb2, repository_service_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from policybridge.v1.replication_service_pb2_grpc import ReplicationServiceStub
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from tests.attacks.door_attacks import Attack, body, followed, infer_request
from tests.attacks.target import ADVICE_PATH, HELLO, OBSERVATION, VARIES, Target, repeat, together, until

_SECONDS: Final = 4.0
_MEGABYTES: Final = 4 << 20
_FOLLOW = replication_service_pb2.FollowRequest


def _tls_repeat(target: Target) -> None:
    shake = until(_SECONDS, lambda: target.handshake("grpc"))
    together(shake, shake)


def _client_hello() -> bytes:
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def _tls_two(target: Target) -> None:
    """Leave 600 handshakes half way on both ports, and finish others meanwhile."""
    hello = _client_hello()
    half = [partial(repeat, 300, partial(target.send, door, hello)) for door in ("grpc", "http")]
    whole = [until(_SECONDS, partial(target.handshake, door)) for door in ("grpc", "http")]
    together(*half, *whole)


def _socket_two(target: Target) -> None:
    """Send half observations, contexts without end and sessions that end at once, each from threads of its own."""
    half = b'{"observation":0,"bytes":60000000}\n' + bytes(30_000_000)
    contexts = b'{"context":"f"}\n' * 100_000
    together(
        *[lambda: target.send("socket", HELLO, VARIES, half)] * 4,
        *[lambda: target.send("socket", HELLO, VARIES, contexts)] * 4,
        until(_SECONDS, lambda: target.asked("socket", HELLO, VARIES, OBSERVATION)),
        until(_SECONDS, lambda: target.asked("socket", b"\0" * 100)),
    )


def _advised(target: Target, question: bytes) -> None:
    target.call(lambda channel: channel.unary_unary(ADVICE_PATH, None, None)(question, timeout=20))


def _mlbridge_two(target: Target) -> None:
    """Ask eight times at once with 4 MiB of numbers on one connection, which is one session, and on others."""
    question = b"\x0a\x80\x80\x80\x02" + bytes(_MEGABYTES)

    def on_one(channel: grpc.Channel) -> None:
        calls = [channel.unary_unary(ADVICE_PATH, None, None).future(question, timeout=20) for _ in range(8)]
        for call in calls:
            call.exception()

    together(partial(target.call, on_one), *[partial(_advised, target, question)] * 4)


def _inference_two(target: Target) -> None:
    """Begin one sequence from 16 clients at once, over gRPC and HTTP, with 4 MiB each."""
    request = infer_request(_MEGABYTES, sequence=7)
    given = {"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}
    parameters = {"sequence_id": 7, "sequence_start": True}
    data = json.dumps({"inputs": [given], "parameters": parameters}).encode()
    over_http = body(data, head=len(data)).replace(b"/echo/", b"/first/", 1)
    once = partial(target.call, lambda channel: GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=20))
    together(*[once] * 8, *[partial(repeat, 20, lambda: target.asked("http", over_http))] * 8)


def _hello(number: int) -> replication_service_pb2.FollowRequest:
    return _FOLLOW(hello=replication_service_pb2.Hello(id=f"replica {number}"))


def _silent_follow(target: Target, number: int) -> None:
    target.call(partial(followed, messages=(_hello(number),)))


def _replica_time(target: Target) -> None:
    """Follow as 30 replicas that never say what they adopted, and wait for all of them."""
    wait = replication_service_pb2.ReplicasRequest(wait_for=replication_service_pb2.WAIT_FOR_ALL, seconds=600)
    waiting = partial(target.call, lambda channel: ReplicationServiceStub(channel).Replicas(wait, timeout=5))
    together(*[partial(_silent_follow, target, number) for number in range(30)], *[waiting] * 30)


def _replica_repeat(target: Target) -> None:
    """Come as a new replica again and again, and leave."""

    def come(channel: grpc.Channel) -> None:
        for number in range(2_000):
            for _ in ReplicationServiceStub(channel).Follow(iter([_hello(number)]), timeout=5):
                break

    target.call(come)
    target.call(lambda channel: ReplicationServiceStub(channel).Replicas(replication_service_pb2.ReplicasRequest()))


def _adopted(number: int) -> Iterator[replication_service_pb2.FollowRequest]:
    lack = replication_service_pb2.Lack(policy="echo", reason="z" * 60_000)
    yield _hello(0)
    for revision in range(200):
        yield _FOLLOW(adopted=replication_service_pb2.Adopted(revision=revision + number, lacks=[lack] * 10))


def _replica_two(target: Target) -> None:
    """Come as one replica from eight connections at once, each of which says something else, beside downloads."""
    version = policy_service_pb2.PolicyVersion(name="echo", version=1, digest="sha256:" + "0" * 64)
    wanted = replication_service_pb2.DownloadRequest(version=version)
    load = partial(target.call, lambda channel: list(ReplicationServiceStub(channel).Download(wanted, timeout=5)))
    one = [partial(target.call, partial(followed, messages=list(_adopted(number)))) for number in range(8)]
    together(*one, until(_SECONDS, load))


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


_PATHS: Final = ("/", "/page/state", "/page/history", "/page/sessions", "/page/ledger", "/metrics")


def _page_repeat(target: Target) -> None:
    """Ask for every path of the page, and for the metrics, one after the other."""
    paths = itertools.cycle(_PATHS)
    until(_SECONDS, lambda: target.asked("http", _get(next(paths))))()


def _page_two(target: Target) -> None:
    """Ask 32 times at once for the same, beside a search of sessions for another text each time."""
    searches = (_get(f"/page/sessions?context={number}") for number in itertools.count())
    together(*[partial(_page_repeat, target)] * 32, until(_SECONDS, lambda: target.asked("http", next(searches))))


def _report(session: str) -> policy_service_pb2.ReportOutcomeRequest:
    return policy_service_pb2.ReportOutcomeRequest(
        session_id=session, outcome=policy_service_pb2.Outcome(status="ok", values={"text": 1.0})
    )


def _outcomes(channel: grpc.Channel, session: str, count: int) -> None:
    stub = PolicyServiceStub(channel)
    for _ in range(count // 100):
        futures = [stub.ReportOutcome.future(_report(session)) for _ in range(100)]
        for future in futures:
            future.exception()


def _session(target: Target) -> str:
    told = target.send("socket", HELLO, VARIES, OBSERVATION).makefile("rb").readline()
    return str(json.loads(told)["session"])


def _outcomes_repeat(target: Target) -> None:
    """Report 10,000 outcomes of one session, which runs, and of one that there is not."""
    for session in (_session(target), "0" * 32):
        target.call(partial(_outcomes, session=session, count=5_000))


def _outcomes_two(target: Target) -> None:
    """Report outcomes of one session from eight clients at once, while sessions begin and end."""
    session = _session(target)
    report = partial(target.call, partial(_outcomes, session=session, count=1_000))
    together(*[report] * 8, until(_SECONDS, lambda: target.asked("socket", HELLO, VARIES, OBSERVATION)))


def _alias_repeat(target: Target) -> None:
    """Set aliases of a policy again and again, from four clients at once."""
    names = itertools.count()

    def change(channel: grpc.Channel) -> None:
        stub = RepositoryServiceStub(channel)
        for number in itertools.islice(names, 100):
            stub.SetAlias(repository_service_pb2.SetAliasRequest(policy="echo", alias=f"a{number}", version=1))

    together(*[partial(target.call, change)] * 4)


def use(target: Target) -> None:
    """Use the doors as clients do, so that the server has loaded what they need before its memory is measured."""
    if target.authority is not None:
        target.handshake("grpc")
        target.handshake("http")
        return
    for path in _PATHS:
        target.asked("http", _get(path))
    target.call(partial(_outcomes, session=_session(target), count=100))
    target.call(lambda channel: GRPCInferenceServiceStub(channel).ModelInfer(infer_request(8), timeout=20))
    _advised(target, b"\x0a\x01\x01")


CROWD_ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "TLS repeat": _tls_repeat,
        "TLS two at once": _tls_two,
        "socket two at once": _socket_two,
        "mlbridge two at once": _mlbridge_two,
        "inference two at once": _inference_two,
        "publishing repeat": _alias_repeat,
        "replica time": _replica_time,
        "replica repeat": _replica_repeat,
        "replica two at once": _replica_two,
        "page repeat": _page_repeat,
        "page two at once": _page_two,
        "outcomes repeat": _outcomes_repeat,
        "outcomes two at once": _outcomes_two,
    }
)

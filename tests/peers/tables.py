"""The contenders and scenarios beside those of `policybridge bench`."""

from typing import Final

from policybridge_bench.command import SCENARIOS as USERS
from policybridge_bench.contenders.contract import CONTENDERS as OWN
from policybridge_core.plugins import Table

FLOORS: Final = {
    "model": "tests.peers.floors:ModelAlone",
    "socket-echo": "tests.peers.floors:SocketEcho",
    "python-socket-echo": "tests.peers.floors:PythonSocketEcho",
    "grpc-echo": "tests.peers.floors:GrpcEcho",
    "python-grpc-echo": "tests.peers.floors:PythonGrpcEcho",
}
PEERS: Final = {
    "triton": "tests.peers.triton:Triton",
    "triton-python": "tests.peers.triton:TritonPython",
    "kserve": "tests.peers.inference:KServe",
    "mlserver": "tests.peers.inference:MLServer",
    "rayserve": "tests.peers.advice:RayServe",
    "mosec": "tests.peers.mosec:Mosec",
    "compilerinterface": "tests.peers.advice:CompilerInterface",
}
RESTLESS: Final = ("rayserve",)
"""A Ray keeps a core busy even while it is idle."""

SUMMARIES: Final = {
    "peers": "a server under load, with bare echoes and other servers in one interleaved run",
    "unary": "one call for each decision, with Triton's unary calls and a C++ unary echo",
    "session": "sessions, bare echoes and the model alone, and the promised ratios",
    "publish": "publishing alone, and decisions while versions are published",
    "inference": "ModelInfer of the Open Inference Protocol, and Evaluate",
    "mlbridge": "ML-Compiler-Bridge's getAdvice, and Evaluate",
    "overhead": "the time that the harness adds to a bare socket loop",
    "serdes": "encoding and decoding alone",
}

CONTENDERS: Final = Table(kind=OWN.kind, group=OWN.group, own={**OWN.own, **FLOORS, **PEERS})
SCENARIOS: Final = Table(
    kind=USERS.kind,
    group=USERS.group,
    own={
        **USERS.own,
        **{name: f"tests.peers.{name}:run" for name in ("publish", "overhead", "serdes")},
        **{name: f"tests.peers.scenarios:{name}" for name in ("peers", "unary", "session")},
        **{name: f"tests.peers.foreign:{name}" for name in ("inference", "mlbridge")},
    },
)

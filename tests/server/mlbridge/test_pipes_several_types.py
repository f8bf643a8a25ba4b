"""Pipes on which the compiler reads several types of advice in one conversation, as ML-Compiler-Bridge's own test."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.transports.contract import load_transport
from tests.repositories import write_python
from tests.server.mlbridge.pipes_native import NATIVE, built
from tests.server.mlbridge.pipes_server import Kit, PipeServer

ABORTED = -6

# What is sent, what the compiler reads, and what comes back. A vector's reply need not be as long as what was sent.
BYTES = [
    ("int:request_int=11", "int", "12"),
    ("long:request_long=1234567890123", "long", "1234567890124"),
    ("float:request_float=3.25", "float", "4.25"),
    ("double:request_double=0.125", "double", "1.125"),
    ("char:request_char=a", "char", str(ord("b"))),
    ("bool:request_bool=true", "bool", "0"),
    ("vint:request_vec_int=11,22,33", "vint", "12,23,34"),
    ("vlong:request_vec_long=123456789012,222,333", "vlong", "123456789013,223,334"),
    ("vfloat:request_vec_float=1.5,2.5,-3.25", "vfloat", "2.5,3.5,-2.25,0"),
    ("vdouble:request_vec_double=-1.125,4", "vdouble", "-0.125,5"),
]
# The library's JSON has C's int and float alone, unless it is built with others.
JSON = [
    (sent.replace("123456789012", "123456"), asked.replace("long", "int").replace("double", "float"), answer)
    for sent, asked, answer in [(each[0], each[1], each[2].replace("123456789013", "123457")) for each in BYTES]
    if "request_long" not in sent
]

POLICY = """
class Policy:
    def evaluate(self, observation, session):
        ((name, value),) = observation.items()
        if value.size and value.reshape(-1)[0] == 99:
            raise ValueError("99")
        if name == "request_bool":
            return not value[0]
        answer = value + 1
        return [*answer, 0] if name == "request_vec_float" else answer
"""
ADVICE = {
    "request_int": "int", "request_long": "long", "request_float": "float", "request_double": "double",
    "request_char": "char", "request_bool": "bool", "request_vec_int": "int[-1]", "request_vec_long": "long[-1]",
    "request_vec_float": "float[-1]", "request_vec_double": "double[-1]",
}  # fmt: skip
OPTIONS = ",".join(f"advice.{feature}={kind}" for feature, kind in ADVICE.items())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeServer]:
    policies = tmp_path_factory.mktemp("policies")
    write_python(policies, "next", POLICY)
    kit = Kit(built(NATIVE / "pipes_compiler.cpp"), policies)
    real = ",".join(f"features.request_{name}=double" for name in ("float", "double", "vec_float", "vec_double"))
    pipes = [
        f"bytes,policy=next,{OPTIONS}",
        f"json:json,policy=next,{OPTIONS},{real}",
        f"one,policy=next,{OPTIONS},fallback.request_int=-1,fallback.request_vec_int=[-1,-2]",
        "all,policy=next,advice.request_int=int,advice.request_long=long,fallback=-1",
    ]
    with kit.serving(tmp_path_factory.mktemp("pipes"), pipes=pipes) as running:
        yield running


@pytest.mark.parametrize(("form", "asked"), [("bytes", BYTES), ("json", JSON)])
def test_the_features_of_each_message_tell_what_the_compiler_reads(
    server: PipeServer, form: str, asked: list[tuple[str, str, str]]
) -> None:
    with server.compiler(form, form) as asking:
        for _ in range(2):
            assert [asking.ask(f"{sent} -> {kind}") for sent, kind, _ in asked] == [answer for _, _, answer in asked]
        assert asking.end() == 0


def test_each_message_gets_the_fallback_of_its_own_type(server: PipeServer) -> None:
    with server.compiler("one") as asking:
        assert asking.ask("int:request_int=4 -> int") == "5"
        assert asking.ask("int:request_int=99 -> int") == "-1"
        assert asking.ask("vint:request_vec_int=1,2,3 -> vint") == "-1,-2"
        assert asking.ask("int:request_int=4 -> int") == "-1"
        asking.send("long:request_long=4 -> long")
        assert asking.end() == ABORTED


def test_one_fallback_is_written_in_each_type(server: PipeServer) -> None:
    with server.compiler("all") as asking:
        assert asking.ask("long:request_long=99 -> long") == "-1"
        assert asking.ask("int:request_int=4 -> int") == "-1"


@pytest.mark.parametrize("sent", ["int:other=1", "int:request_int=1 int:request_char=1"])
def test_a_message_whose_features_do_not_tell_it_ends_the_compiler(server: PipeServer, sent: str) -> None:
    with server.compiler("one") as asking:
        asking.send(f"{sent} -> int")
        assert asking.end() == ABORTED
    server.wait_for_log("it must have exactly one of request_int, request_long")


def test_a_table_in_the_configuration_says_the_same(tmp_path: Path) -> None:
    table = {"base": str(tmp_path / "mlb"), "policy": "next", "advice": ADVICE, "fallback": {"request_int": -1}}
    assert load_transport("pipe", table).address == f"pipe:{tmp_path}/mlb"


@pytest.mark.parametrize(
    ("pipe", "message"),
    [
        ("BASE,policy=p,advice.x=quad", "unknown element type 'quad'"),
        ("BASE,policy=p,advice.x=int,fallback.y=1", "fallback names y, which the table `advice` does not"),
        ("BASE,policy=p,advice.x=int,advice.y=string,fallback=1", "was given int"),
        ("BASE,policy=p,advice=int,fallback.x=1", "fallback names x"),
        ("BASE,policy=p,advice=int,advice.x=int", "advice.x beside advice=int; one of both is right"),
        ("BASE,policy=p,advice.x=int[2],fallback.x=[1]", "shape [1]"),
    ],
)
def test_a_table_that_cannot_be_served_is_refused_with_the_reason(pipe: str, message: str) -> None:
    with pytest.raises(PolicyBridgeError, match=re.escape(message)):
        load_transport("pipe", pipe)

"""ML-Compiler-Bridge over pipes: a C++ compiler in its manner, and bytes as they were captured from it."""

import re
import resource
import stat
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from policybridge_client.connection import connect
from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.transports.contract import load_transport
from tests.server.mlbridge.pipes_native import NATIVE, built
from tests.server.mlbridge.pipes_server import Kit, PipeServer, resident_bytes, wait_until, write_policies

ABORTED = -6
EXITED = 1

KINDS = [
    ("int", "11", "11"),
    ("long", "1234567890123", "1234567890123"),
    ("float", "3.25", "3.25"),
    ("double", "0.125", "0.125"),
    ("vint", "11,22,33", "11,22,33"),
    ("vlong", "1234567890123,-2", "1234567890123,-2"),
    ("vfloat", "1.5,2,-3.25", "1.5,2,-3.25"),
    ("vdouble", "-1.125,4", "-1.125,4"),
]
"""What is sent as the feature x, and what comes back of a policy that answers x."""

JSON_KINDS = [kind for kind in KINDS if "long" not in kind[0]]
"""The library's JSON has C's int and float alone, unless it is built with others."""


def kind_fields(kind: str) -> str:
    return kind.removeprefix("v") + ("[-1]" if kind.startswith("v") else "")


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Kit:
    return Kit(built(NATIVE / "pipes_compiler.cpp"), write_policies(tmp_path_factory.mktemp("policies")))


@pytest.fixture(scope="module")
def server(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeServer]:
    """One server for all tests that leave it whole."""
    with serving_all(kit, tmp_path_factory) as running:
        yield running


def serving_all(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> AbstractContextManager[PipeServer]:
    pipes = [
        f"{form}-{kind}:{form},policy=same,advice={kind_fields(kind)},features.x=double"
        if form == "json" and ("float" in kind or "double" in kind)
        else f"{form}-{kind}:{form},policy=same,advice={kind_fields(kind)}"
        for form in ("bytes", "json")
        for kind, _, _ in KINDS
    ]
    pipes += [
        "pool,policy=counting,advice=int,count=8",
        "counting,policy=counting,advice=int",
        "counting-json:json,policy=counting,advice=int",
        "char:bytes,policy=same,advice=char",
        "char-json:json,policy=same,advice=char",
        "types:bytes,policy=types,advice=string",
        "types-json:json,policy=types,advice=string",
        "declared:bytes,policy=types,advice=string,features.x=string",
        "boom:bytes,policy=boom,advice=int,fallback=-1",
        "boom-json:json,policy=boom,advice=int,fallback=-1",
        "hard:bytes,policy=boom,advice=int",
        "hard-json:json,policy=boom,advice=int",
        "count:bytes,policy=count,advice=int",
        "count-json:json,policy=count,advice=int",
        "narrow,policy=wide,advice=char,fallback=-1",
        "nobody,policy=nobody,advice=float[2],fallback=[0.5,2]",
        "bool:bytes,policy=same,advice=bool",
        "bool-json:json,policy=same,advice=bool",
        "small:bytes,policy=same,advice=int,fallback=-1",
        "slow:bytes,policy=slow,advice=int,features.x=int,fallback=-1",
    ]
    return kit.serving(tmp_path_factory.mktemp("pipes"), "--max-observation-bytes", 1 << 20, pipes=pipes)


@pytest.mark.parametrize(("kind", "sent", "answered"), KINDS)
def test_every_type_comes_back_over_bytes(server: PipeServer, kind: str, sent: str, answered: str) -> None:
    with server.compiler(f"bytes-{kind}") as asking:
        assert [asking.ask(f"{kind}:x={sent} -> {kind}") for _ in range(3)] == [answered] * 3
        assert asking.end() == 0


@pytest.mark.parametrize(("kind", "sent", "answered"), JSON_KINDS)
def test_every_type_comes_back_over_json(server: PipeServer, kind: str, sent: str, answered: str) -> None:
    with server.compiler(f"json-{kind}", "json") as asking:
        asked = kind.replace("double", "float")
        assert [asking.ask(f"{kind}:x={sent} -> {asked}") for _ in range(3)] == [answered] * 3
        assert asking.end() == 0


@pytest.mark.parametrize("form", ["bytes", "json"])
def test_chars_and_bools_come_back(server: PipeServer, form: str) -> None:
    suffix = "" if form == "bytes" else "-json"
    with server.compiler(f"char{suffix}", form) as asking:
        assert asking.ask("char:x=a -> char") == str(ord("a"))
    with server.compiler(f"bool{suffix}", form) as asking:
        assert [asking.ask(f"bool:x={flag} -> bool") for flag in ("true", "false")] == ["1", "0"]


@pytest.mark.parametrize("form", ["bytes", "json"])
def test_a_vector_may_change_its_length_and_be_empty(server: PipeServer, form: str) -> None:
    with server.compiler(f"{form}-vint", form) as asking:
        assert [asking.ask(f"vint:x={sent} -> vint") for sent in ("1,2", "1,2,3", "4")] == ["1,2", "1,2,3", "4"]
    if form == "bytes":
        with server.compiler("bytes-vfloat") as asking:
            assert [asking.ask(f"vfloat:x={sent} -> vfloat") for sent in ("", "1.5", "")] == ["", "1.5", ""]
    with server.compiler(f"types{'' if form == 'bytes' else '-json'}", form) as asking:
        asked = [asking.ask(f"vint:x={sent} -> string") for sent in ("", "1,2")]
        assert asked == (["int32[0]", "int32[2]"] if form == "bytes" else ["float64[0]", "float64[2]"])


@pytest.mark.parametrize(
    ("feature", "seen"),
    [("int:x=1", "int32[1]"), ("long:x=1", "int64[1]"), ("float:x=1", "float32[1]"), ("double:x=1", "float64[1]"),
     ("bool:x=true", "uint8[1]"), ("char:x=a", "int32[1]"), ("string:x=abc", "uint8[3]")],
)  # fmt: skip
def test_a_policy_sees_the_types_that_the_compiler_writes(server: PipeServer, feature: str, seen: str) -> None:
    with server.compiler("types") as asking:
        assert asking.ask(f"{feature} -> string") == seen


def test_a_type_that_the_operator_declares_goes_before(server: PipeServer) -> None:
    with server.compiler("declared") as asking:
        assert [asking.ask(f"string:x={text} -> string") for text in ("abc", "abcd")] == ["object[1]"] * 2


@pytest.mark.parametrize("form", ["bytes", "json"])
def test_compiles_one_after_another_are_sessions_of_their_own(server: PipeServer, form: str) -> None:
    base = "counting" if form == "bytes" else "counting-json"
    for _ in range(5):
        with server.compiler(base, form) as asking:
            assert [asking.ask("int:x=7 -> int") for _ in range(3)] == ["7", "107", "207"]
            assert asking.end() == 0


def test_compiles_at_once_on_a_pool_have_their_own_answers(server: PipeServer) -> None:
    asking = [server.compiler(f"pool-{index}") for index in range(8)]
    for asked in range(20):
        for index, one in enumerate(asking):
            one.send(f"int:x={index} -> int")
        assert [one.answer() for one in asking] == [str(index + 100 * asked) for index in range(8)]
    assert [one.end() for one in asking] == [0] * 8


def test_a_compile_that_asks_nothing_leaves_the_base_to_the_next(server: PipeServer) -> None:
    for _ in range(3):
        with server.compiler("counting") as asking:
            asking.send("quit")
            assert asking.end() == 0
    with server.compiler("counting") as asking:
        assert asking.ask("int:x=7 -> int") == "7"


def test_what_a_killed_compile_left_behind_never_reaches_the_next(server: PipeServer) -> None:
    path = server.folder / "slow.out"
    before = path.stat().st_ino
    with server.compiler("slow") as asking:
        asking.send("int:x=1 -> int")  # answered a second later
        wait_until(lambda: path.stat().st_ino != before)
        asking.kill()
    with server.compiler("slow") as asking:
        assert [asking.ask(f"int:x={x} -> int") for x in (0, 0)] == ["0", "0"]


def test_half_a_message_costs_nobody_else_anything(server: PipeServer) -> None:
    with server.compiler("pool-1") as other:
        assert other.ask("int:x=1 -> int") == "1"
        for count in range(1, 4):
            with server.compiler("counting") as asking:
                asking.send("half")
                assert asking.end() == 0
            # The pair of FIFOs is the next compile's until the server has read the first bytes of this one.
            server.wait_for_log("counting: the compiler ended within a message", count)
        with server.compiler("counting") as asking:
            assert asking.ask("int:x=7 -> int") == "7"
        assert other.ask("int:x=1 -> int") == "101"


class TestFailures:
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PipeServer]:
        """Serve for this class alone: a log has 20 records of a kind in a minute, and these tests read it."""
        with serving_all(kit, tmp_path_factory) as running:
            yield running

    @pytest.mark.parametrize("form", ["bytes", "json"])
    def test_after_a_failure_the_fallback_answers_the_rest_of_the_compile(self, server: PipeServer, form: str) -> None:
        base = "boom" if form == "bytes" else "boom-json"
        with server.compiler(base, form) as asking:
            assert [asking.ask(f"int:x={x} -> int") for x in (1, 7, 2)] == ["1", "-1", "-1"]
            assert asking.end() == 0
        server.wait_for_log("2 fallbacks")
        with server.compiler(base, form) as asking:
            assert asking.ask("int:x=2 -> int") == "2"
        assert "ZeroDivisionError" in server.log()

    @pytest.mark.parametrize(("form", "status"), [("bytes", ABORTED), ("json", EXITED)])
    def test_without_a_fallback_the_compiler_ends_at_once_and_with_an_error(
        self, server: PipeServer, form: str, status: int
    ) -> None:
        base = "hard" if form == "bytes" else "hard-json"
        for _ in range(2):
            with server.compiler(base, form) as asking:
                assert asking.ask("int:x=1 -> int") == "1"
                asking.send("int:x=7 -> int")
                assert asking.end() == status

    def test_a_policy_that_is_not_there_is_the_fallback_throughout(self, server: PipeServer) -> None:
        with server.compiler("nobody") as asking:
            assert [asking.ask("int:x=1 -> vfloat") for _ in range(2)] == ["0.5,2"] * 2

    def test_advice_that_the_compilers_type_cannot_hold_is_a_failure(self, server: PipeServer) -> None:
        with server.compiler("narrow") as asking:
            assert [asking.ask(f"int:x={x} -> char") for x in (127, 128)] == ["127", "-1"]
        server.wait_for_log("the fallback answers the rest of it: advice: int8_t[1] was given 128, which is out of")

    @pytest.mark.parametrize(
        "message",
        [b"", b"\n", b"garbage", b'{"features":[', b'{"features":[]}', b"\0" * 5000, b'{"features":[{"name":"x"}]}\n\n',
         b'{"features":[{"name":"x","type":"int32_t","port":0,"shape":[2]}]}\n1234567\n',
         b'{"features":[{"name":"x","type":"int32_t","port":0,"shape":[1073741824]}]}\n1234\n',
         b'{"features":[{"name":"x","type":"int32_t","port":0,"shape":[-1]}]}\n1234\n',
         b'{"features":[{"name":"x","type":"float128","port":0,"shape":[1]}]}\n1234\n'],
    )  # fmt: skip
    def test_a_message_that_is_none_is_answered_by_the_fallback(self, server: PipeServer, message: bytes) -> None:
        with server.raw("small") as raw:
            assert raw.exchange(message) == struct.pack("<i", -1)

    def test_a_message_above_the_limit_is_dropped_as_it_comes(self, server: PipeServer) -> None:
        before = resident_bytes(server.process.pid)
        with server.raw("small") as raw:
            size = 200 << 20
            raw.send(size.to_bytes(8, "little"))
            for _ in range(size >> 20):
                raw.send(bytes(1 << 20))
            assert raw.receive(12) == (4).to_bytes(8, "little") + struct.pack("<i", -1)
        assert resident_bytes(server.process.pid) < before + (32 << 20)

    def test_a_lying_length_costs_its_sender_alone(self, server: PipeServer) -> None:
        with server.raw("small") as raw:
            raw.send(b"\xff" * 8 + b"x" * 1000)
            with server.compiler("counting") as asking:
                assert asking.ask("int:x=7 -> int") == "7"
        with server.raw("small") as raw:
            header = b'{"features":[{"name":"x","type":"int32_t","port":6020,"shape":[1]}]}\n'
            assert raw.exchange(header + struct.pack("<i", 5) + b"\n") == struct.pack("<i", 5)

    def test_a_compiler_that_never_reads_costs_one_buffer(self, server: PipeServer) -> None:
        before = resident_bytes(server.process.pid)
        with server.raw("nobody") as raw:
            assert raw.send_until_full(32 << 20) < 4 << 20
        assert resident_bytes(server.process.pid) < before + (16 << 20)


class TestCaptures:
    """Bytes as the library writes and reads them; 6020 is the port that it gives every tensor."""

    def test_bytes(self, server: PipeServer) -> None:
        header = (
            b'{"features":[{"name":"embedding","type":"float","port":6020,"shape":[3]},'
            b'{"name":"count","type":"int32_t","port":6020,"shape":[1]}]}\n'
        )
        payload = b"\0\0\xc0?\0\0\0@\0\0\0\0\3\0\0\0\n"
        with server.raw("count") as raw:
            raw.send(b"\x96\0\0\0\0\0\0\0" + header + payload)
            assert raw.receive(12) == b"\4\0\0\0\0\0\0\0\3\0\0\0"

    def test_json(self, server: PipeServer) -> None:
        with server.raw("count-json") as raw:
            raw.send(b'\x21\0\0\0\0\0\0\0{"count":3,"embedding":[1.5,2,0]}')
            assert raw.receive(18) == b'\x0a\0\0\0\0\0\0\0{"out": 3}'

    @pytest.mark.parametrize(
        ("sent", "answered"),
        [(b"4", b"4.0000000000000009"), (b"0", b"4.9406564584124654e-324"), (b"0.5", b"0.5"), (b"inf", b"1e999"),
         (b"-inf", b"-1e999"), (b"-0", b"4.9406564584124654e-324"), (b"1e300", b"1.0000000000000001e+300"),
         (b"-3", b"-3.0000000000000004")],
    )  # fmt: skip
    def test_a_float_in_json_is_never_integral(self, server: PipeServer, sent: bytes, answered: bytes) -> None:
        with server.raw("json-double") as raw:
            assert raw.exchange(b'{"x":%b}' % sent) == b'{"out": %b}' % answered

    def test_of_a_list_the_first_alone_has_to_have_a_fraction(self, server: PipeServer) -> None:
        with server.raw("json-vfloat") as raw:
            assert raw.exchange(b'{"x":[4,4,inf,-0.5]}') == b'{"out": [4.0000000000000009, 4, 1e999, -0.5]}'

    def test_nan_is_taken(self, server: PipeServer) -> None:
        with server.raw("json-int") as raw:
            assert raw.exchange(b'{"nan inf":[nan,-nan,inf,1],"s":"\\"nan","x":12}') == b'{"out": 12}'


class TestFifos:
    def test_they_are_there_before_the_server_is_ready_and_gone_after_it(self, kit: Kit, tmp_path: Path) -> None:
        with kit.serving(tmp_path, pipes=["mlb,policy=same,advice=int,count=2"]) as running:
            assert running.addresses == [f"pipe:{tmp_path}/mlb-{{0..1}}"]
            for name in ("mlb-0.in", "mlb-0.out", "mlb-1.in", "mlb-1.out"):
                assert stat.S_ISFIFO((tmp_path / name).stat().st_mode)
        assert [path.name for path in tmp_path.iterdir()] == ["serve.log"]

    def test_those_of_a_dead_server_are_taken_over(self, kit: Kit, tmp_path: Path) -> None:
        pipes = ["mlb,policy=same,advice=int"]
        with kit.serving(tmp_path, pipes=pipes) as running:
            running.process.kill()
            running.process.wait()
        assert (tmp_path / "mlb.in").exists()
        with kit.serving(tmp_path, pipes=pipes) as running, running.compiler("mlb") as asking:
            assert asking.ask("int:x=7 -> int") == "7"
        assert not (tmp_path / "mlb.in").exists()

    @pytest.mark.parametrize("in_the_way", ["mlb.in", "mlb.out"])
    def test_a_file_in_their_way_is_an_error_and_stays(self, kit: Kit, tmp_path: Path, in_the_way: str) -> None:
        (tmp_path / in_the_way).write_text("precious")
        said = kit.refused(f"{tmp_path}/mlb,policy=same,advice=int")
        assert f"{in_the_way}: the path exists and is not a FIFO" in said
        assert [path.read_text() for path in tmp_path.iterdir()] == ["precious"]

    def test_those_of_a_living_server_are_not_taken_over(self, kit: Kit, tmp_path: Path) -> None:
        pipe = "mlb,policy=same,advice=int"
        with kit.serving(tmp_path, pipes=[pipe]) as running:
            assert "another server serves it" in kit.refused(f"{tmp_path}/{pipe}")
            with running.compiler("mlb") as asking:
                assert asking.ask("int:x=7 -> int") == "7"

    @pytest.mark.parametrize("first", ["int:x=7 -> int", "quit"])
    def test_without_descriptors_for_the_next_compile_it_waits_until_there_are_some(
        self, kit: Kit, tmp_path: Path, first: str
    ) -> None:
        path = tmp_path / "mlb.in"
        with kit.serving(tmp_path, pipes=["mlb,policy=same,advice=int"]) as running:
            process, descriptors = running.process.pid, resource.RLIMIT_NOFILE
            most, allowed = resource.prlimit(process, descriptors)
            resource.prlimit(process, descriptors, (3, allowed))
            with running.compiler("mlb") as asking:
                asking.send(first)
                if first != "quit":
                    assert asking.answer() == "7"
                wait_until(lambda: not path.exists())
            assert "cannot make the FIFOs for the next compile: [Errno 24]" in running.log()
            resource.prlimit(process, descriptors, (most, allowed))
            wait_until(path.exists)
            with running.compiler("mlb") as asking:
                assert asking.ask("int:x=8 -> int") == "8"

    def test_a_running_compile_may_end_after_sigterm(self, kit: Kit, tmp_path: Path) -> None:
        with kit.serving(tmp_path, pipes=["mlb,policy=same,advice=int"]) as running:
            with running.compiler("mlb") as asking:
                assert asking.ask("int:x=7 -> int") == "7"
                running.process.terminate()
                wait_until(lambda: not (tmp_path / "mlb.in").exists())
                assert asking.ask("int:x=8 -> int") == "8"
                assert asking.end() == 0
            assert running.process.wait(60) == 0

    def test_a_compiler_that_waits_when_the_grace_is_over_does_not_wait_for_ever(
        self, kit: Kit, tmp_path: Path
    ) -> None:
        pipes = ["mlb,policy=slow,advice=int,fallback=-1", "hard,policy=slow,advice=int"]
        with (
            kit.serving(tmp_path, "--grace", 0.1, pipes=pipes) as running,
            running.compiler("mlb") as asking,
            running.compiler("hard") as hard,
        ):
            assert [one.ask("int:x=0 -> int") for one in (asking, hard)] == ["0", "0"]
            for one in (asking, hard):
                one.send("int:x=3 -> int")
            running.process.terminate()
            assert asking.answer() == "-1"
            assert hard.end() == ABORTED


@pytest.mark.parametrize(
    ("pipe", "message"),
    [
        ("BASE", "missing required field `policy`"),
        ("BASE,policy=same", "missing required field `advice`"),
        ("BASE,policy=same,advice=quad", "unknown element type 'quad'; known are int, long, char, float"),
        ("BASE,policy=same,advice=int[2][2]", "advice is a type as int, float[4] or int[-1], not int[2][2]"),
        ("BASE,policy=same,advice=int[-2]", "a dimension is −1"),
        ("BASE,policy=same,advice=int,fallback=0.5", "was given float64 values"),
        ("BASE,policy=same,advice=char,fallback=128", "out of its range"),
        ("BASE,policy=same,advice=int[2],fallback=[1]", "shape [1]"),
        ("BASE:json,policy=same,advice=int[-1],fallback=[]", "an empty list crashes the compiler's JSON reader"),
        ("BASE,policy=same,advice=int,count=0", "`int` >= 1"),
        ("BASE,policy=same,advice=int,colour=red", "unknown field `colour`"),
        ("BASE:xml,policy=same,advice=int", "unknown pipe format 'xml'; there are bytes, json"),
        ("BASE,policy=same,advice=int,features.x=quad", "unknown element type 'quad'"),
    ],
)
def test_a_pipe_that_cannot_be_served_is_refused_with_the_reason(pipe: str, message: str) -> None:
    with pytest.raises(PolicyBridgeError, match=re.escape(message)):
        load_transport("pipe", pipe)


def test_a_folder_that_is_not_there_is_an_error_that_names_it(kit: Kit) -> None:
    said = kit.refused("/nowhere/mlb,policy=same,advice=int")
    assert "/nowhere/mlb" in said
    assert "No such file or directory" in said


def test_a_table_in_the_configuration_says_the_same(kit: Kit, tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f"""
        [[pipe]]
        base = "{tmp_path}/mlb"
        policy = "same@latest"
        advice = "float[-1]"
        format = "json"
        fallback = [0.5]
        features = {{ x = "float" }}
        labels = {{ team = "a" }}
        """)
    with kit.serving(tmp_path, "--config", file) as running, running.compiler("mlb", "json") as asking:
        assert [asking.ask(f"vfloat:x={x} -> vfloat") for x in ("4,2", "0.5")] == ["4,2", "0.5"]


def test_the_ledger_has_the_compiles_and_how_often_the_fallback_answered(kit: Kit, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.db"
    pipe = "mlb,policy=boom,advice=int,fallback=-1,labels.team=a"
    with kit.serving(tmp_path, "--ledger", ledger, pipes=[pipe]) as running:
        for last in (2, 7):
            with running.compiler("mlb") as asking:
                assert [asking.ask(f"int:x={x} -> int") for x in (1, last)] == ["1", "2" if last == 2 else "-1"]
    with LedgerReader(ledger) as reader:
        whole, broken = reader.sessions()
    assert dict(whole.labels) == {"pipe": f"{tmp_path}/mlb", "team": "a"}
    assert (whole.decisions, broken.decisions) == (2, 1)
    assert broken.outcome is not None
    assert broken.outcome.values == {"fallbacks": 1}


def test_a_compile_stays_on_its_version_and_the_next_one_gets_the_newest(kit: Kit, tmp_path: Path) -> None:
    policies = write_policies(tmp_path / "policies")
    serving = Kit(kit.program, policies).serving(tmp_path, pipes=["mlb,policy=version,advice=int"])
    with serving as running, running.compiler("mlb") as asking:
        assert asking.ask("int:x=1 -> int") == "1"
        (policies / "version" / "2").mkdir()
        source = (policies / "version" / "1" / "policy.py").read_text()
        (policies / "version" / "2" / "policy.py").write_text(source)

        def newest() -> str:
            with running.compiler("mlb") as other:
                return other.ask("int:x=1 -> int")

        wait_until(lambda: newest() == "2")
        assert asking.ask("int:x=1 -> int") == "1"


def test_nobody_behind_the_fifos_is_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"mlb\.in within"):
        connect(f"mlbridge-pipe:{tmp_path}/mlb", timeout=0.05).check()

"""What ``[mlbridge]`` takes, and what it refuses when the server starts."""

import asyncio
import subprocess
from contextlib import closing
from pathlib import Path

import grpc
import grpc.aio
import pytest

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.access import Access
from policybridge_server.config import ServerConfig, make_config
from policybridge_server.engine.engine import Engine
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.loop import Loop
from policybridge_server.mlbridge.grpc.service import add_to_server
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import Repository
from policybridge_server.transports.contract import Host
from policybridge_server.transports.running import Running
from tests.conftest import ServerFactory, command
from tests.repositories import answering, write_python
from tests.server.mlbridge.mlbridge_clients import OTHERS, PROTOS, ask, channel, compiled, embedding, serving

SERVED = f'protos = ["{PROTOS}"]\npolicy = "p"\n'
PASSES = '[mlbridge.services."passsequence.PassSequence"]\n'
REGISTERS = '[mlbridge.services."registerallocation.RegisterAllocation"]\n'


def refusal(folder: Path, toml: str) -> str:
    """Add the services of a configuration that cannot be served to a server; give what is said."""
    (folder / "config.toml").write_text(f"[mlbridge]\n{toml}")
    (folder / "repository").mkdir()
    given = {"grpc": ["127.0.0.1:0"], "repository": [str(folder / "repository")]}
    with pytest.raises(PolicyBridgeError) as failure:
        asyncio.run(add_services(make_config(folder / "config.toml", given)))
    return str(failure.value)


async def add_services(config: ServerConfig, server: grpc.aio.Server | None = None) -> None:
    """Add the services of a configuration to a server in this process."""
    engine = Engine(Repository([Path(each) for each in config.repository]), allow_python=False)
    opener = SessionOpener(engine)
    publisher = Publisher(opener, allowed=False, keep_versions=1)
    with closing(publisher), closing(Loop(engine.flush)) as turns:
        add_to_server(server or grpc.aio.server(), Host(opener, publisher, turns, config, Access(config)), Running())


def test_a_server_whose_services_cannot_be_served_does_not_start(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[mlbridge]\nprotos = ["{PROTOS}"]')
    (tmp_path / "repository").mkdir()
    serve = command("serve", "--grpc", "127.0.0.1:0", "--repository", tmp_path / "repository", "--config", config)
    done = subprocess.run(serve, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith(
        "policybridge serve: [mlbridge] everytype.EveryType/askInt32 cannot be served: no policy"
    )


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('policy = "p"', "[mlbridge] needs `protos`"),
        ('protos = ["/nowhere"]', "there is no folder /nowhere"),
        ('descriptors = ["/nowhere.binpb"]', "No such file or directory: '/nowhere.binpb'"),
        (f'descriptors = ["{PROTOS}/every_type.proto"]', "every_type.proto is no descriptor set"),
        (f'protos = ["{PROTOS}"]', "everytype.EveryType/askInt32 cannot be served: no policy answers it"),
        (f'{SERVED}[mlbridge.services."a.B"]', "'a.B' is in none of the sources; there are everytype.EveryType,"),
        (f'{SERVED}[mlbridge.methods."a.B/c"]', "'a.B/c' is in none of the sources"),
        (f"{SERVED}fallback = [1, 2]\n{OTHERS}", "passsequence.PassSequence/getAdvice cannot be served: fallback: "),
        (f"{SERVED}{PASSES}fallback = 0.5", "fallback: the reply's int32_t passsequence.Pass.action cannot hold"),
        (f"{SERVED}{PASSES}fallback = 2147483648", "cannot hold the advice [2147483648]"),
        (f'{SERVED}{PASSES}start = "new"', "start = 'new': passsequence.State has no such field"),
        (f'{SERVED}{PASSES}key = "embedding"', "embedding is not one number or string"),
        (f'{SERVED}{REGISTERS}context = "new"', "registerallocation.Function.new is not a string"),
        (f'{SERVED}{REGISTERS}end = {{ field = "result", equals = "x" }}', "result never equals 'x'"),
        (f'{SERVED}{REGISTERS}start = "registers.id"', "registerallocation.Function.registers is repeated"),
        (f'{SERVED}{PASSES}bind = {{ x = "y" }}', "bind 'x': passsequence.State has no field 'y'"),
        (f'{SERVED}{PASSES}polcy = "p"', "unknown field `polcy`"),
    ],
)
def test_a_configuration_that_cannot_be_served_says_why(tmp_path: Path, toml: str, said: str) -> None:
    assert said in refusal(tmp_path, toml)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("string s = 1; int32 i = 2;", "the client cannot read odd.Reply.s, the first declared field of the reply"),
        ("uint32 u = 1;", "cannot read odd.Reply.u"),
        ("repeated bool b = 1;", "cannot read odd.Reply.b"),
        ("Request r = 1;", "cannot read odd.Reply.r"),
        ("map<int32, int32> m = 1;", "cannot read odd.Reply.m"),
        ("", "odd.Reply, which has none"),
    ],
)
def test_a_method_whose_reply_the_client_cannot_read_is_left_out_and_its_calls_are_told_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reply: str, said: str
) -> None:
    folder = odd(tmp_path, "rpc ask(Request) returns (Reply);", reply)
    toml = f'protos = ["{PROTOS}", "{folder}"]\npolicy = "p"'
    status, details = served_beside(tmp_path, toml, "/odd.Odd/ask")
    assert (status, said in details) == (grpc.StatusCode.UNIMPLEMENTED, True)
    (warning,) = [each.getMessage() for each in caplog.records if "odd.Odd/ask" in each.getMessage()]
    assert said in warning
    assert "`serve = false`" in warning


def served_beside(folder: Path, toml: str, path: str) -> tuple[grpc.StatusCode, str]:
    """Call a method of a server that starts; give how the call ends."""
    (folder / "config.toml").write_text(f"[mlbridge]\n{toml}")
    (folder / "repository").mkdir()
    config = make_config(folder / "config.toml", {"grpc": ["127.0.0.1:0"], "repository": [str(folder / "repository")]})

    async def call() -> tuple[grpc.StatusCode, str]:
        server = grpc.aio.server()
        await add_services(config, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as connection:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await connection.unary_unary(path, None, None)(b"", timeout=60)
        await server.stop(0)
        return failure.value.code(), failure.value.details() or ""

    return asyncio.run(call())


def test_the_first_field_that_is_declared_is_the_reply_whatever_its_number(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    folder = odd(tmp_path, "rpc ask(Request) returns (Reply);", "int32 later = 2; string s = 1;")
    write_python(tmp_path / "repository", "p", answering("5"))
    toml = f'[mlbridge]\nprotos = ["{folder}"]\npolicy = "p"'
    with channel(serving(server_factory, tmp_path / "repository", toml)) as connection:
        assert connection.unary_unary("/odd.Odd/ask", None, None)(b"", timeout=60) == b"\x10\x05"


def odd(folder: Path, methods: str, reply: str) -> Path:
    protos = folder / "protos" / "deeper"
    protos.mkdir(parents=True)
    messages = f"message Request {{ int32 x = 1; }}\nmessage Reply {{ {reply} }}"
    text = f'syntax = "proto3";\npackage odd;\nservice Odd {{ {methods} }}\n{messages}\n'
    (protos / "odd.proto").write_text(text)
    return folder / "protos"


def test_a_proto_file_that_does_not_compile_is_refused_with_the_compilers_words(tmp_path: Path) -> None:
    folder = odd(tmp_path, "rpc ask(Nothing) returns (Reply);", "int32 x = 1;")
    assert 'odd.proto:3:23: "Nothing" is not defined.' in refusal(tmp_path, f'protos = ["{folder}"]')


def test_streaming_methods_are_left_out_with_a_word_in_the_log(
    server_factory: ServerFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    methods = "rpc ask(Request) returns (Reply); rpc flow(stream Request) returns (Reply);"
    folder = odd(tmp_path, methods, "int32 x = 1;")
    write_python(tmp_path / "repository", "p", answering("5"))
    toml = f'[mlbridge]\nprotos = ["{folder}"]\npolicy = "p"'
    with channel(serving(server_factory, tmp_path / "repository", toml)) as connection:
        assert connection.unary_unary("/odd.Odd/ask", None, None)(b"", timeout=60) == b"\x08\x05"
        with pytest.raises(grpc.RpcError) as failure:
            connection.unary_unary("/odd.Odd/flow", None, None)(b"", timeout=60)
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "odd.Odd.flow streams; it is not served" in capfd.readouterr().err


def test_a_service_of_ours_cannot_be_replaced(tmp_path: Path) -> None:
    folder = odd(tmp_path, "rpc ask(Request) returns (Reply);", "int32 x = 1;")
    file = folder / "deeper" / "odd.proto"
    file.write_text(file.read_text().replace("package odd;", "package grpc.health.v1;"))
    assert "grpc.health.v1.Odd is served by PolicyBridge itself" in refusal(tmp_path, f'protos = ["{folder}"]')


def test_two_sources_cannot_have_the_same_service(tmp_path: Path) -> None:
    (tmp_path / "set").write_bytes(compiled(PROTOS).SerializeToString())
    assert "is in another of the sources too" in refusal(tmp_path, f'{SERVED}descriptors = ["{tmp_path}/set"]')


def test_a_descriptor_set_serves_as_the_folder_does(server_factory: ServerFactory, tmp_path: Path) -> None:
    descriptors = compiled(PROTOS)
    # In any order: a file may stand before those that it imports.
    descriptors.file.reverse()
    (tmp_path / "set").write_bytes(descriptors.SerializeToString())
    write_python(tmp_path / "repository", "p", answering("int(observation['embedding'].sum())"))
    toml = f'[mlbridge]\ndescriptors = ["{tmp_path}/set"]\npolicy = "p"\n{OTHERS}'
    with channel(serving(server_factory, tmp_path / "repository", toml)) as connection:
        assert ask(connection, embedding(1, 2)) == 3


def test_a_method_says_first_then_its_service_then_the_rest(server_factory: ServerFactory, tmp_path: Path) -> None:
    for number, name in enumerate(("general", "service", "method")):
        write_python(tmp_path / "repository", name, answering(str(number)))
    toml = f"""
        [mlbridge]
        protos = ["{odd(tmp_path, METHODS, "int32 x = 1;")}", "{PROTOS}"]
        policy = "general"
        [mlbridge.services."odd.Odd"]
        policy = "service"
        [mlbridge.methods."odd.Odd/second"]
        policy = "method@1"
        {OTHERS}
    """
    with channel(serving(server_factory, tmp_path / "repository", toml)) as connection:
        answers = [connection.unary_unary(f"/odd.Odd/{name}", None, None)(b"\x08\x01") for name in ("first", "second")]
        assert answers == [b"\x08\x01", b"\x08\x02"]
        assert ask(connection, embedding(1)) == 0


METHODS = "rpc first(Request) returns (Reply); rpc second(Request) returns (Reply);"


def test_a_policy_that_does_not_fit_is_told_when_the_server_starts(
    server_factory: ServerFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    wants = 'features = [{name = "embedding", type = "float", shape = [300]}]'
    write_python(tmp_path / "repository", "p", answering("1"), wants)
    toml = f'[mlbridge]\n{SERVED}[mlbridge.services."registerallocation.RegisterAllocation"]\nserve = false\n{OTHERS}'
    with channel(serving(server_factory, tmp_path / "repository", toml)) as connection:
        said = "p@1 takes embedding: float[300]; the client sends embedding: float[-1]"
        assert f"passsequence.PassSequence/getAdvice cannot be answered: {said}" in capfd.readouterr().err
        with pytest.raises(grpc.RpcError, match="p@1 takes embedding"):
            ask(connection, embedding(1))

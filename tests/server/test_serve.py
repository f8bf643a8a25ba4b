"""The command ``policybridge serve``: its configuration, its addresses, its refusals."""

import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from policybridge_client.connection import connect
from policybridge_core.errors import PreconditionError, UnavailableError
from policybridge_serdes import ElementType, PolicyReference, SessionOptions, Signature, TensorSpec, pack
from policybridge_server.config import ServerConfig
from policybridge_server.transports.listener import check_port
from tests.conftest import ServerFactory, command, running_server
from tests.repositories import answering, write_python

ECHO = Signature.of([TensorSpec("x", ElementType.INT64)], TensorSpec("advice", ElementType.INT64))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    write_python(folder, "echo", answering("observation['x']"))
    return folder


def ask(address: str, policy: str = "echo", value: int = 7) -> int:
    connection = connect(address, timeout=60)
    try:
        session = connection.open(PolicyReference.parse(policy), ECHO, SessionOptions())
        return int(session.evaluate(pack(ECHO.features, {"x": value}))["advice"].item())
    finally:
        connection.close()


def refusal(*arguments: object) -> str:
    """Run a ``serve`` that must not start; give what it says."""
    result = subprocess.run(command("serve", *arguments), capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    return result.stderr


def test_the_ready_line_names_every_address_as_clients_take_it(repository: Path, tmp_path: Path) -> None:
    listen = [
        "--grpc",
        "127.0.0.1:0",
        "--grpc",
        f"unix:{tmp_path}/g",
        "--socket",
        tmp_path / "a",
        "--socket",
        tmp_path / "b",
    ]
    arguments = command("serve", "--repository", repository, "--allow-python", *listen)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        ready, *addresses = server.stdout.readline().split()
        assert ready == "ready"
        assert addresses[1:] == [f"grpc:unix:{tmp_path}/g", f"socket:{tmp_path}/a", f"socket:{tmp_path}/b"]
        assert [ask(address) for address in addresses] == [7, 7, 7, 7]
        server.terminate()


def test_a_config_file_says_what_the_command_line_leaves_out(repository: Path, tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(
        f'repository = ["{repository}"]\nallow_python = true\nsocket = ["{tmp_path}/file"]\ngrpc = ["127.0.0.1:0"]\n'
    )
    arguments = command("serve", "--config", config, "--socket", tmp_path / "line")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        addresses = server.stdout.readline().split()[1:]
        assert addresses[1:] == [f"socket:{tmp_path}/line"]
        assert ask(addresses[1]) == 7
        server.terminate()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gprc = ['127.0.0.1:0']", "unknown field `gprc`"),
        ("grace = 'long'", "Expected `float`, got `str` - at `$.grace`"),
        ("load_timeout = inf", "Expected `float` <= 1000000000.0 - at `$.load_timeout`"),
        ("max_observation_bytes = 0", "Expected `int` >= 1 - at `$.max_observation_bytes`"),
        ("repository = [", "serve.toml"),
        (f"http_host = {'[' * 5000}{']' * 5000}", "serve.toml: values are nested too deeply in each other"),
    ],
)
def test_a_config_file_that_is_wrong_is_refused_by_its_field(
    repository: Path, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "serve.toml").write_text(text)
    said = refusal("--config", tmp_path / "serve.toml", "--repository", repository, "--socket", tmp_path / "s")
    assert message in said


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--keep-versions", "0", "Expected `int` >= 1 - at `$.keep_versions`"),
        ("--spin", "20000", "Expected `float` <= 10000.0 - at `$.spin`"),
        ("--grace", "long", "argument --grace: invalid float value: 'long'"),
    ],
)
def test_an_option_that_is_wrong_is_refused_by_its_name(
    repository: Path, tmp_path: Path, option: str, value: str, message: str
) -> None:
    assert message in refusal("--repository", repository, "--socket", tmp_path / "s", option, value)


def test_every_key_of_the_file_is_an_option_too_but_for_its_tables() -> None:
    result = subprocess.run(command("serve", "--help"), capture_output=True, text=True, check=True)
    keys = [name for name in ServerConfig.__struct_fields__ if name != "mlbridge"]
    assert [name for name in keys if f"  --{name.replace('_', '-')}" not in result.stdout] == []


def test_help_has_the_options_of_all_keys_in_groups_that_are_sections_of_the_page() -> None:
    shown = subprocess.run(command("serve", "--help"), capture_output=True, text=True, check=True).stdout
    page = (Path(__file__).parents[2] / "docs/configuration.md").read_text()
    grouped = set()
    for title in re.findall(r"^## (\w.*)$", page, re.M):
        described = shown.partition(f"\n{title.lower()}:\n")[2].partition("\n\n")[0]
        options = re.findall(r"^  --([\w-]+)", described, re.M)
        assert options, title
        grouped |= set(options)
    keys = {name.replace("_", "-") for name in ServerConfig.__struct_fields__ if name != "mlbridge"}
    assert keys - grouped == set()
    assert len(grouped) > 50


def test_a_server_without_policies_or_without_an_address_is_refused(repository: Path, tmp_path: Path) -> None:
    assert "give --repository DIR" in refusal("--socket", tmp_path / "s")
    assert "nowhere to listen: give --grpc ADDR" in refusal("--repository", repository)
    assert "is not a folder" in refusal("--repository", tmp_path / "none", "--socket", tmp_path / "s")


@pytest.mark.parametrize("option", ["--grpc", "--grpcio", "--http"])
def test_an_address_that_is_none_is_refused_with_a_sentence(repository: Path, option: str) -> None:
    said = refusal("--repository", repository, "--allow-python", option, "127.0.0.1:99999")
    assert said == (
        "policybridge serve: cannot listen on '127.0.0.1:99999': an address is HOST:PORT with a port of 0 to 65535, "
        "as in 127.0.0.1:50051\n"
    )


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.0.0.1:", ":50051", "127.0.0.1:x", "127.0.0.1:-1", "h:" + "9" * 9999]
)
def test_an_address_without_a_host_or_a_port_is_refused_with_what_is_right(address: str) -> None:
    with pytest.raises(UnavailableError, match=r"an address is HOST:PORT with a port of 0 to 65535"):
        check_port(address)


def test_a_standard_output_and_a_ledger_that_are_full_end_the_server_with_a_sentence(
    repository: Path, tmp_path: Path
) -> None:
    serve = command("serve", "--repository", repository, "--allow-python", "--socket", tmp_path / "s")
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(serve, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (
        2,
        "policybridge serve: standard output cannot be written: No space left on device\n",
    )
    # Files may have no more than a few blocks, as on a disk that is full.
    limited = ["sh", "-c", 'ulimit -f 4; exec "$@"', "sh", *serve, "--ledger", str(tmp_path / "runs.db")]
    result = subprocess.run(limited, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"policybridge serve: the ledger {tmp_path}/runs.db cannot be used: ")
    assert "Traceback" not in result.stderr


def test_an_address_that_is_taken_is_refused_by_its_name(repository: Path, server_factory: ServerFactory) -> None:
    server = server_factory(repository)
    port, path = server.grpc.removeprefix("grpc:"), server.socket.removeprefix("socket:")
    assert port in refusal("--repository", repository, "--grpc", port)
    assert f"cannot listen on {path}: Address already in use" in refusal("--repository", repository, "--socket", path)
    assert ask(server.socket) == 7


def test_python_policies_run_only_when_the_operator_allows_them(repository: Path, tmp_path: Path) -> None:
    arguments = command("serve", "--repository", repository, "--socket", tmp_path / "s")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        (address,) = server.stdout.readline().split()[1:]
        with pytest.raises(PreconditionError, match="the operator allows it with --allow-python"):
            ask(address)
        server.terminate()
        assert server.stderr is not None
        assert "policy echo is not served" in server.stderr.read()


def test_two_repositories_may_be_served_but_not_two_policies_of_one_name(repository: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_python(other, "seven", answering("7"))
    with running_server(repository, tmp_path, "--repository", other) as server:
        assert (ask(server.socket, "seven", 1), ask(server.socket, "echo", 1)) == (7, 1)
    write_python(other, "echo", answering("8"))
    said = refusal("--repository", repository, "--repository", other, "--socket", tmp_path / "t")
    assert "two repositories hold a policy 'echo'" in said


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("aliases = {latest = 1}", "aliases: `latest` names the newest version by itself"),
        ("aliases = {7 = 1}", "aliases: '7' is no alias"),
        ('colour = "blue"', "Object contains unknown field `colour`"),
        ("decision_timeout = inf", r"Expected `float` <= 1000000000\.0 - at `\$\.decision_timeout`"),
    ],
)
def test_a_policy_toml_that_is_wrong_costs_only_its_own_policy(
    repository: Path, tmp_path: Path, line: str, message: str
) -> None:
    (repository / "bad").mkdir()
    (repository / "bad" / "policy.toml").write_text(f'backend = "onnx"\n{line}\n')
    with running_server(repository, tmp_path) as server:
        with pytest.raises(PreconditionError, match=rf"\.\.\./policy\.toml: {message}"):
            ask(server.socket, "bad")
        assert ask(server.socket) == 7


def test_a_missing_extra_is_named_with_the_command_that_installs_it(tmp_path: Path) -> None:
    (tmp_path / "net" / "1").mkdir(parents=True)
    (tmp_path / "net" / "policy.toml").write_text('backend = "onnx"\n')
    hide = (
        "import sys; sys.modules['onnxruntime'] = None; from policybridge_server.backends.contract import load_backend"
    )
    script = f"{hide}; load_backend('onnx')"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "needs the Python package 'onnxruntime': pip install 'policybridge[onnx]'" in result.stderr


STAYING = {
    "thread": """
        import threading
        import time
        threading.Thread(target=time.sleep, args=(1000,), name="their-own", daemon=False).start()
    """,
    "atexit": """
        import atexit
        import time
        atexit.register(time.sleep, 1000)
    """,
}


@pytest.mark.parametrize(
    ("kind", "told"), [("thread", "threads (their-own) still run"), ("atexit", "gave to atexit still runs")]
)
def test_what_a_policy_leaves_running_does_not_keep_a_drained_server_alive(
    tmp_path: Path, kind: str, told: str
) -> None:
    write_python(tmp_path / "policies", "staying", dedent(STAYING[kind]) + answering("observation['x']"))
    words = ["serve", "--repository", tmp_path / "policies", "--allow-python", "--ledger", tmp_path / "ledger"]
    with subprocess.Popen(
        command(*words, "--socket", tmp_path / "s"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline().startswith("ready")
            assert ask(f"socket:{tmp_path / 's'}", "staying") == 7
            server.terminate()
            said = server.communicate(timeout=100)[1]
        finally:
            server.kill()
    assert server.returncode == 0
    assert told in said

"""What clients are told holds no absolute path of the server's machine, whatever door they use."""

import http.client
import json
import socket
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2 as pb  # type: ignore[import-untyped]
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge_client.policies import RepositoryClient
from policybridge_core.text import without_paths
from tests.repositories import answering, write_python
from tests.server.access.doors import GRPC, opened


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/usr/lib/policies/mine/policy.py cannot be imported", ".../policy.py cannot be imported"),
        ("FileNotFoundError(2, 'No such file: \"/tmp/a b/c\"')", "FileNotFoundError(2, 'No such file: \".../a b/c\"')"),
        ("[Errno 2] No such file: '/usr/x/data.bin'", "[Errno 2] No such file: '.../data.bin'"),
        ("file:///usr/x/data.bin,/tmp/y/z", "file://.../data.bin,.../z"),
        ("there is no method /policybridge.v1.PolicyService/Later", None),
        ("GET /v2/models/one: Not Found", None),
        ("a/usr/b and ../usr/b and usr/b/c and 1 / 2 / 3", None),
    ],
)
def test_folders_of_absolute_paths_are_replaced_and_what_looks_like_them_stays(text: str, told: str | None) -> None:
    assert without_paths(text) == (told or text)


ADVICE = 'advice = { name = "y", type = "int64_t", shape = [1] }\n'


def test_no_door_tells_a_client_where_files_lie(tmp_path: Path) -> None:
    secret = tmp_path / "secret-folder"
    write_python(secret / "policies", "broken", "import nothing_of_that_name\n")
    write_python(secret / "policies", "late", answering(f"open('{secret}/x/y')"), ADVICE)
    (secret / "policies" / "odd").mkdir()
    (secret / "policies" / "odd" / "policy.toml").write_text("backend = 1\n")
    with opened(secret, "--socket", tmp_path / "s", doors=("grpc", "grpcio", "http")) as doors:
        said = [_on_socket(tmp_path / "s", name) for name in ("broken", "odd")]
        said += [_over_http(doors.addresses["http"], name) for name in ("broken", "late", "odd")]
        for door in GRPC:
            said += [_over_grpc(doors.addresses[door], name) for name in ("broken", "late", "odd")]
            said += _listed(doors.addresses[door])
    assert [each for each in said if "..." not in each] == []
    assert [each for each in said if "secret-folder" in each] == []


def _on_socket(path: Path, name: str) -> str:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(json.dumps({"policybridge": 1, "policy": name}).encode() + b"\n")
        return client.makefile().readline()


def _over_http(address: str, name: str) -> str:
    body = {"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("POST", f"/v2/models/{name}/infer", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse().read().decode()
    connection.close()
    return answer


def _over_grpc(address: str, name: str) -> str:
    given = pb.ModelInferRequest.InferInputTensor(name="x", shape=[1], datatype="INT64")
    given.contents.int64_contents.append(1)
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as failure:
        GRPCInferenceServiceStub(channel).ModelInfer(pb.ModelInferRequest(model_name=name, inputs=[given]), timeout=60)
    return f"{failure.value.details()} {failure.value.trailing_metadata()}"


def _listed(address: str) -> list[str]:
    client = RepositoryClient(address)
    try:
        return [policy.error for policy in client.policies() if policy.error]
    finally:
        client.close()

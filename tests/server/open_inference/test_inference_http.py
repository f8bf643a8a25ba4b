"""The Open Inference Protocol over HTTP, as curl speaks it."""

import json
import select
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import tritonclient.grpc as triton  # type: ignore[import-untyped]
from hypothesis import given, settings
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

from tests.conftest import command
from tests.server.open_inference.inference_policies import KINDS, NUMBERS, write_policies, x
from tests.serving import serving

Call = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = tmp_path_factory.mktemp("repository")
    write_policies(repository)
    arguments = ("--repository", repository, "--allow-python", "--max-message-bytes", 3_000_000)
    with serving(*arguments, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0") as (_, served):
        yield served


@pytest.fixture(scope="module")
def address(addresses: str) -> str:
    return next(each for each in addresses.split() if each.startswith("http:")).replace("http:", "http://", 1)


@pytest.fixture(scope="module")
def grpc(addresses: str) -> Iterator[triton.InferenceServerClient]:
    address = next(each for each in addresses.split() if each.startswith("grpc:"))
    with triton.InferenceServerClient(address.removeprefix("grpc:")) as client:
        yield client


@pytest.fixture(scope="module")
def call(address: str) -> Call:
    def made(path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(address + path, data, {"Content-Type": "application/json", **headers})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    return made


def infer(call: Call, policy: str, data: object, datatype: str = "INT64", shape: object = (1,), **more: object) -> Any:
    """Ask; give the reply, which must be one."""
    status, reply = call(f"/v2/models/{policy}/infer", body(data, datatype, shape, **more))
    assert status == 200, reply
    return reply


def body(data: object, datatype: str = "INT64", shape: object = (1,), **more: object) -> dict[str, object]:
    return {"inputs": [{"name": "x", "shape": shape, "datatype": datatype, "data": data}], **more}


def test_server_and_models_tell_how_they_are(call: Call) -> None:
    assert call("/v2")[1]["name"] == "policybridge"
    assert call("/v2/health/live") == (200, {"live": True})
    assert call("/v2/health/ready") == (200, {"ready": True})
    assert call("/v2/models/versions/ready") == (200, {"name": "versions", "ready": True})
    assert call("/v2/models/versions/versions/1/ready")[0] == 200
    assert call("/v2/models/versions/versions/7/ready") == (503, {"name": "versions", "ready": False})


def test_metadata_names_inputs_outputs_and_versions(call: Call) -> None:
    assert call("/v2/models/versions") == (
        200,
        {
            "name": "versions",
            "versions": ["1", "2"],
            "platform": "python",
            "inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 1]}],
            "outputs": [{"name": "y", "datatype": "INT64", "shape": [-1, 1]}],
        },
    )


def test_a_request_is_answered_by_the_version_that_it_names(call: Call) -> None:
    assert infer(call, "versions", [5], id="mine") == {
        "model_name": "versions",
        "model_version": "2",
        "id": "mine",
        "outputs": [{"name": "y", "datatype": "INT64", "shape": [1], "data": [2]}],
    }
    assert infer(call, "versions/versions/1", [5])["model_version"] == "1"


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_every_type_come_back(call: Call, kind: str) -> None:
    values = [True, False] if kind == "bool" else [0, 100]
    (output,) = infer(call, f"echo-{kind}", values, KINDS[kind], [2])["outputs"]
    assert (output["datatype"], output["data"]) == (KINDS[kind], values)


def test_the_largest_numbers_are_exact(call: Call) -> None:
    assert infer(call, "echo-uint64_t", [2**64 - 1, 1], "UINT64", [2])["outputs"][0]["data"] == [2**64 - 1, 1]
    assert infer(call, "echo-int64_t", [-(2**63), 2**63 - 1], "INT64", [2])["outputs"][0]["data"][0] == -(2**63)


def test_texts_come_back(call: Call) -> None:
    assert infer(call, "echo-string", ["", "größer"], "BYTES", [2])["outputs"][0]["data"] == ["", "größer"]


def test_data_may_be_flat_or_nested_and_a_batch(call: Call) -> None:
    for data in ([1, 2, 3], [[1], [2], [3]]):
        (output,) = infer(call, "counts", data, shape=[3, 1])["outputs"]
        assert (output["shape"], output["data"]) == ([3, 3], [1, 1, 1, 1, 2, 1, 1, 3, 1])


def test_a_sequence_is_a_session(call: Call) -> None:
    def ask(**parameters: object) -> tuple[list[int], str]:
        reply = infer(call, "counts", [7], parameters={"sequence_id": 3, **parameters})
        return reply["outputs"][0]["data"], reply["parameters"]["session_id"]

    first, session = ask(sequence_start=True)
    assert first == [1, 7, 1]
    assert ask() == ([2, 7, 1], session)
    assert ask(sequence_end=True) == ([3, 7, 1], session)


def test_a_policy_that_declares_nothing_answers_what_the_request_declares(call: Call) -> None:
    advice = {"advice": '{"name":"total","type":"int64_t","shape":[1]}', "add": 36}
    assert infer(call, "free", [1, 2, 3], shape=[3], parameters=advice)["outputs"][0]["data"] == [42]


@pytest.mark.parametrize(
    ("path", "sent", "status", "message"),
    [
        ("/v2/models/nothing", None, 404, "no policy 'nothing'"),
        ("/v2/models/nothing/infer", body([1]), 404, "no policy 'nothing'"),
        ("/v2/models/counts/infer", b"{", 400, "not an inference request"),
        ("/v2/models/counts/infer", {"inputs": [{"name": "x"}]}, 400, "missing required field"),
        ("/v2/models/counts/infer", body([1], "INT63"), 400, "unknown datatype 'INT63'"),
        ("/v2/models/counts/infer", body([1, 2]), 400, "takes 8 bytes; 16 came"),
        ("/v2/models/counts/infer", body([[1], [2, 3]], shape=[2, 1]), 400, "no tensor"),
        ("/v2/models/counts/infer", body([1.5]), 400, "was given float64 values"),
        ("/v2/models/counts/infer", body(["a"]), 400, "was given"),
        ("/v2/models/counts/infer", body([1], shape=[2**70]), 400, "x: "),
        ("/v2/models/counts/infer", body([1], parameters={"sequence_id": 2**70}), 400, "out of the range"),
        ("/v2/models/lengths/infer", body([1, 2], "BYTES", [2]), 400, "BYTES are strings in JSON"),
        ("/v2/models/counts/infer", body([-1]), 500, "x is negative"),
        ("/v2/models/counts/infer", b" " * 4_000_000, 413, "bytes of JSON; at most"),
        ("/v2/nothing", None, 404, "Not Found"),
    ],
)
def test_an_error_is_a_status_and_says_why(call: Call, path: str, sent: object, status: int, message: str) -> None:
    found, reply = call(path, sent)
    assert (found, list(reply)) == (status, ["error"])
    assert message in reply["error"]


NUMBERS_OF_ALL_SORTS = st.one_of(st.integers(-3, 3), st.integers(), st.floats(allow_nan=False, allow_infinity=False))
DATA = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS_OF_ALL_SORTS, st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=8,
)
BODIES = st.fixed_dictionaries(
    {
        "inputs": st.lists(
            st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["x", "y", ""]),
                    "shape": st.lists(st.one_of(st.integers(0, 3), st.integers()), max_size=4),
                    "datatype": st.sampled_from([*KINDS.values(), "FP16"]),
                    "data": st.one_of(st.lists(NUMBERS_OF_ALL_SORTS, max_size=3), st.lists(DATA, max_size=3), DATA),
                }
            ),
            max_size=2,
        )
    },
    optional={
        "id": st.text(max_size=2),
        "parameters": st.dictionaries(st.sampled_from(["sequence_id", "advice", "a"]), DATA, max_size=2),
        "outputs": st.lists(st.fixed_dictionaries({"name": st.sampled_from(["y", "z"])}), max_size=2),
    },
)


@settings(max_examples=300, deadline=None)
@given(policy=st.sampled_from(["counts", "rows", "free", "lengths", "echo-bool", "echo-uint64_t"]), sent=BODIES)
def test_a_body_of_any_fields_gets_an_answer_or_a_clear_error(call: Call, policy: str, sent: object) -> None:
    status, reply = call(f"/v2/models/{policy}/infer", sent)
    assert status in (200, 400, 413) or "the policy failed" in reply["error"]


def test_deep_nesting_is_refused(call: Call) -> None:
    nested = b"[" * 5000 + b"]" * 5000
    sent = b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":' + nested + b"}]}"
    assert call("/v2/models/counts/infer", sent)[0] == 400


HEADER = "Inference-Header-Content-Length"


def binary(size: object, **more: object) -> bytes:
    """Give the JSON of a request whose input `x` is told to be `size` bytes behind it."""
    given = {"name": "x", "shape": [1], "datatype": "INT64", "parameters": {"binary_data_size": size}, **more}
    return json.dumps({"inputs": [given]}).encode()


@pytest.mark.parametrize(
    ("sent", "length", "message"),
    [
        (binary(8), "9999", "says 9999 bytes of JSON; the body has"),
        (binary(8), "-1", "is one number"),
        (binary(8), "1e3", "is one number"),
        (binary(8), "9" * 5000, "is one number"),
        (binary(8) + bytes(7), None, "binary_data_size is 8; 7 bytes are left"),
        (binary(2**62) + bytes(8), None, "8 bytes are left"),
        (binary(-8) + bytes(8), None, "is a number of bytes, not -8"),
        (binary(2**70) + bytes(8), None, "8 bytes are left"),
        (binary("8") + bytes(8), None, "is a number of bytes, not '8'"),
        (binary(True) + bytes(8), None, "is a number of bytes, not True"),
        (binary(8) + bytes(9), None, "1 bytes after the JSON belong to no input"),
        (binary(4) + bytes(4), None, "takes 8 bytes; 4 came"),
        (binary(8, data=[1]) + bytes(8), None, "`data` beside `binary_data_size`"),
        (binary(8, shape=[2**40]) + bytes(8), None, "a batch of 1099511627776"),
        (binary(8, shape=[-1]) + bytes(8), None, "no tensor has the shape"),
        (binary(8, datatype="FP16") + bytes(8), None, "unknown datatype 'FP16'"),
        (binary(8)[:20], "20", "not an inference request"),
    ],
)
def test_a_lying_length_of_a_binary_tensor_is_refused_in_words(
    call: Call, sent: bytes, length: str | None, message: str
) -> None:
    head = str(sent.rindex(b"}") + 1) if length is None else length
    status, reply = call("/v2/models/counts/infer", sent, **{HEADER: head})
    assert (status, message in reply["error"]) == (400, True), reply


def test_a_body_without_json_is_not_implemented(call: Call) -> None:
    status, reply = call("/v2/models/counts/infer", bytes(8), **{HEADER: "0"})
    assert (status, "without JSON" in reply["error"]) == (501, True)


def test_json_beyond_a_mebibyte_is_refused_and_the_cure_is_named(call: Call) -> None:
    sent = json.dumps(body([1.5] * 300_000, "FP64", [300_000])).encode()
    status, reply = call("/v2/models/counts/infer", sent)
    assert (status, "binary_data_size" in reply["error"]) == (413, True)


def test_a_body_without_tensors_in_binary_is_refused_before_it_is_read(address: str) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(b"POST /v2/models/counts/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_bodies_that_are_not_answered_are_held_up_to_a_bound(address: str, call: Call) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    head = f"POST /v2/models/counts/infer HTTP/1.1\r\nHost: localhost\r\n{HEADER}: 9\r\nContent-Length: 2999999\r\n\r\n"
    with ExitStack() as clients:
        held = [clients.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(3)]
        for client in held:
            client.sendall(head.encode() + bytes(2_500_000))
        # The limit is twice that of one body, so that one of the three is refused; all memory is given back after it.
        readable, _, _ = select.select(held, [], [], 60)
        assert readable[0].recv(100).startswith(b"HTTP/1.1 503 ")
    assert infer(call, "counts", [5])["outputs"][0]["data"] == [1, 5, 1]


def test_too_many_parameters_are_refused_in_the_same_words(call: Call, grpc: triton.InferenceServerClient) -> None:
    many = {f"p{number}": number for number in range(1001)}
    with pytest.raises(InferenceServerException, match="at most 1000 are possible") as refused:
        grpc.infer("counts", x(1), parameters=many)
    status, reply = call("/v2/models/counts/infer", body([1], parameters=many))
    assert (status, reply["error"]) == (400, refused.value.message())


@pytest.mark.parametrize("key", ["classification", "shared_memory_region"])
def test_what_grpc_refuses_is_refused_in_the_same_words(
    call: Call, grpc: triton.InferenceServerClient, key: str
) -> None:
    asked = triton.InferRequestedOutput("y")
    asked._get_tensor().parameters[key].int64_param = 2
    with pytest.raises(InferenceServerException) as refused:
        grpc.infer("counts", x(1), outputs=[asked])
    outputs = [{"name": "y", "parameters": {key: 2}}]
    status, reply = call("/v2/models/counts/infer", body([1], outputs=outputs))
    assert (status, reply["error"]) == (501, refused.value.message())


def test_an_input_in_shared_memory_is_refused_in_the_same_words(call: Call, grpc: triton.InferenceServerClient) -> None:
    shared = triton.InferInput("x", [1], "INT64")
    shared.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException) as refused:
        grpc.infer("counts", [shared])
    given = {"name": "x", "shape": [1], "datatype": "INT64", "parameters": {"shared_memory_region": "region"}}
    status, reply = call("/v2/models/counts/infer", {"inputs": [given]})
    assert (status, reply["error"]) == (501, refused.value.message())


@pytest.mark.parametrize("path", ["systemsharedmemory/status", "cudasharedmemory/region/r/register", "trace/setting"])
def test_extensions_that_are_not_served_say_so(call: Call, path: str) -> None:
    status, reply = call(f"/v2/{path}")
    assert (status, f"/v2/{path}: this server has no" in reply["error"]) == (501, True)


def test_numbers_that_json_has_no_word_for_come_and_go_as_javascript_writes_them(call: Call) -> None:
    sent = b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[Infinity,-Infinity]}]}'
    status, reply = call("/v2/models/echo-float/infer", sent)
    assert (status, reply["outputs"][0]["data"]) == (200, [float("inf"), -float("inf")])


@pytest.mark.parametrize("text", [b'{"id":"\\ud800","inputs":[]}', b'{"parameters":{"\\udc00":1},"inputs":[]}'])
def test_half_a_surrogate_pair_is_refused(call: Call, text: bytes) -> None:
    assert call("/v2/models/free/infer", text)[0] == 400


def test_the_index_has_only_what_can_be_served_if_that_is_asked(call: Call, grpc: triton.InferenceServerClient) -> None:
    def over_http(**asked: bool) -> set[tuple[str, str]]:
        status, models = call("/v2/repository/index", asked)
        assert status == 200
        return {(model["name"], model.get("version", "")) for model in models}

    def over_grpc(**asked: bool) -> set[tuple[str, str]]:
        models = grpc._client_stub.RepositoryIndex(triton.service_pb2.RepositoryIndexRequest(**asked)).models
        return {(model.name, model.version) for model in models}

    for index in (over_http, over_grpc):
        assert ("broken", "1") in index()
        assert index() - index(ready=True) == {("broken", "1")}


def test_a_policy_is_loaded_and_never_unloaded(call: Call) -> None:
    assert call("/v2/repository/models/versions/load", {})[0] == 200
    assert call("/v2/repository/models/nothing/load", {})[0] == 404
    assert call("/v2/repository/models/versions/unload", {})[0] == 501
    assert call("/v2/models/versions/ready")[0] == 200


def test_an_address_that_somebody_has_is_an_error(address: str, tmp_path: Path) -> None:
    where = address.removeprefix("http://")
    failed = subprocess.run(
        command("serve", "--repository", tmp_path, "--http", where), capture_output=True, text=True, check=False
    )
    assert failed.returncode == 2
    assert f"cannot listen on {where}" in failed.stderr

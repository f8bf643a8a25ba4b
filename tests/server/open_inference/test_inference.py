"""The Open Inference Protocol as an unmodified `tritonclient.grpc` speaks it: observations without a session."""

import asyncio
import queue
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton  # type: ignore[import-untyped]
from tritonclient.grpc import aio
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

from policybridge_bench.network import FEATURES, SIGNATURE, observations
from policybridge_client.connection import connect
from policybridge_serdes import PolicyReference, SessionOptions, pack
from tests.conftest import RunningServer, running_server
from tests.server.open_inference.inference_policies import KINDS, NUMBERS, tensor, write_policies, x

ADVICE = {"advice": '{"name":"total","type":"int64_t","shape":[1]}'}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    repository = tmp_path_factory.mktemp("repository")
    write_policies(repository)
    with TemporaryDirectory(prefix="pb-") as folder, running_server(repository, Path(folder)) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(server.grpc.removeprefix("grpc:")) as made:
        yield made


def named_inputs(rows: np.ndarray) -> list[triton.InferInput]:
    """Make the 38 inputs of a batch."""
    return [tensor(name, rows[:, index : index + 1]) for index, name in enumerate(FEATURES)]


def own_advice(server: RunningServer, rows: np.ndarray) -> list[int]:
    """Ask by our own client."""
    session = connect(server.socket, timeout=60).open(PolicyReference("named"), SIGNATURE, SessionOptions())
    packed = [pack(SIGNATURE.features, dict(zip(FEATURES, row, strict=True))) for row in rows]
    advice = [int(session.evaluate(values)["inlining_decision"].item()) for values in packed]
    session.close()
    return advice


def test_server_and_models_are_live_and_ready(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("named")
    assert client.is_model_ready("versions", "1")
    assert client.is_model_ready("versions", "old")


@pytest.mark.parametrize(("name", "version"), [("nothing", ""), ("versions", "7"), ("versions", "new"), ("broken", "")])
def test_what_would_not_answer_is_not_ready(client: triton.InferenceServerClient, name: str, version: str) -> None:
    assert not client.is_model_ready(name, version)


def test_the_server_says_what_it_is_and_which_extensions_it_has(client: triton.InferenceServerClient) -> None:
    metadata = client.get_server_metadata(as_json=True)
    assert metadata["name"] == "policybridge"
    assert metadata["extensions"] == ["model_configuration", "model_repository", "parameters", "sequence", "statistics"]


def test_metadata_names_a_policys_inputs_outputs_and_versions(client: triton.InferenceServerClient) -> None:
    metadata = client.get_model_metadata("named", as_json=True)
    assert [given["name"] for given in metadata["inputs"]] == FEATURES
    assert metadata["inputs"][0] == {"name": "f0", "datatype": "INT64", "shape": ["-1", "1"]}
    assert metadata["outputs"] == [{"name": "inlining_decision", "datatype": "INT64", "shape": ["-1", "1"]}]
    assert client.get_model_metadata("versions").versions == ["1", "2"]


def test_the_configuration_says_the_same_and_how_large_a_batch_may_be(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config("rows").config
    assert (config.name, config.backend, config.max_batch_size) == ("rows", "python", 256)
    assert [(given.name, list(given.dims)) for given in config.input] == [("x", [-1, 2])]
    assert [(made.name, list(made.dims)) for made in config.output] == [("y", [-1])]
    assert config.parameters["digest"].string_value.startswith("sha256:")
    assert client.get_model_config("free").config.max_batch_size == 0


def test_a_batch_gets_the_advice_that_our_own_client_gets(
    client: triton.InferenceServerClient, server: RunningServer
) -> None:
    rows = observations(64)
    advice = client.infer("named", named_inputs(rows)).as_numpy("inlining_decision")
    assert advice.shape == (64, 1)
    assert set(advice.ravel()) == {0, 1}
    assert advice.ravel().tolist() == own_advice(server, rows)


def test_asynchronous_calls_get_it_too(client: triton.InferenceServerClient, server: RunningServer) -> None:
    rows, answers = observations(16), queue.SimpleQueue[tuple[Any, Any]]()
    for number in range(16):
        inputs = named_inputs(rows[number : number + 1])
        client.async_infer("named", inputs, lambda result, error: answers.put((result, error)), request_id=str(number))
    got = {}
    for _ in range(16):
        result, error = answers.get(timeout=60)
        assert error is None
        got[int(result.get_response().id)] = result.as_numpy("inlining_decision").item()
    assert [got[number] for number in range(16)] == own_advice(server, rows)


def test_the_client_for_asyncio_gets_it_too(server: RunningServer) -> None:
    rows = observations(8)

    async def ask() -> list[int]:
        async def requests() -> AsyncIterator[dict[str, Any]]:
            for row in rows[4:]:
                yield {"model_name": "named", "inputs": named_inputs(row[np.newaxis])}

        async with aio.InferenceServerClient(server.grpc.removeprefix("grpc:")) as client:
            results = await asyncio.gather(*(client.infer("named", named_inputs(row[np.newaxis])) for row in rows[:4]))
            async for result, error in client.stream_infer(requests()):
                assert error is None
                results.append(result)
        return [result.as_numpy("inlining_decision").item() for result in results]

    assert asyncio.run(ask()) == own_advice(server, rows)


def test_a_reply_names_the_request_the_model_and_the_version_that_answered(
    client: triton.InferenceServerClient,
) -> None:
    reply = client.infer("versions", x(5), request_id="mine").get_response()
    assert (reply.id, reply.model_name, reply.model_version) == ("mine", "versions", "2")
    assert client.infer("versions", x(5), model_version="1").get_response().model_version == "1"
    assert client.infer("versions", x(5), model_version="old").as_numpy("y").tolist() == [1]


@pytest.mark.parametrize(
    ("shape", "answer"), [((1,), (3,)), ((4, 1), (4, 3)), ((1, 1), (1, 3)), ((4,), (4, 3)), ((), (3,))]
)
def test_a_leading_dimension_beyond_the_policys_shape_is_a_batch(
    client: triton.InferenceServerClient, shape: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int64).reshape(shape)
    assert client.infer("counts", [tensor("x", array)]).as_numpy("y").shape == answer


def test_observations_of_a_batch_know_nothing_of_each_other(client: triton.InferenceServerClient) -> None:
    asked = client.infer("counts", [tensor("x", np.arange(5).reshape(5, 1))]).as_numpy("y")
    assert asked.tolist() == [[1, number, 1] for number in range(5)]


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_every_type_travel_bit_for_bit(client: triton.InferenceServerClient, kind: str) -> None:
    dtype = np.dtype("?" if kind == "bool" else {"float": "f4", "double": "f8"}.get(kind, kind.removesuffix("_t")))
    values = np.array([[0, 1], [1, 0]]) if kind == "bool" else np.array([[0, 1], [3, 100]])
    result = client.infer(f"echo-{kind}", [tensor("x", values.astype(dtype))])
    assert result.get_output("y").datatype == KINDS[kind]
    assert result.as_numpy("y").dtype == dtype
    assert result.as_numpy("y").tolist() == values.astype(dtype).tolist()


@pytest.mark.parametrize("kind", ["string", "bytes"])
def test_texts_travel_too(client: triton.InferenceServerClient, kind: str) -> None:
    texts = np.array([["", "größer".encode()], [b"x" * 300, b"y"]], object)
    texts[0, 0] = b""
    assert client.infer(f"echo-{kind}", [tensor("x", texts)]).as_numpy("y").tolist() == texts.tolist()
    assert client.infer("lengths", [tensor("x", np.array([b"abc", b""], object))]).as_numpy("y").tolist() == [3, 0]


def test_shapes_may_vary_from_request_to_request(client: triton.InferenceServerClient) -> None:
    for count in (0, 1, 3):
        array = np.arange(2 * count, dtype=np.int64).reshape(count, 2)
        assert client.infer("rows", [tensor("x", array)]).as_numpy("y").tolist() == array.sum(axis=1).tolist()
    batch = np.arange(12, dtype=np.int64).reshape(2, 3, 2)
    assert client.infer("rows", [tensor("x", batch)]).as_numpy("y").tolist() == batch.sum(axis=2).tolist()


def test_a_policy_that_declares_nothing_answers_what_the_request_declares(client: triton.InferenceServerClient) -> None:
    assert client.infer("free", x(1, 2, 3), parameters=ADVICE).as_numpy("total").tolist() == [6]
    with pytest.raises(InferenceServerException, match="give its spec in the parameter `advice`"):
        client.infer("free", x(1, 2, 3))
    for advice, message in (
        ("{", "not JSON in the parameter `advice`"),
        ("{}", "description"),
        ("[" * 2000, "not JSON"),
    ):
        with pytest.raises(InferenceServerException, match=message) as failure:
            client.infer("free", x(1), parameters={"advice": advice})
        assert failure.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_other_parameters_are_the_sessions_options(client: triton.InferenceServerClient) -> None:
    assert client.infer("free", x(1), parameters={**ADVICE, "add": 41}).as_numpy("total").tolist() == [42]


def test_features_that_the_policy_lacks_are_ignored_and_inputs_that_lack_are_named(
    client: triton.InferenceServerClient,
) -> None:
    more = [*x(7), tensor("z", np.zeros((4, 4), np.float32))]
    assert client.infer("counts", more).as_numpy("y").tolist() == [1, 7, 1]
    with pytest.raises(InferenceServerException, match=r"needs x: int64_t\[1\]"):
        client.infer("counts", more[1:])


def test_inputs_are_those_of_the_client_with_the_mask_and_what_may_lack(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config("masked").config
    given = {each.name: (each.optional, list(each.dims)) for each in config.input}
    assert given == {"x": (False, [3]), "bias": (True, [3]), "legal": (False, [3])}
    scores = tensor("x", np.zeros((2, 3), np.float32))
    legal = tensor("legal", np.array([[1, 1, 1], [0, 1, 0]], np.int64))
    assert client.infer("masked", [scores, legal]).as_numpy("advice").tolist() == [[2], [1]]
    bias = tensor("bias", np.array([[1, 0, 0]] * 2, np.float32))
    assert client.infer("masked", [scores, legal, bias]).as_numpy("advice").tolist() == [[0], [1]]


def test_requested_outputs_are_honoured(client: triton.InferenceServerClient) -> None:
    assert client.infer("counts", x(7), outputs=[triton.InferRequestedOutput("y")]).as_numpy("y") is not None
    with pytest.raises(InferenceServerException, match="no output 'z'; there is 'y'"):
        client.infer("counts", x(7), outputs=[triton.InferRequestedOutput("z")])


def test_typed_contents_are_taken_as_well_as_raw_ones(client: triton.InferenceServerClient) -> None:
    pb = triton.service_pb2
    for kind, field, values in (
        ("bool", "bool_contents", [True, False]),
        ("int8_t", "int_contents", [-128, 127]),
        ("uint16_t", "uint_contents", [0, 65535]),
        ("int64_t", "int64_contents", [-(2**63), 2**63 - 1]),
        ("uint64_t", "uint64_contents", [0, 2**64 - 1]),
        ("float", "fp32_contents", [0.5, -1.0]),
        ("double", "fp64_contents", [0.1, 1e300]),
        ("bytes", "bytes_contents", [b"", b"abc"]),
    ):
        given = pb.ModelInferRequest.InferInputTensor(
            name="x", datatype=KINDS[kind], shape=[2], contents=pb.InferTensorContents(**{field: values})
        )
        reply = client._client_stub.ModelInfer(pb.ModelInferRequest(model_name=f"echo-{kind}", inputs=[given]))
        assert triton.InferResult(reply).as_numpy("y").tolist() == values, kind


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            [tensor("x", np.zeros(2, np.int64).reshape(1, 2))],
            r"x: int64_t\[1\] was given the shape \[1, 2\]; right are",
        ),
        ([tensor("x", np.zeros((0, 1), np.int64))], "a batch of 0 observations"),
        ([tensor("x", np.zeros((257, 1), np.int64))], "a batch of 257 observations; 1 to 256 are possible"),
        ([tensor("x", np.zeros(1, np.float32))], r"takes x: int64_t\[1\]; the client sends x: float\[1\]"),
        ([*x(1), *x(1)], "two tensors are named 'x'"),
        ([tensor("x", np.zeros(1, np.float16))], "unknown datatype 'FP16'; known are"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_sides(
    client: triton.InferenceServerClient, inputs: list[triton.InferInput], message: str
) -> None:
    with pytest.raises(InferenceServerException, match=message) as failure:
        client.infer("counts", inputs)
    assert failure.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_an_unknown_model_or_version_is_not_found(client: triton.InferenceServerClient) -> None:
    for name, version in (("nothing", ""), ("versions", "7"), ("versions", "new")):
        with pytest.raises(InferenceServerException) as failure:
            client.infer(name, x(1), model_version=version)
        assert failure.value.status() == "StatusCode.NOT_FOUND"


def test_a_policy_that_fails_gives_an_error_and_no_advice(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="ValueError: x is negative") as failure:
        client.infer("counts", [tensor("x", np.array([[1], [-1]]))])
    assert failure.value.status() == "StatusCode.INTERNAL"


def test_the_index_lists_every_version_and_why_one_is_not_served(client: triton.InferenceServerClient) -> None:
    models = client.get_model_repository_index().models
    states = {(model.name, model.version): (model.state, model.reason) for model in models}
    assert states["versions", "2"] == ("READY", "")
    state, reason = states["broken", "1"]
    assert state == "UNAVAILABLE"
    assert "nothing_of_this_name" in reason


def test_loading_makes_sure_that_the_newest_version_is_there(client: triton.InferenceServerClient) -> None:
    client.load_model("versions")
    with pytest.raises(InferenceServerException, match="no policy 'nothing'"):
        client.load_model("nothing")
    with pytest.raises(InferenceServerException, match="nothing_of_this_name"):
        client.load_model("broken")


def test_what_is_not_supported_is_unimplemented(client: triton.InferenceServerClient) -> None:
    shared = triton.InferInput("x", [1], "INT64").set_shared_memory("region", 8)
    classes = triton.InferRequestedOutput("y", class_count=1)
    for call in (
        lambda: client.unload_model("versions"),
        lambda: client.load_model("versions", config="{}"),
        lambda: client.infer("counts", [shared]),
        lambda: client.infer("counts", x(1), outputs=[classes]),
        client.get_system_shared_memory_status,
        client.get_cuda_shared_memory_status,
        client.get_trace_settings,
        client.get_log_settings,
    ):
        with pytest.raises(InferenceServerException) as failure:
            call()
        assert failure.value.status() == "StatusCode.UNIMPLEMENTED"
    assert client.is_model_ready("versions")


def test_statistics_count_requests_observations_and_their_time_by_version(client: triton.InferenceServerClient) -> None:
    def counted() -> Any:
        (found,) = client.get_inference_statistics("versions", "1").model_stats
        return found

    client.infer("versions", x(1), model_version="1")
    before = counted()
    client.infer("versions", [tensor("x", np.zeros((8, 1), np.int64))], model_version="1")
    with pytest.raises(InferenceServerException):
        client.infer("versions", [], model_version="1")
    after = counted()
    assert after.inference_count - before.inference_count == 8
    assert after.execution_count - before.execution_count == 1
    assert after.inference_stats.success.count - before.inference_stats.success.count == 1
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    parts = [getattr(after.inference_stats, name).ns for name in ("compute_input", "compute_infer", "compute_output")]
    assert 0 < sum(parts) <= after.inference_stats.success.ns
    assert after.last_inference > 1_600_000_000_000
    assert {found.name for found in client.get_inference_statistics().model_stats} >= {"versions", "named"}
    with pytest.raises(InferenceServerException, match="no policy"):
        client.get_inference_statistics("nothing")

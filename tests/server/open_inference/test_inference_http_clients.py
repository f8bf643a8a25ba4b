"""The Open Inference Protocol over HTTP as an unmodified `tritonclient.http` speaks it: tensors are binary."""

import asyncio
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http as triton  # type: ignore[import-untyped]
from tritonclient.http import aio
from tritonclient.utils import InferenceServerException, np_to_triton_dtype  # type: ignore[import-untyped]

from tests.server.open_inference.inference_policies import KINDS, NUMBERS, write_policies
from tests.serving import serving


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = tmp_path_factory.mktemp("repository")
    write_policies(repository)
    with serving("--repository", repository, "--allow-python", "--http", "127.0.0.1:0") as (_, served):
        yield served.removeprefix("http:")


@pytest.fixture
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address) as made:
        yield made


def given(array: npt.NDArray[np.generic], *, binary: bool = True) -> list[triton.InferInput]:
    """Make the input `x`."""
    made = triton.InferInput("x", list(array.shape), np_to_triton_dtype(array.dtype))
    return [made.set_data_from_numpy(array, binary_data=binary)]


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_every_type_come_back_in_binary(client: triton.InferenceServerClient, kind: str) -> None:
    dtype = {"bool": "?", "float": "f4", "double": "f8"}.get(kind, kind.removesuffix("_t"))
    values = np.array([0, 1], dtype)
    result = client.infer(f"echo-{kind}", given(values))
    assert result.as_numpy("y").tolist() == values.tolist()
    (output,) = result.get_response()["outputs"]
    assert (output["datatype"], output["parameters"]) == (KINDS[kind], {"binary_data_size": values.nbytes})


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("asked", [True, False, None])
def test_each_way_may_be_binary_or_json(client: triton.InferenceServerClient, binary: bool, asked: bool | None) -> None:
    outputs = None if asked is None else [triton.InferRequestedOutput("y", binary_data=asked)]
    result = client.infer("counts", given(np.array([[3], [4]]), binary=binary), outputs=outputs, request_id="mine")
    assert result.as_numpy("y").tolist() == [[1, 3, 1], [1, 4, 1]]
    assert result.get_response()["id"] == "mine"
    assert ("data" in result.get_response()["outputs"][0]) == (asked is False)


def test_texts_come_back_in_binary_and_those_that_are_no_utf8_only_so(client: triton.InferenceServerClient) -> None:
    texts = given(np.array([b"a\xff", b""], object))
    assert client.infer("echo-bytes", texts).as_numpy("y").tolist() == [b"a\xff", b""]
    with pytest.raises(InferenceServerException, match="binary_data"):
        client.infer("echo-bytes", texts, outputs=[triton.InferRequestedOutput("y", binary_data=False)])


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_a_compressed_request_is_answered(client: triton.InferenceServerClient, algorithm: str) -> None:
    result = client.infer(
        "counts",
        given(np.array([7])),
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert result.as_numpy("y").tolist() == [1, 7, 1]


def test_a_sequence_is_a_session(client: triton.InferenceServerClient) -> None:
    steps: tuple[dict[str, bool], ...] = ({"sequence_start": True}, {}, {"sequence_end": True})
    asked = [client.infer("counts", given(np.array([5])), sequence_id=9, **step).as_numpy("y")[0] for step in steps]
    assert asked == [1, 2, 3]


def test_every_extension_that_is_named_is_served(client: triton.InferenceServerClient) -> None:
    named = ["binary_tensor_data", "model_configuration", "model_repository", "parameters", "sequence", "statistics"]
    assert client.get_server_metadata()["extensions"] == named
    config = client.get_model_config("masked")
    assert (config["name"], config["max_batch_size"]) == ("masked", 256)
    assert config["input"][0] == {"name": "x", "data_type": "TYPE_FP32", "dims": [3], "optional": False}
    assert config["output"] == [{"name": "advice", "data_type": "TYPE_INT64", "dims": [1]}]


def test_statistics_count_requests_and_observations(client: triton.InferenceServerClient) -> None:
    client.infer("rows", given(np.zeros((3, 2), np.int64)))
    (found,) = client.get_inference_statistics("rows")["model_stats"]
    assert (found["name"], found["version"], found["inference_count"]) == ("rows", "1", 1)
    assert found["inference_stats"]["success"]["count"] == 1
    assert {each["name"] for each in client.get_inference_statistics()["model_stats"]} >= {"rows", "counts"}
    with pytest.raises(InferenceServerException, match="no policy 'nothing'"):
        client.get_inference_statistics("nothing")


def test_the_repository_lists_its_versions_and_keeps_them(client: triton.InferenceServerClient) -> None:
    index = {(each["name"], each["version"]): each["state"] for each in client.get_model_repository_index()}
    assert (index["versions", "1"], index["broken", "1"]) == ("READY", "UNAVAILABLE")
    client.load_model("counts")
    with pytest.raises(InferenceServerException, match="policies publish"):
        client.load_model("counts", config="{}")
    with pytest.raises(InferenceServerException, match="'counts' stays"):
        client.unload_model("counts")
    with pytest.raises(InferenceServerException, match="no policy 'nothing'"):
        client.load_model("nothing")


async def infer(address: str) -> list[int]:
    async with aio.InferenceServerClient(address) as client:
        values: list[int] = (await client.infer("counts", given(np.array([8])))).as_numpy("y").tolist()
        return values


def test_the_client_for_asyncio_is_answered(address: str) -> None:
    assert asyncio.run(infer(address)) == [1, 8, 1]

"""How a user's messages become observations, and advice becomes their replies."""

from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from policybridge_core.errors import InvalidError, PolicyBridgeError, PolicyFailedError, TooLargeError
from policybridge_serdes import ElementType, Layout, TensorSpec, pack
from policybridge_server.mlbridge.grpc.config import FeatureConfig
from policybridge_server.mlbridge.grpc.replies import Replies
from policybridge_server.mlbridge.grpc.requests import Requests
from tests.server.mlbridge.mlbridge_clients import message

LIMIT = 1 << 20

Bind = dict[str, str | FeatureConfig]


def features(request: Message, bind: Bind | None = None, limit: int = LIMIT) -> dict[str, Any]:
    requests = Requests(type(request), bind or {}, limit)
    _, row = requests.decode(request.SerializeToString())
    values = np.ndarray(1, requests.layout.dtype, row) if isinstance(row, bytes) else row
    return {spec.name: values[spec.name][0] for spec in requests.layout.specs}


def specs(request: Message, bind: Bind | None = None) -> dict[str, str]:
    layout = Requests(type(request), bind or {}, LIMIT).layout
    return {spec.name: str(spec).partition(": ")[2] for spec in layout.specs}


def function(*registers: dict[str, Any]) -> Message:
    made: Message = message("registerallocation.Function", registers=registers)
    return made


def test_every_scalar_is_a_feature_of_one_element_and_every_vector_one_that_varies() -> None:
    assert specs(message("everytype.Everything")) == {
        "i32": "int32_t[1]",
        "i64": "int64_t[1]",
        "u32": "uint32_t[1]",
        "u64": "uint64_t[1]",
        "f32": "float[1]",
        "f64": "double[1]",
        "flag": "bool[1]",
        "text": "string[1]",
        "data": "bytes[1]",
        "colour": "int32_t[1]",
        "zigzag": "int32_t[1]",
        "wide": "uint64_t[1]",
        "i32s": "int32_t[-1]",
        "i64s": "int64_t[-1]",
        "u32s": "uint32_t[-1]",
        "u64s": "uint64_t[-1]",
        "f32s": "float[-1]",
        "f64s": "double[-1]",
        "flags": "bool[-1]",
        "texts": "string[-1]",
        "datas": "bytes[-1]",
        "colours": "int32_t[-1]",
        "counts.key": "string[-1]",
        "counts.value": "int32_t[-1]",
    }


EXTREMES: dict[str, Any] = {
    "i32": -(2**31),
    "i64": 2**63 - 1,
    "u32": 2**32 - 1,
    "u64": 2**64 - 1,
    "f32": float("-inf"),
    "f64": 5e-324,
    "flag": True,
    "text": "für",
    "data": b"\xff\0",
    "colour": 7,
    "zigzag": -1,
    "wide": 2**64 - 1,
    "i32s": [-(2**31), 2**31 - 1],
    "i64s": [-(2**63), 2**63 - 1],
    "u32s": [2**32 - 1],
    "u64s": [2**64 - 1, 0],
    "f32s": [0.5, float("inf")],
    "f64s": [0.1, -0.0],
    "flags": [True, False],
    "texts": ["", "ß"],
    "datas": [b"", b"\0"],
    "colours": [7, 0],
}


@pytest.mark.parametrize("field", EXTREMES)
def test_a_value_of_any_type_arrives_exactly(field: str) -> None:
    value = EXTREMES[field]
    arrived = features(message("everytype.Everything", **{field: value}))[field].tolist()
    assert arrived == (value if isinstance(value, list) else [value])


def test_nan_arrives_as_nan() -> None:
    assert np.isnan(features(message("everytype.Everything", f64s=[float("nan")]))["f64s"]).all()


def test_an_empty_vector_is_an_empty_feature_of_its_type() -> None:
    empty = features(message("everytype.Everything"))
    assert (empty["f32s"].shape, empty["f32s"].dtype) == ((0,), np.float32)
    assert empty["texts"].shape == empty["counts.key"].shape == (0,)


def test_a_map_arrives_sorted_by_its_keys() -> None:
    arrived = features(message("everytype.Everything", counts={"b": 2, "c": 3, "a": 1}))
    assert arrived["counts.key"].tolist() == ["a", "b", "c"]
    assert arrived["counts.value"].tolist() == [1, 2, 3]


REGISTERS = function(
    {"id": 1, "interferences": [2, 3], "vectors": [{"elements": [1, 2]}, {}, {"elements": [3]}]},
    {"id": 2},
    {"id": 3, "kind": "GR", "interferences": [1], "vectors": [{"elements": [4, 5, 6]}]},
)


def test_each_further_level_that_repeats_gives_row_splits() -> None:
    arrived = {name: value.tolist() for name, value in features(REGISTERS).items()}
    assert arrived == {
        "name": [""],
        "result": [False],
        "new": [False],
        "registers.id": [1, 2, 3],
        "registers.weight": [0, 0, 0],
        "registers.kind": ["", "", "GR"],
        "registers.interferences": [2, 3, 1],
        "registers.interferences.row_splits": [0, 2, 2, 3],
        "registers.vectors.row_splits": [0, 3, 3, 4],
        "registers.vectors.elements": [1, 2, 3, 4, 5, 6],
        "registers.vectors.elements.row_splits": [0, 2, 2, 3, 6],
    }


def test_no_rows_give_splits_of_one_element() -> None:
    arrived = features(function())
    assert arrived["registers.vectors.elements.row_splits"].tolist() == [0]
    assert arrived["registers.vectors.elements"].dtype == np.float64


def test_fields_of_a_message_that_does_not_repeat_have_dotted_names() -> None:
    file = FileDescriptorProto(name="nested.proto", package="nested", syntax="proto3")
    inner, outer = file.message_type.add(name="Inner"), file.message_type.add(name="Outer")
    inner.field.add(name="x", number=1, type=5, label=1)
    inner.field.add(name="list", number=2, type=5, label=3)
    inner.field.add(name="again", number=3, type=11, type_name=".nested.Inner", label=1)
    outer.field.add(name="y", number=2, type=5, label=1)
    outer.field.add(name="in", number=1, type=11, type_name=".nested.Inner", label=1)
    pool = DescriptorPool()
    pool.Add(file)
    kind = GetMessageClass(pool.FindMessageTypeByName("nested.Outer"))
    file.message_type[0].field.pop()
    file.name, file.package = "plain.proto", "plain"
    file.message_type[1].field[1].type_name = ".plain.Inner"
    pool.Add(file)
    plain = GetMessageClass(pool.FindMessageTypeByName("plain.Outer"))
    arrived = features(plain.FromString(b"\x0a\x05\x08\x07\x12\x01\x09\x10\x03"))
    assert {name: value.tolist() for name, value in arrived.items()} == {"y": [3], "in.x": [7], "in.list": [9]}
    assert list(specs(plain())) == ["y", "in.x", "in.list"]
    # What contains itself has no end as columns: it is left out.
    assert list(specs(kind())) == ["y"]


def test_a_field_may_be_renamed_and_serve_more_than_one_feature() -> None:
    state = message("passsequence.State", embedding=[1, 2])
    arrived = features(state, {"state": "embedding", "double": FeatureConfig("embedding", type="double")})
    assert list(arrived) == ["state", "double"]
    assert arrived["double"].dtype == np.float64
    assert arrived["double"].tolist() == arrived["state"].tolist() == [1, 2]


def test_renamed_numbers_keep_their_values() -> None:
    arrived = features(message("passsequence.Pass", action=-3), {"x": "action", "y": "action"})
    assert {name: value.tolist() for name, value in arrived.items()} == {"x": [-3], "y": [-3]}


@pytest.mark.parametrize(
    ("shape", "given", "expected"),
    [
        ([4], [1, 2], [1, 2, 0, 0]),
        ([2], [1, 2, 3], [1, 2]),
        ([2], [1, 2], [1, 2]),
        ([2], [], [0, 0]),
        ([2, 2], [1, 2, 3], [[1, 2], [3, 0]]),
        ([-1], [1, 2, 3], [1, 2, 3]),
    ],
)
def test_a_vector_is_padded_or_cut_to_the_shape_that_is_asked_for(
    shape: list[int], given: list[float], expected: list[Any]
) -> None:
    config = FeatureConfig("embedding", shape=shape, pad=True, truncate=True)
    assert features(message("passsequence.State", embedding=given), {"x": config})["x"].tolist() == expected


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([-1, 2, 2], [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[4, 5], [0, 0]]]),
        ([2, 3, 1], [[[1], [0], [3]], [[0], [0], [0]]]),
        ([4, 1, 3], [[[1, 2, 0]], [[0, 0, 0]], [[4, 5, 6]], [[0, 0, 0]]]),
    ],
)
def test_ragged_rows_become_a_dense_tensor_where_a_shape_is_given(shape: list[int], expected: list[Any]) -> None:
    config = FeatureConfig("registers.vectors.elements", shape=shape, pad=True, truncate=True)
    assert features(REGISTERS, {"x": config})["x"].tolist() == expected


def test_texts_are_padded_with_empty_ones() -> None:
    config = FeatureConfig("texts", shape=[2], pad=True)
    assert features(message("everytype.Everything", texts=["a"]), {"x": config})["x"].tolist() == ["a", ""]


@pytest.mark.parametrize(
    ("config", "message_part"),
    [
        (FeatureConfig("embedding", shape=[3]), "embedding has 2 elements, and `pad` is not set"),
        (FeatureConfig("embedding", shape=[3], truncate=True), "`pad` is not set"),
        (FeatureConfig("embedding", shape=[1], pad=True), "embedding has 2 elements, and `truncate` is not set"),
    ],
)
def test_another_length_than_the_shapes_is_an_error_unless_it_is_allowed(
    config: FeatureConfig, message_part: str
) -> None:
    with pytest.raises(InvalidError, match=message_part):
        features(message("passsequence.State", embedding=[1, 2]), {"x": config})


def test_padding_cannot_make_more_than_the_limit() -> None:
    config = FeatureConfig("registers.vectors.elements", shape=[-1, 1000, 1000], pad=True)
    with pytest.raises(TooLargeError, match=r"padded to 24000000 bytes; at most 1048576"):
        features(REGISTERS, {"x": config})


def test_a_cast_that_would_change_an_integer_is_an_error() -> None:
    bind: Bind = {"x": FeatureConfig("action", type="int8_t")}
    assert features(message("passsequence.Pass", action=-128), bind)["x"].tolist() == [-128]
    with pytest.raises(InvalidError, match=r"x: int8_t.* out of its range"):
        features(message("passsequence.Pass", action=128), bind)


@pytest.mark.parametrize(
    ("name", "config", "message_part"),
    [
        ("passsequence.State", FeatureConfig("embeding"), "no field 'embeding'; it has embedding"),
        ("passsequence.State", FeatureConfig("embedding", type="int32_t"), "float, which cannot be cast to int32_t"),
        ("loopdistribution.Graph", FeatureConfig("rdg", type="float"), "string, which cannot be cast"),
        ("passsequence.State", FeatureConfig("embedding", shape=[-1, 2]), r"fixed or \[-1\]"),
        ("passsequence.Pass", FeatureConfig("action", shape=[2]), "one value"),
        ("registerallocation.Function", FeatureConfig("registers.vectors.elements", shape=[2]), "on 3 levels"),
        (
            "registerallocation.Function",
            FeatureConfig("registers.vectors.elements", shape=[2, -1, 2]),
            "only the first may be −1",
        ),
    ],
)
def test_a_binding_that_can_never_work_is_refused_at_once(name: str, config: FeatureConfig, message_part: str) -> None:
    with pytest.raises(InvalidError, match=message_part):
        Requests(type(message(name)), {"x": config}, LIMIT)


@pytest.mark.parametrize("data", [b"\x0a", b"\xff\xff\xff", b"\x42\x02\xc3\x28", b"\x0a\x82\x80\x80\x80\x08"])
def test_bytes_that_are_no_such_message_are_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(InvalidError, match=r"not a everytype\.Everything"):
        Requests(type(message("everytype.Everything")), {}, LIMIT).decode(data)


def test_a_request_above_the_limit_is_refused() -> None:
    with pytest.raises(TooLargeError, match="a request of 1003 bytes; at most 1000"):
        features(message("everytype.Everything", data=b"x" * 1000), limit=1000)


def test_messages_without_end_are_refused_before_they_are_made() -> None:
    with pytest.raises(TooLargeError, match="more than 1048576 messages"):
        Requests(type(message("registerallocation.Function")), {}, 1 << 30).decode(b"\x0a\x00" * ((1 << 20) + 1))


def test_a_large_vector_is_taken() -> None:
    embedding = np.arange(1 << 20, dtype=np.float32)
    arrived = features(message("passsequence.State", embedding=embedding), limit=1 << 30)
    assert np.array_equal(arrived["embedding"], embedding)


def replied(name: str, advice: TensorSpec, value: Any) -> Any:
    kind = type(message(f"everytype.{name}"))
    data, _ = Replies(kind).writer(advice)(pack(Layout((advice,)), {advice.name: value}))
    written = kind.FromString(data).value
    return list(written) if hasattr(written, "extend") else written


@pytest.mark.parametrize(
    ("name", "type_", "value"),
    [
        ("Int32", ElementType.INT64, 2**31 - 1),
        ("Int64", ElementType.INT64, -(2**63)),
        ("Int64", ElementType.BOOL, True),
        ("Float", ElementType.FLOAT, 0.25),
        ("Float", ElementType.DOUBLE, float("-inf")),
        ("Double", ElementType.FLOAT, 0.5),
        ("Double", ElementType.INT64, 7),
        ("Bool", ElementType.INT64, 1),
        ("Int32s", ElementType.INT64, [1, -2]),
        ("Int64s", ElementType.INT8, []),
        ("Floats", ElementType.DOUBLE, [0.5, float("inf")]),
        ("Doubles", ElementType.DOUBLE, [0.1]),
    ],
)
def test_advice_that_fits_the_replys_first_field_is_its_value(name: str, type_: ElementType, value: Any) -> None:
    advice = TensorSpec("advice", type_, (-1,) if isinstance(value, list) else (1,))
    assert replied(name, advice, value) == value


@pytest.mark.parametrize(
    ("name", "type_", "value", "message_part"),
    [
        ("Int32", ElementType.INT64, 2**31, "int32_t everytype.Int32.value cannot hold the advice .2147483648"),
        ("Int64", ElementType.UINT64, 2**63, "cannot hold"),
        ("Bool", ElementType.INT64, 2, "cannot hold the advice 2"),
        ("Float", ElementType.DOUBLE, 1e39, r"cannot hold the advice 1e\+39"),
        ("Int32", ElementType.INT32, [1, 2], "cannot hold"),
        ("Int32", ElementType.INT32, [], "cannot hold"),
        ("Int32s", ElementType.INT64, [1, 2**40], "cannot hold"),
    ],
)
def test_advice_out_of_the_fields_range_is_a_failure(
    name: str, type_: ElementType, value: Any, message_part: str
) -> None:
    advice = TensorSpec("advice", type_, (-1,) if isinstance(value, list) else (1,))
    with pytest.raises(PolicyFailedError, match=message_part):
        replied(name, advice, value)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("Int32", TensorSpec("advice", ElementType.FLOAT)),
        ("Int32s", TensorSpec("advice", ElementType.STRING)),
        ("Double", TensorSpec("advice", ElementType.DOUBLE, (2,))),
    ],
)
def test_advice_of_a_kind_that_the_field_cannot_hold_is_refused_for_all_requests(name: str, advice: TensorSpec) -> None:
    with pytest.raises(InvalidError, match=f"the policy gives {advice.name}: .*{name}.value cannot hold that"):
        Replies(type(message(f"everytype.{name}"))).writer(advice)


def test_a_reply_that_the_client_would_not_take_is_a_failure() -> None:
    advice = TensorSpec("advice", ElementType.DOUBLE, (-1,))
    assert len(replied("Doubles", advice, np.ones((1 << 19) - 8))) == (1 << 19) - 8
    with pytest.raises(PolicyBridgeError, match="the client takes at most 4194304"):
        replied("Doubles", advice, np.ones(1 << 19))

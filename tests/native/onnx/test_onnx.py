"""A model in the compiler's own process: the C++ library gives the same advice as the server's backend `onnx`."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_bench.network import FEATURES, SIGNATURE, make_network, observations, write_network
from policybridge_serdes import ElementType, Signature, TensorSpec, pack
from tests.native.channels import Channel, ChannelError, running_channel
from tests.native.conftest import Target, missing, sanitized
from tests.onnx_models import make_model
from tests.server.backends.backends import SAMPLES, evaluate, load
from tests.server.backends.test_backends import ONNX_TYPES

Ports = dict[str, tuple[int, list[int | str]]]

INT64 = ElementType.INT64
SUM = Signature.of(
    [TensorSpec("b", INT64), TensorSpec("more", ElementType.FLOAT, (2,)), TensorSpec("a", INT64)],
    TensorSpec("c", INT64),
)
MORE = [0.0, 0.0]


@pytest.fixture(scope="session")
def runtime() -> str:
    """Find the shared library in the Python package."""
    package = importlib.util.find_spec("onnxruntime")
    found = sorted(Path(str(package.origin)).parent.glob("capi/libonnxruntime.so*")) if package else []
    if not found:
        missing("libonnxruntime.so, of the Python package onnxruntime")
    return str(found[0])


@pytest.fixture(scope="session", params=["plain", "sanitized"])
def program(request: pytest.FixtureRequest, native: Target) -> Path:
    options = sanitized() if request.param == "sanitized" else ()
    return native("onnx-channel-driver", *options) / "bin" / "onnx-channel-driver"


class Models:
    """Models in files of one folder, and channels to them."""

    def __init__(self, program: Path, runtime: str, folder: Path) -> None:
        self._program = program
        self._environment = {**os.environ, "POLICYBRIDGE_ONNXRUNTIME": runtime}
        self._folder = folder

    def open(self, model: onnx.ModelProto) -> AbstractContextManager[Channel]:
        """Give a channel to ``model``."""
        path = self._folder / "model.onnx"
        onnx.save(model, path)
        return self.open_file(path)

    def open_file(self, path: Path) -> AbstractContextManager[Channel]:
        """Give a channel to the model in a file."""
        return running_channel(self._program, f"onnx:{path}", environment=self._environment)


@pytest.fixture
def models(program: Path, runtime: str, tmp_path: Path) -> Models:
    return Models(program, runtime, tmp_path)


@pytest.fixture
def sums(models: Models) -> Iterator[Channel]:
    with models.open(one_node("Add", ["a", "b"], "c")) as channel:
        yield channel


def one_node(operator: str, inputs: list[str], output: str, kind: int = TensorProto.INT64) -> onnx.ModelProto:
    """Make a model of one operator over tensors of one element."""
    spec: tuple[int, list[int | str]] = (kind, ["batch", 1])
    node = helper.make_node(operator, inputs, [output])
    return make_model([node], dict.fromkeys(sorted(inputs, reverse=True), spec), {output: spec})


def identity(kind: int, shape: list[int | str]) -> onnx.ModelProto:
    return make_model([helper.make_node("Identity", ["x"], ["y"])], {"x": (kind, shape)}, {"y": (kind, shape)})


@pytest.mark.parametrize("batch", [["batch"], []], ids=["batched", "single"])
@pytest.mark.parametrize("kind", ONNX_TYPES, ids=lambda kind: kind.name)
def test_advice_has_the_bits_and_shape_that_the_model_gives(
    models: Models, kind: ElementType, batch: list[str]
) -> None:
    for shape in ((), (1,), (3,), (1, 3)):
        with models.open(identity(ONNX_TYPES[kind], [*batch, *shape])) as channel:
            signature = Signature.of([TensorSpec("x", kind, shape)], TensorSpec("y", kind, shape))
            session = channel.open("any", signature)
            for turn in (0, 1):
                value = np.roll(np.array(SAMPLES[kind], kind.dtype), turn)[: signature.advice.count].reshape(shape)
                advice = session.ask(x=value).value
                assert advice.tolist() == value.tolist()
                assert advice.tobytes() == value.tobytes() or kind.is_text


@pytest.mark.parametrize("kind", [ElementType.FLOAT, ElementType.STRING], ids=lambda kind: kind.name)
def test_a_varying_shape_passes_through_the_model(models: Models, kind: ElementType) -> None:
    with models.open(identity(ONNX_TYPES[kind], ["batch", "n", 2])) as channel:
        session = channel.open("any", Signature.of([TensorSpec("x", kind, (-1, 2))], TensorSpec("y", kind, (-1, 2))))
        for size in (0, 1, 5, 2):
            value = np.arange(2 * size).astype(str if kind.is_text else kind.dtype).astype(kind.dtype).reshape(size, 2)
            assert session.ask(x=value).value.tolist() == value.tolist()


def test_a_leading_dimension_of_one_may_be_on_either_side(models: Models) -> None:
    for client, model in (((1, 3), [3]), ((3,), [1, 3]), ((), [1]), ((1,), [])):
        with models.open(identity(TensorProto.FLOAT, list(model))) as channel:
            specs = [TensorSpec(name, ElementType.FLOAT, client) for name in "xy"]
            value = np.arange(np.prod(client)).reshape(client)
            advice = channel.open("any", Signature.of(specs[:1], specs[1])).ask(x=value).value
            assert advice.tolist() == value.tolist()


def test_a_fixed_feature_fits_an_input_of_open_size(models: Models) -> None:
    model = make_model(
        [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)],
        {"x": (TensorProto.FLOAT, ["n", 2])},
        {"y": (TensorProto.FLOAT, [])},
    )
    with models.open(model) as channel:
        kind = ElementType.FLOAT
        session = channel.open("any", Signature.of([TensorSpec("x", kind, (3, 2))], TensorSpec("y", kind, ())))
        assert session.ask(x=np.ones((3, 2))).value.item() == 6


def test_inputs_are_found_by_name_and_other_features_are_ignored(models: Models) -> None:
    with models.open(one_node("Sub", ["a", "b"], "c")) as channel:
        session = channel.open("any", SUM)
        assert [session.ask(a=10, b=n, more=MORE).value.item() for n in (3, -3, 2**62)] == [7, 13, 10 - 2**62]


def test_a_network_decides_as_on_the_server(models: Models, tmp_path: Path) -> None:
    write_network(tmp_path, "named", packed=False)
    rows = observations(200)
    served = load(tmp_path, "named")
    with models.open(make_network(packed=False)) as channel:
        session = channel.open("any", SIGNATURE)
        for row in rows:
            named = dict(zip(FEATURES, row, strict=True))
            expected = evaluate(served, pack(SIGNATURE.features, named), SIGNATURE.advice)
            assert session.ask(**named).value.tobytes() == expected.tobytes()


def test_the_advice_is_the_output_of_its_name_or_the_only_one(sums: Channel, models: Models) -> None:
    other = Signature(SUM.features, TensorSpec("anything", INT64))
    assert sums.open("any", other).ask(a=1, b=2, more=MORE).value.item() == 3
    spec: tuple[int, list[int | str]] = (TensorProto.INT64, ["batch", 1])
    nodes = [helper.make_node("Add", ["a", "b"], ["first"]), helper.make_node("Sub", ["a", "b"], ["c"])]
    with models.open(make_model(nodes, {"a": spec, "b": spec}, {"first": spec, "c": spec})) as channel:
        assert channel.open("any", SUM).ask(a=1, b=2, more=MORE).value.item() == -1
        with pytest.raises(
            ChannelError, match=r"FAILED_PRECONDITION .*called anything; the outputs of .* are first, c"
        ):
            channel.open("any", other)


@pytest.mark.parametrize(
    ("features", "advice", "message"),
    [
        ({"a": (INT64, (1,))}, (INT64, (1,)), r"needs b: int64_t\[1\], which the client does not send; it sends a"),
        (
            {"a": (INT64, (1,)), "b": (ElementType.FLOAT, (1,))},
            (INT64, (1,)),
            r"takes b: int64_t\[1\]; .* b: float\[1\]",
        ),
        ({"a": (INT64, (2,)), "b": (INT64, (1,))}, (INT64, (1,)), r"takes a: int64_t\[1\]; .* a: int64_t\[2\]"),
        ({"a": (INT64, (-1,)), "b": (INT64, (1,))}, (INT64, (1,)), r"takes a: int64_t\[1\]; .* a: int64_t\[-1\]"),
        (
            {"a": (INT64, (1,)), "b": (INT64, (1,))},
            (ElementType.INT32, (1,)),
            r"gives c: int64_t\[1\]; .* c: int32_t\[1\]",
        ),
        ({"a": (INT64, (1,)), "b": (INT64, (1,))}, (INT64, (2,)), r"gives c: int64_t\[1\]; .* c: int64_t\[2\]"),
        ({"a": (INT64, (1,)), "b": (INT64, (1,))}, (INT64, (-1,)), r"gives c: int64_t\[1\]; .* c: int64_t\[-1\]"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused_with_both_specs(
    sums: Channel,
    features: dict[str, tuple[ElementType, tuple[int, ...]]],
    advice: tuple[ElementType, tuple[int, ...]],
    message: str,
) -> None:
    specs = [TensorSpec(name, kind, shape) for name, (kind, shape) in features.items()]
    with pytest.raises(ChannelError, match=f"INVALID_ARGUMENT .*{message}"):
        sums.open("any", Signature.of(specs, TensorSpec("c", *advice)))


def test_a_model_that_fails_ends_its_session_with_onnx_runtimes_message(models: Models) -> None:
    table: Ports = {"x": (TensorProto.INT64, ["batch", 1])}
    nodes = [helper.make_node("Gather", ["table", "x"], ["y"])]
    model = make_model(
        nodes, table, {"y": (TensorProto.FLOAT, ["batch", 1])}, {"table": np.arange(3, dtype=np.float32)}
    )
    signature = Signature.of([TensorSpec("x", INT64)], TensorSpec("y", ElementType.FLOAT))
    with models.open(model) as channel:
        broken, whole = channel.open("any", signature), channel.open("any", signature)
        with pytest.raises(ChannelError, match=r"INTERNAL ONNX Runtime: .*out of"):
            broken.ask(x=7)
        assert not broken.is_open
        with pytest.raises(ChannelError, match="FAILED_PRECONDITION the session is over: ONNX Runtime"):
            broken.ask(x=1)
        assert whole.ask(x=2).value.item() == 2


@pytest.mark.parametrize("kind", [ElementType.FLOAT, ElementType.DOUBLE], ids=lambda kind: kind.name)
def test_nan_is_not_an_advice(models: Models, kind: ElementType) -> None:
    with models.open(one_node("Sqrt", ["x"], "y", ONNX_TYPES[kind])) as channel:
        session = channel.open("any", Signature.of([TensorSpec("x", kind)], TensorSpec("y", kind)))
        assert session.ask(x=4.0).value.item() == 2
        with pytest.raises(ChannelError, match=rf"INTERNAL the policy gave NaN for y: {kind.value}\[1\]"):
            session.ask(x=-1.0)


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (bytes(23), "8 bytes announced, 7 are left"),
        (bytes(25), "1 bytes follow the last feature"),
        (b"", "bytes announced, 0 are left"),
    ],
)
def test_bytes_that_are_not_an_observation_are_refused(sums: Channel, observation: bytes, message: str) -> None:
    with pytest.raises(ChannelError, match=f"INVALID_ARGUMENT .*{message}"):
        sums.open("any", SUM).ask_bytes(1, observation)


def test_an_observation_with_a_wrong_size_or_a_wrong_bool_is_refused(models: Models) -> None:
    for kind, shape, data in (
        (ElementType.FLOAT, (-1,), (2**60).to_bytes(8, "little") + bytes(4)),
        (ElementType.STRING, (), (2**32 - 1).to_bytes(4, "little") + b"x"),
        (ElementType.BOOL, (1,), b"\2"),
    ):
        with models.open(identity(ONNX_TYPES[kind], ["batch", *("n" if dim < 0 else dim for dim in shape)])) as channel:
            session = channel.open("any", Signature.of([TensorSpec("x", kind, shape)], TensorSpec("y", kind, shape)))
            with pytest.raises(ChannelError, match="INVALID_ARGUMENT x: "):
                session.ask_bytes(1, data)


def test_a_text_with_a_zero_byte_is_refused_and_not_truncated(models: Models) -> None:
    spec = [TensorSpec(name, ElementType.STRING, ()) for name in "xy"]
    with models.open(identity(TensorProto.STRING, [])) as channel:
        session = channel.open("any", Signature.of(spec[:1], spec[1]))
        assert session.ask(x="größer").value.item() == "größer"
        with pytest.raises(ChannelError, match=r"INVALID_ARGUMENT .*zero byte"):
            session.ask(x="a\0b")


def test_a_file_that_is_not_a_model_is_refused_and_named(models: Models, tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no model")
    for name in ("text.onnx", "absent.onnx", "."):
        with models.open_file(tmp_path / name) as channel:
            with pytest.raises(ChannelError, match=f"FAILED_PRECONDITION .*/?{name} cannot be loaded: ONNX Runtime: "):
                channel.open("any", SUM)
            with pytest.raises(ChannelError, match="UNAVAILABLE"):
                channel.say("check")


def test_an_input_of_a_type_that_no_feature_has_is_refused_and_named(models: Models) -> None:
    refused = pytest.raises(ChannelError, match=r"FAILED_PRECONDITION .*x has ONNX's element type 10")
    with models.open(identity(TensorProto.FLOAT16, [1])) as channel, refused:
        channel.open("any", SUM)


def test_what_only_a_server_has_is_refused(sums: Channel) -> None:
    assert sums.say("check") == []
    for policy in ("any@1", "any@stable"):
        with pytest.raises(ChannelError, match=r"INVALID_ARGUMENT .*without versions"):
            sums.open(policy, SUM)
    with pytest.raises(ChannelError, match=r"INVALID_ARGUMENT .*cannot explore"):
        sums.open("any", SUM, "explore 1 1 0")
    session = sums.open("any", SUM)
    assert session.told == []
    session.context("f")
    with pytest.raises(ChannelError, match="UNIMPLEMENTED"):
        session.report("ok", text=1)
    with pytest.raises(ChannelError, match="UNIMPLEMENTED"):
        sums.report_past("x", "ok")
    assert session.ask(a=1, b=1, more=MORE).value.item() == 2
    session.close()
    with pytest.raises(ChannelError, match=r"FAILED_PRECONDITION .*it was closed"):
        session.ask(a=1, b=1, more=MORE)


def test_without_onnx_runtime_the_message_says_where_it_is_looked_for(program: Path, tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no library")
    for library, message in (
        (str(tmp_path / "absent.so"), "absent.so: cannot open"),
        (str(tmp_path / "text.so"), "text.so: "),
        ("libm.so.6", "not ONNX Runtime: .*OrtGetApiBase"),
    ):
        environment = {**os.environ, "POLICYBRIDGE_ONNXRUNTIME": library}
        refused = pytest.raises(ChannelError, match=rf"FAILED_PRECONDITION .*{message}.*POLICYBRIDGE_ONNXRUNTIME")
        with running_channel(program, "onnx:x.onnx", environment=environment) as channel, refused:
            channel.open("any", SUM)


def test_threads_share_a_model(sums: Channel) -> None:
    three = (3).to_bytes(8, "little").hex()
    assert sums.many(8, 200, "any", SUM, a=1, b=2, more=MORE) == [three]


def test_sessions_outlive_their_connection(sums: Channel) -> None:
    session = sums.open("any", SUM)
    sums.say("disconnect")
    assert session.ask(a=1, b=2, more=MORE).value.item() == 3

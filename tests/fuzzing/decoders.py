"""Targets without a server: each decoder raises its own error or gives what encodes to the same value again."""

import contextlib
import io
import zipfile
from typing import Any

import numpy as np
from hpack import Decoder
from hpack.exceptions import HPACKError

from policybridge.v1 import policy_service_pb2
from policybridge_core.errors import PolicyBridgeError
from policybridge_forms import Form
from policybridge_forms.codec import write
from policybridge_serdes import ElementType, Layout, SerDes, TensorSpec, Values, load_serdes
from policybridge_serdes.bitstream import parse_layout
from policybridge_serdes.interactive import InteractiveReader
from policybridge_serdes.limits import MessageLimits
from policybridge_serdes.training_log import TrainingLogReader
from policybridge_server.backends.torch.archive import check_program, check_script
from policybridge_server.backends.weights import read_weights
from policybridge_server.grpc.forms import Forms, spans
from policybridge_server.grpc.http2.frames import Http2Error
from policybridge_server.grpc.http2.headers import MAX_BLOCK, HeaderReader
from policybridge_server.ledger.packing import pack_rows, unpack_rows
from policybridge_server.mlbridge.pipes.formats import load_format
from policybridge_server.mlbridge.pipes.frames import FrameReader
from policybridge_server.open_inference.http_request import request_from_json
from policybridge_server.open_inference.request import RequestReader, read_request
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.toml import parse_toml
from policybridge_server.transports.socket_frames import Hello, Resume, parse_hello
from tests.fuzzing.inputs import pieces

LAYOUTS = (
    Layout.of([TensorSpec("x", ElementType.INT64, (2,)), TensorSpec("y", ElementType.INT64, (1,))]),
    Layout.of([TensorSpec("x", ElementType.FLOAT, (-1, 2)), TensorSpec("t", ElementType.STRING, (-1,))]),
    Layout.of([TensorSpec("b", ElementType.BOOL, (3,)), TensorSpec("f", ElementType.DOUBLE, (1,))]),
)
_LIMIT = 1 << 16
_LIMITS = MessageLimits(observation_bytes=_LIMIT)
_PROGRAM = ("models/model.json", "data/weights/model_weights_config.json", "data/sample_inputs/model.pt")
_VALUES = (3, 2)
"""Where an EvaluateRequest has its encoded observation."""


def _same(left: Values, right: Values) -> bool:
    return left.dtype == right.dtype and all(
        np.array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))
        if a.dtype != object
        else a.tolist() == b.tolist()
        for name in left.dtype.names or ()
        for a, b in zip(_tensors(left[name]), _tensors(right[name]), strict=True)
    )


def _tensors(column: Any) -> list[Any]:
    return [np.ascontiguousarray(each) for each in column]


def _round_trip(serdes: SerDes, data: bytes) -> None:
    with contextlib.suppress(PolicyBridgeError):
        layout, values = serdes.decode(data)
        again, same = serdes.decode(serdes.encode(values, layout))
        assert again == layout
        assert _same(values, same), "the record changed on its way"
    for layout in LAYOUTS:
        codec = serdes.codec(layout)
        with contextlib.suppress(PolicyBridgeError):
            values = codec.decode(data)
            assert _same(values, codec.decode(codec.encode(values))), "the record changed on its way"


def bitstream(data: bytes) -> None:
    """Decode the bitstream's two forms."""
    _round_trip(load_serdes("bitstream"), data)


def json(data: bytes) -> None:
    """Decode the two forms of JSON."""
    _round_trip(load_serdes("json"), data)


def protobuf(data: bytes) -> None:
    """Decode the two forms of protobuf."""
    _round_trip(load_serdes("protobuf"), data)


def _events(reader: InteractiveReader | FrameReader, parts: list[bytes]) -> list[object] | type[PolicyBridgeError]:
    """Give the events, or the error that ended the stream: `feed` gives no events of a piece that it refuses."""
    found: list[object] = []
    try:
        for part in parts:
            found += [str(event) if isinstance(event, PolicyBridgeError) else event for event in reader.feed(part)]
    except PolicyBridgeError as error:
        return type(error)
    return found


def _two_cuts(data: bytes) -> tuple[list[bytes], list[bytes]]:
    parts = list(pieces(data))
    whole = b"".join(parts)
    return parts, [whole[place : place + 1] for place in range(len(whole))]


def interactive(data: bytes) -> None:
    """Read LLVM's stream in pieces, and byte by byte: the events are the same."""
    first, second = (_events(InteractiveReader(_LIMITS), parts) for parts in _two_cuts(data))
    assert first == second, "the events depend on how the stream is cut"


def pipe_frames(data: bytes) -> None:
    """Cut the pipe's frames in pieces, and byte by byte: the messages are the same."""
    first, second = (_events(FrameReader(_LIMIT), parts) for parts in _two_cuts(data))
    assert first == second, "the messages depend on how the stream is cut"


def specs(data: bytes) -> None:
    """Read a tensor's description, as LLVM writes it, from JSON."""
    with contextlib.suppress(PolicyBridgeError):
        layout = parse_layout(data, _LIMITS)
        assert Layout.of(TensorSpec.from_json(spec.to_json()) for spec in layout.specs) == layout


def training_log(data: bytes) -> None:
    """Read a training log of LLVM."""
    with contextlib.suppress(PolicyBridgeError):
        for observation in TrainingLogReader(io.BytesIO(data), _LIMIT):
            _ = observation.features


def hello(data: bytes) -> None:
    """Read the first line of a socket."""
    with contextlib.suppress(PolicyBridgeError):
        parsed = parse_hello(data)
        if isinstance(parsed, Hello | Resume):
            _ = parsed.session_options, parsed.reference


def hpack(data: bytes) -> None:
    """Read the header blocks of a connection as the library reads them, which remembers no block."""
    reader, library = HeaderReader(), Decoder(max_header_list_size=MAX_BLOCK)
    for block in pieces(data):
        try:
            wanted = [
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in library.decode(block, raw=True)
            ]
        except HPACKError:
            wanted = None
        try:
            headers = reader.read(block)
        except Http2Error:
            if wanted is not None:
                raise
            return
        assert wanted is not None, "a block was read that the library refuses"
        assert headers.metadata == [field for field in wanted if not field[0].startswith(":")]


def forms(data: bytes) -> None:
    """Compare a request with the form of another one: what is found is what the parser finds."""
    first, *rest = list(pieces(data)) or [b""]
    known: Forms[int] = Forms()
    if not _parses(first):
        return
    known.remember(first, list(spans(first, _VALUES)), 1)
    for other in rest:
        found = known.find(other)
        if found is None:
            continue
        assert _parses(other), "a form was found in bytes that the parser refuses"
        assert list(found[1]) == [other[start:end] for start, end in spans(other, _VALUES)]


def _parses(data: bytes) -> bool:
    try:
        policy_service_pb2.EvaluateRequest.FromString(data)
    except Exception:
        return False
    return True


def infer_json(data: bytes) -> None:
    """Read an inference request in JSON, with the binary tensors that follow it after a zero byte."""
    body, _, binary = data.partition(b"\0")
    with contextlib.suppress(PolicyBridgeError):
        request = request_from_json("policy", "", body, binary)
        read_request(request.message, request.contents)


def infer(data: bytes) -> None:
    """Read inference requests, of which later ones may have the form of an earlier one, as a new reader would."""
    reader = RequestReader()
    for part in pieces(data):
        assert _infer(reader, part) == _infer(RequestReader(), part), "the answer depends on earlier requests"


def _infer(reader: RequestReader, data: bytes) -> object:
    try:
        request = reader.read(data)
    except PolicyBridgeError as error:
        return str(error)
    return request._replace(payloads=list(request.payloads))


def pipe_json(data: bytes) -> None:
    """Read observations of ML-Compiler-Bridge's JSON format, with one reader."""
    _pipe("json", data)


def pipe_bytes(data: bytes) -> None:
    """Read observations of ML-Compiler-Bridge's bytes format, with one reader."""
    _pipe("bytes", data)


def _pipe(name: str, data: bytes) -> None:
    reader = load_format(name)
    for part in pieces(data):
        with contextlib.suppress(PolicyBridgeError):
            parsed = reader.read(part)
            assert parsed.values.dtype == parsed.layout.dtype


def ledger_column(data: bytes) -> None:
    """Unpack a column of the ledger."""
    count, column = (data[0], data[1:]) if data else (0, b"")
    for layout in LAYOUTS:
        with contextlib.suppress(PolicyBridgeError):
            values = unpack_rows(layout, column, count)
            rows = [values[place : place + 1] for place in range(count)]
            assert _same(values, unpack_rows(layout, pack_rows(layout, rows), count))


def policy_toml(data: bytes) -> None:
    """Read a policy's configuration."""
    with contextlib.suppress(PolicyBridgeError):
        parse_toml(data, "policy.toml", PolicyConfig)


def weights(data: bytes) -> None:
    """Read weights in safetensors."""
    with contextlib.suppress(PolicyBridgeError):
        read_weights(data)


def policy_form(data: bytes) -> None:
    """Read a portable form: it is refused, or is written as it was read and decides."""
    with contextlib.suppress(PolicyBridgeError):
        form = Form.read(data)
        assert write(form.content) == data
        advice, status = form.decide(np.zeros(1, form.record))
        assert (len(advice), len(status)) == (1, 1)


def torch_program(data: bytes) -> None:
    """Check an exported program whose files hold the pieces: it is accepted or refused, in time."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("p/archive_format", "pt2")
        archive.writestr("p/archive_version", "0")
        archive.writestr("p/byteorder", "little")
        archive.writestr("p/.data/version", "6")
        for name, content in zip(_PROGRAM, pieces(data), strict=False):
            archive.writestr(f"p/{name}", content)
    with contextlib.suppress(Exception):
        check_program(file.getvalue())


def torch_script(data: bytes) -> None:
    """Check a script archive: it is accepted or refused, and nothing of it runs."""
    with contextlib.suppress(Exception):
        check_script(data)

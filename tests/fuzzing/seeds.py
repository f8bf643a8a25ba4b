"""``python -m tests.fuzzing.seeds FOLDER``: write valid inputs of the targets, from which a fuzzer begins."""

import io
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import safetensors.numpy

from policybridge.inference import inference_service_pb2
from policybridge.v1 import policy_service_pb2
from policybridge_forms import Form
from policybridge_serdes import ElementType, Layout, Signature, TensorSpec, Values, load_serdes
from policybridge_serdes.interactive import context_line, decided_lines, header_line, observation_lines
from policybridge_serdes.training_log import LogHeader, TrainingLogWriter
from policybridge_server.grpc.http2.headers import write_headers
from policybridge_server.ledger.packing import pack_rows
from policybridge_server.mlbridge.pipes.frames import frame
from tests.forms.every import every
from tests.forms.parts import SMALL
from tests.fuzzing.clients import ADVICE, EXPLORES, FEATURES
from tests.fuzzing.connections import FIELDS
from tests.fuzzing.decoders import LAYOUTS

_ADVICE: Final = TensorSpec("advice", ElementType.INT64, (1,))
_SIGNATURE: Final = Signature(LAYOUTS[0], _ADVICE)
_HELLO: Final = (
    b'{"policybridge":1,"policy":"echo","version":1,"framing":"chance","options":{"a":"b"},"exploration":{"seed":1}}\n'
)
_RESUME: Final = (
    b'{"policybridge":1,"resume":"%032x","policy":"echo","version":1,"digest":"sha256:0","alias":"a","context":"m"}\n'
    % 7
)
_PIPE_JSON: Final = (
    b'{"x":[1,2],"f":[0.5,inf],"t":["a"],"b":[true]}',
    b'{"x":[3,4],"f":[1.5,-nan],"t":["b"],"b":[false]}',
)
_BINARY: Final = (
    b'{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","parameters":{"binary_data_size":8}}],'
    b'"parameters":{"binary_data_output":true}}\0' + bytes(8)
)
_MASK: Final = TensorSpec("mask", ElementType.INT64, (3,))
_GRAPH: Final = b'{"target":"torch.ops.aten.add.Tensor","expr_str":"Max(s0, 1.5) + 2*s1","in_spec":"[1,{}]"}'
_TOML: Final = b'backend = "onnx"\nbatch = true\n[rename]\na = "b"\n[fill]\nc = 1\n[head]\nkind = "argmax"\n'


def _record(layout: Layout) -> Values:
    values: Values = np.empty(1, layout.dtype)
    for spec in layout.specs:
        shape = [2 if size < 0 else size for size in spec.shape]
        text = spec.type.is_text
        values[spec.name][0] = np.full(shape, "text", object) if text else np.zeros(shape, spec.type.dtype)
    return values


def joined(parts: Sequence[bytes]) -> bytes:
    """Join parts as `tests.fuzzing.decoders.pieces` cuts them: each behind its length, of at most 255 bytes."""
    cut = [part[start : start + 255] for part in parts for start in range(0, max(len(part), 1), 255)]
    return b"".join(bytes((len(part),)) + part for part in cut)


def _serdes(name: str) -> Iterator[bytes]:
    serdes = load_serdes(name)
    for layout in LAYOUTS:
        yield serdes.encode(_record(layout), layout)
        yield serdes.codec(layout).encode(_record(layout))


def _stream() -> bytes:
    payload = load_serdes("bitstream").codec(LAYOUTS[0]).encode(_record(LAYOUTS[0]))
    decided = decided_lines(2, 9, payload * 2 + bytes(16) + struct.pack("<2f", -0.5, 0), chances=True)
    return header_line(_SIGNATURE) + context_line("main") + observation_lines(0, payload, fixed=True) + decided


def _log() -> bytes:
    file = io.BytesIO()
    with TrainingLogWriter(file, LogHeader(LAYOUTS[0], TensorSpec("reward", ElementType.FLOAT, (1,)))) as writer:
        writer.context("main")
        writer.observation(_record(LAYOUTS[0]))
        writer.outcome(1.0)
    return file.getvalue()


def _evaluate(value: int) -> bytes:
    request = policy_service_pb2.EvaluateRequest()
    request.policy.name = "echo"
    request.encoded.serdes = "bitstream"
    layout = LAYOUTS[0]
    request.encoded.data = load_serdes("bitstream").encode(_record(layout), layout)[:-1] + bytes((value,))
    return request.SerializeToString()


def _infer(value: int) -> bytes:
    request = inference_service_pb2.ModelInferRequest(model_name="echo", id=str(value))
    request.inputs.add(name="x", datatype="INT64", shape=[1])
    request.raw_input_contents.append(struct.pack("<q", value))
    return request.SerializeToString()


def _frames() -> bytes:
    fields = {":path": "/policybridge.v1.PolicyService/Evaluate", **FIELDS}
    message = _evaluate(1)
    data = struct.pack(">BL", 0, len(message)) + message
    frames = [b"\1\4\1" + write_headers(fields.items()), b"\0\1\1" + data[:200], b"\6\0\0" + bytes(8), b"\4\0\0"]
    return joined(
        [*frames, b"\x08\0\0\0\0\0\1", b"\3\0\1\0\0\0\x08", b"\1\0\3" + write_headers(fields.items()), b"\x09\4\3"]
    )


_OPENED: Final = b'{"session":"1","policy":"echo","version":1,"digest":"sha256:0"}\n'


def _socket_answers() -> Iterator[bytes]:
    yield b'\0{"error":{"status":5,"message":"no policy"}}\n'
    yield b'\0{"recorded":true}\n'
    for number, spec in enumerate(ADVICE):
        layout = Layout((spec,))
        advice = load_serdes("bitstream").codec(layout).encode(_record(layout))
        reply = b"\0" + (b"" if layout.fixed else struct.pack("<Q", len(advice))) + advice
        recorded = b'\0{"recorded":true}\n'
        yield bytes((number,)) + _OPENED + reply * 3 + recorded
        # The lowest first bytes of the form that EXPLORES marks.
        first = EXPLORES + (number - EXPLORES) % len(ADVICE)
        yield bytes((first,)) + _OPENED + (reply + struct.pack("<f", -0.5)) * 3 + recorded
        yield bytes((number,)) + _OPENED + reply + b'\1{"error":{"status":13,"message":"it failed"}}\n'


def _pipe_answers() -> Iterator[bytes]:
    raw = (bytes(8), struct.pack("<2f", 0, 1), b"text", b"\1\0\1", b"text")
    told = (b"1", b"[[0.5,1e999]]", b'["a"]', b"[true,false,true]", b'"a"')
    for number, (answer, json) in enumerate(zip(raw, told, strict=True)):
        yield bytes((number,)) + frame(answer) * 3
        yield bytes((EXPLORES + (number - EXPLORES) % len(ADVICE),)) + frame(b'{"out":%s}' % json) * 3


def _grpc_answers() -> Iterator[bytes]:
    version = policy_service_pb2.PolicyVersion(name="echo", version=1)
    opened = policy_service_pb2.SessionResponse(opened=policy_service_pb2.Opened(session_id="1", policy=version))
    recorded = policy_service_pb2.SessionResponse(outcome_recorded=policy_service_pb2.OutcomeRecorded())
    for number, spec in enumerate(ADVICE):
        layout = Layout((spec,))
        advice = load_serdes("bitstream").codec(layout).encode(_record(layout))
        decisions = [
            policy_service_pb2.SessionResponse(decision=policy_service_pb2.Decision(step=step, advice=advice))
            for step in (1, 2, 3)
        ]
        messages = [each.SerializeToString() for each in (opened, *decisions, recorded)]
        yield bytes((number,)) + joined(messages)
    response = policy_service_pb2.EvaluateResponse(policy=version)
    response.encoded.data = load_serdes("bitstream").encode(_record(FEATURES), FEATURES)
    yield b"\0" + joined([response.SerializeToString()])


def _compiler() -> Iterator[bytes]:
    names = ("cost_estimate", "node_count", "inlining_default")
    for task, features in enumerate(([TensorSpec(name, ElementType.INT64, (1,)) for name in names], [_MASK], [_MASK])):
        signature = Signature(Layout.of(features), _ADVICE)
        payload = load_serdes("bitstream").codec(signature.features).encode(_record(signature.features))
        stream = header_line(signature) + context_line("f") + observation_lines(0, payload, fixed=True) * 2
        for defaults in (0, 1, 2):
            yield bytes((task, defaults, 1)) + joined([stream])


def _native_messages() -> Iterator[bytes]:
    """Choose by the first byte JSON, the protocol's lines, a tensor (the second: its spec) or a compiler's stream."""
    signature = Signature(LAYOUTS[0], _ADVICE)
    for line in (b'{"a":[1,-2.5e3,"\\u00e9\\ud83d\\ude00",{"b":null}],"c":true}', b'"text"', header_line(signature)):
        yield b"\0" + line
    failure = b'{"error":{"status":5,"message":"no policy"}}\n'
    for line in (_OPENED, failure, b'{"recorded":true}\n', header_line(signature), context_line("main")):
        yield b"\1" + line
    size, lengths = struct.Struct("<Q"), struct.Struct("<2L")
    numbers, texts = bytes(16), lengths.pack(1, 2) + b"abc"
    tensors = (numbers, size.pack(2) + numbers, size.pack(1) + size.pack(1) + b"\1\0\1", size.pack(2) + texts, texts)
    for number, data in enumerate((*tensors, bytes(8), size.pack(0))):
        yield bytes((2, number)) + data
    yield from (b"\3" + stream for stream in _compiler())


def _stores() -> Iterator[bytes]:
    head, key = b"policybridge-decisions 1\n", b"ea553995adf89bda "
    site = b"module llvm=22 level=Oz by=site digest=- path=src/parse.c\n"
    choices = (b"skip early-machinelicm", b"skip SimplifyCFGPass.1 f", b"add gvn-hoist@early", b"add iroutliner@last")
    kept = (b"set ext-tsp f", b"keep early-machinelicm f", b"keep iroutliner@last f", b"inline f g", b"call f h")
    every = b"".join(key + choice + b"\n" for choice in (*choices, *kept))
    for choice in (*choices, *kept, b"skip LCSSAPass", b"skip SROAPass.", b"add gvn@", b"keep @last"):
        yield head + site + key + choice + b"\n"
    yield head + site + every + site.replace(b"by=site", b"by=sequence") + b"ea553995adf89bda.7 inline f g\n"
    yield head


def _questions() -> Iterator[bytes]:
    """Encode by hand what ``_PROTO`` describes: x, name, first, and nodes with values."""
    values = b"\x0a\x08" + struct.pack("<2f", 1, 2)
    question = b"\x0a\x01\x07\x12\x01f\x18\x01" + b"\x2a" + bytes((len(values),)) + values
    yield joined([b"\0" + question, b"\0" + question, b"\0"])
    yield joined([b"\x80" + question, b"\x80\x12\x01f\x20\x01", b"\x80\x12\x01g"])


def seeds() -> dict[str, list[bytes]]:
    """Give valid inputs by the name of their target; only the corpus has TorchScript, because torch deprecates it."""
    infer_json = (
        b'{"id":"1","inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[1]}],"outputs":[{"name":"y"}]}'
    )
    post = b"POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sized = post + b"Content-Length: %d\r\n\r\n" % len(infer_json) + infer_json
    spec = b'{"name":"x","port":0,"shape":[1],"type":"int64_t"}'
    return {
        **{name: list(_serdes(name)) for name in ("bitstream", "json", "protobuf")},
        "interactive": [joined([_stream()])],
        "specs": [b'{"tensors":[' + spec + b"]}\n", b"[" + spec + b"]"],
        "training_log": [_log()],
        "hello": [_HELLO, _RESUME, b'{"policybridge":1,"report":"0","outcome":{"values":{"size":1},"status":"ok"}}\n'],
        "hpack": [joined([b"\x20", b"\x40\x81\x1f\x81\x83", b"\x3f\x1d", b"\x40\x81\x1f\x81\x83", b"\xbe"])],
        "forms": [joined([_evaluate(1), _evaluate(2)])],
        "infer_json": [infer_json, _BINARY],
        "infer": [joined([_infer(1), _infer(2)])],
        "pipe_frames": [joined([frame(b"one"), frame(b"two") + b"\xff"])],
        "pipe_json": [joined(_PIPE_JSON)],
        "pipe_bytes": [joined([b'{"features":[' + spec + b"]}\n" + bytes(8) + b"\n"])],
        "ledger_column": [
            bytes([count]) + pack_rows(layout, [_record(layout)] * count) for layout in LAYOUTS for count in (1, 3)
        ],
        "policy_toml": [_TOML],
        "torch_program": [joined([_GRAPH, b'{"config":{"w":{"use_pickle":false,"path_name":"weight_0"}}}', b""])],
        "weights": [safetensors.numpy.save({"w": np.zeros(2, np.float32)})],
        **{name: [Form.of(SMALL).data, Form.of(every()).data] for name in ("policy_form", "native_form")},
        "llvm_host": list(_compiler()),
        "native_messages": list(_native_messages()),
        "native_socket": list(_socket_answers()),
        "native_store": list(_stores()),
        "client_socket": list(_socket_answers()),
        "client_pipe": list(_pipe_answers()),
        "client_grpc": list(_grpc_answers()),
        "mlbridge_calls": list(_questions()),
        "grpc_frames": [_frames()],
        "socket_bytes": [
            _HELLO.replace(b'"version":1,', b"") + _stream(),
            _RESUME + _stream() + b'{"end":true}\n',
        ],
        "http_bytes": [
            sized,
            b"GET /v2/health/ready HTTP/1.1\r\nHost: a\r\n\r\n",
        ],
    }


def main() -> None:
    """Write the inputs, one folder a target."""
    for name, inputs in seeds().items():
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(inputs):
            (folder / f"valid-{number}").write_bytes(data)


if __name__ == "__main__":
    main()

"""The connection to a model behind ML-Compiler-Bridge's pipes: ``mlbridge-pipe:BASE`` or ``mlbridge-pipe:BASE:json``.

For models that use its Python package `compilerinterface`, and for `policybridge serve --pipe`. There is one session at
a time. The format has no place for the name of a policy or an outcome, so these cannot be sent.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_client.pipe_wire import PipeWire
from policybridge_core.closing import Closing
from policybridge_core.errors import InvalidError, PreconditionError, UnsupportedError
from policybridge_serdes import (
    VARIES,
    ElementType,
    Layout,
    Outcome,
    PolicyReference,
    PolicyVersion,
    SessionOptions,
    Signature,
    TensorSpec,
    Values,
    pack,
    tensor,
)
from policybridge_serdes.checks import check_bool

_PORT: Final = 6020
"""The port that ML-Compiler-Bridge writes into every tensor's description."""

_FORMATS: Final = ("bytes", "json")


class PipeConnection(Closing):
    """A model that is served through a pair of FIFOs.

    Args:
        target: ``BASE``, followed by ``:json`` or ``:bytes`` (the default).
        timeout: limit of each wait for the other side, in seconds.

    """

    def __init__(self, target: str, timeout: float) -> None:
        if not timeout > 0:
            raise InvalidError(f"a timeout is more than 0 seconds, not {timeout}")
        base, _, form = target.rpartition(":")
        self._base, self._format = (base, form) if form in _FORMATS else (target, "bytes")
        self._timeout = timeout
        self._session: PipeSession | None = None

    def open(self, policy: PolicyReference, signature: Signature, options: SessionOptions) -> "PipeSession":  # noqa: ARG002
        """Open the FIFOs. The other side has one policy; its name cannot be checked."""
        if options.exploration is not None or options.options or options.labels:
            raise UnsupportedError("ML-Compiler-Bridge's pipes carry neither exploration nor options nor labels")
        if self._session is not None and self._session.is_open:
            raise PreconditionError(f"{self._base} has one session at a time; close the one before")
        self._session = PipeSession(PipeWire(self._base, self._timeout), signature, self._format)
        return self._session

    def check(self) -> None:
        """Check that the FIFOs are served. To the other side this is a compilation without a request."""
        PipeWire(self._base, self._timeout).close()

    def report_outcome(self, session_id: str, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: the format has no place for an outcome."""
        raise UnsupportedError("ML-Compiler-Bridge's pipes carry no outcomes")

    def close(self) -> None:
        """End the session."""
        if self._session is not None:
            self._session.close()


class PipeSession(Closing):
    """One compilation; see `ClientSession`."""

    decides: Sequence[str] = ()
    log_probability: float | None = None

    def __init__(self, wire: PipeWire, signature: Signature, form: str) -> None:
        self._wire = wire
        if signature.advice.shape.count(VARIES) > 1:
            wire.close()
            raise InvalidError(f"ML-Compiler-Bridge's answers are flat; {signature.advice} has more than one open size")
        encoder: Callable[[Layout], Callable[[Values], bytes]] = _bytes_encoder if form == "bytes" else _json_encoder
        decoder = _bytes_decoder if form == "bytes" else _json_decoder
        try:
            self._encode, self._decode = encoder(signature.features), decoder(signature.advice)
        except BaseException:
            wire.close()
            raise
        self.is_open = True

    @property
    def id(self) -> str:
        """Refuse: the other side gives no session id."""
        return _unknown()

    @property
    def policy(self) -> PolicyVersion:
        """Refuse: the other side does not name its version."""
        return _unknown()

    def evaluate(self, observation: Values) -> Values:
        """Ask for one decision."""
        if not self.is_open:
            raise PreconditionError("the session is over")
        try:
            return self._decode(self._wire.exchange(self._encode(observation)))
        except BaseException:
            # Also after a signal: the late response would look like the response to the next request.
            self.close()
            raise

    def context(self, name: str) -> None:
        """Do nothing: the format has no place for a context."""

    def report(self, outcome: Outcome) -> None:  # noqa: ARG002
        """Refuse: the format has no place for an outcome. As after any error, the session is closed."""
        self.close()
        raise UnsupportedError("ML-Compiler-Bridge's pipes carry no outcomes")

    def close(self) -> None:
        """End the session. A second call does nothing."""
        self.is_open = False
        self._wire.close()


def _unknown() -> NoReturn:
    raise UnsupportedError("ML-Compiler-Bridge's pipes name neither the policy nor the session")


def _bytes_encoder(layout: Layout) -> Callable[[Values], bytes]:
    fixed = _header([(spec, spec.shape) for spec in layout.specs]) if layout.fixed else None

    def encode(values: Values) -> bytes:
        arrays = [(spec, _raw(spec, tensor(spec, values))) for spec in layout.specs]
        header = _header([(spec, array.shape) for spec, array in arrays]) if fixed is None else fixed
        return b"".join([header, *(array.tobytes() for _, array in arrays), b"\n"])

    return encode


def _header(described: list[tuple[TensorSpec, tuple[int, ...]]]) -> bytes:
    features = [
        {"name": spec.name, "type": _element(spec.type), "port": _PORT, "shape": list(shape) or [1]}
        for spec, shape in described
    ]
    return msgspec.json.encode({"features": features}) + b"\n"


def _element(kind: ElementType) -> str:
    return "uint8_t" if kind.is_text or kind is ElementType.BOOL else kind.value


def _raw(spec: TensorSpec, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not spec.type.is_text:
        return array
    if array.size != 1:
        raise InvalidError(f"{spec}: ML-Compiler-Bridge's bytes carry one string, not {array.size}")
    (text,) = array.flat
    return np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8)


def _json_encoder(layout: Layout) -> Callable[[Values], bytes]:
    if any(spec.type is ElementType.BYTES for spec in layout.specs):
        raise UnsupportedError("ML-Compiler-Bridge's JSON carries no bytes")
    names = sorted(layout.by_name)

    def encode(values: Values) -> bytes:
        fields = (f"{_plain(name)}:{_json(layout.by_name[name], values)}" for name in names)
        return f"{{{','.join(fields)}}}".encode()

    return encode


def _json(spec: TensorSpec, values: Values) -> str:
    texts = [_plain(element) for element in tensor(spec, values).reshape(-1).tolist()]
    return texts[0] if spec.shape in ((), (1,)) else f"[{','.join(texts)}]"


def _plain(element: object) -> str:
    # As LLVM writes numbers: also inf and nan, which are not JSON.
    return f"{element:.17g}" if isinstance(element, float) else msgspec.json.encode(element).decode()


def _bytes_decoder(spec: TensorSpec) -> Callable[[bytes], Values]:
    layout = Layout((spec,))

    def decode(data: bytes) -> Values:
        if spec.type.is_text:
            return _packed(layout, _text(spec, data))
        if len(data) % spec.type.dtype.itemsize or (spec.fixed and len(data) != spec.size):
            raise InvalidError(f"{len(data)} bytes came where {spec} was asked for")
        array = np.frombuffer(data, spec.type.dtype)
        if spec.type is ElementType.BOOL:
            check_bool(spec, array)
        return _packed(layout, array)

    return decode


def _json_decoder(spec: TensorSpec) -> Callable[[bytes], Values]:
    layout = Layout((spec,))

    def decode(data: bytes) -> Values:
        try:
            # Python's own parser reads 1e999 as infinity, as the compiler's parser does.
            answer = json.loads(data)["out"]
            flat = np.asarray(answer, object if spec.type.is_text else None).reshape(-1)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise InvalidError(f'the answer is no {{"out": advice}}: {data[:60]!r}') from error
        return _packed(layout, flat)

    return decode


def _text(spec: TensorSpec, data: bytes) -> npt.NDArray[Any]:
    try:
        return np.array([data.decode() if spec.type is ElementType.STRING else data], object)
    except UnicodeDecodeError as error:
        raise InvalidError(f"{spec}: a string is not UTF-8: {error}") from error


def _packed(layout: Layout, flat: npt.NDArray[Any]) -> Values:
    (spec,) = layout.specs
    try:
        shaped = flat.reshape(spec.shape)
    except ValueError as error:
        raise InvalidError(f"{flat.size} elements came where {spec} was asked for") from error
    return pack(layout, {spec.name: shaped})

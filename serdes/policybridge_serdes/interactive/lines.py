"""The lines of LLVM's interactive stream, as clients write them."""

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_core.session import Outcome
from policybridge_core.text import is_unicode
from policybridge_serdes.specs import Signature


def header_line(signature: Signature) -> bytes:
    """Make the header line that LLVM would write, for other clients."""
    fields = {
        "features": [spec.to_json() for spec in signature.features.specs],
        "advice": signature.advice.to_json(),
    }
    return msgspec.json.encode(fields) + b"\n"


def context_line(name: str) -> bytes:
    """Make the line that starts a context.

    Raises:
        InvalidError: the name is not valid Unicode text.

    """
    if not is_unicode(name):
        raise InvalidError(f"a context's name is no Unicode text: {name!a}")
    return msgspec.json.encode({"context": name}) + b"\n"


def observation_lines(number: int, payload: bytes, *, fixed: bool) -> bytes:
    """Make the lines of one observation; ``payload`` is in the bitstream's session form."""
    if fixed:
        return b'{"observation":%d}\n%b\n' % (number, payload)
    return b'{"observation":%d,"bytes":%d}\n%b\n' % (number, len(payload), payload)


def decided_lines(count: int, nanoseconds: int, payload: bytes, *, chances: bool = False) -> bytes:
    """Make the lines that report decisions of the client; ``chances``: the payload ends with log-probabilities."""
    said = b',"chances":true' if chances else b""
    return b'{"decided":%d,"nanoseconds":%d%b}\n%b\n' % (count, nanoseconds, said, payload)


def form_line(digest: str) -> bytes:
    """Make the line that asks for a form."""
    return msgspec.json.encode({"form": digest}) + b"\n"


def end_line() -> bytes:
    """Make the line that ends a session."""
    return b'{"end":true}\n'


def outcome_line(outcome: Outcome) -> bytes:
    """Make the line that reports the outcome of the compilation."""
    return msgspec.json.encode({"outcome": outcome_fields(outcome)}) + b"\n"


def outcome_fields(outcome: Outcome) -> dict[str, object]:
    """Give an outcome as it stands in JSON."""
    fields: dict[str, object] = {"values": dict(outcome.values), "status": outcome.status}
    if outcome.contexts:
        fields["contexts"] = {name: dict(values) for name, values in outcome.contexts.items()}
    return fields

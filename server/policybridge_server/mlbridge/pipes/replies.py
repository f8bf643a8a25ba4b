"""From the policy's advice to the compiler's reply: the element type and the number of elements that it reads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes import TensorSpec, Values, tensor
from policybridge_serdes.values import fit
from policybridge_server.mlbridge.pipes.formats import Format
from policybridge_server.mlbridge.pipes.frames import frame

ReplyWriter = Callable[[Values], bytes]
"""Makes the framed reply of one record of advice; raises InvalidError if the compiler could not read it."""


def reply_writer(read: TensorSpec, given: TensorSpec, form: Format) -> ReplyWriter:
    """Prepare the replies for a compiler that reads ``read``, of a policy that gives ``given``.

    Integers are converted if they are in range, and floats to the nearest.

    Raises:
        InvalidError: the policy's advice can never fit the spec that the compiler reads.

    """
    counts = given.fixed and not read.varies and given.count != read.count
    if counts or read.type.is_text != given.type.is_text or (_is_float(given) and not _is_float(read)):
        raise InvalidError(f"the policy gives {given}; the compiler reads {read}")

    if given.fixed and (given.count, given.type.dtype.kind, read.type.dtype.kind) == (1, "i", "i"):
        return _integer_writer(read, given, form)

    def write(advice: Values) -> bytes:
        return encode_reply(read, tensor(given, advice), form)

    return write


def _integer_writer(read: TensorSpec, given: TensorSpec, form: Format) -> ReplyWriter:
    # Fast path for most advice, a choice: the policy gives one int64_t, and the compiler reads one int.
    dtype, limits = read.type.dtype, np.iinfo(read.type.dtype)

    def write(advice: Values) -> bytes:
        number = int(advice[given.name].item())
        if not limits.min <= number <= limits.max:
            raise InvalidError(f"{read} was given {number}, which is out of its range")
        return frame(form.reply(read, np.array([number], dtype)))

    return write


def encode_reply(read: TensorSpec, advice: npt.ArrayLike, form: Format) -> bytes:
    """Make the framed reply of an advice.

    Raises:
        InvalidError: the compiler could not read it.

    """
    flat: npt.NDArray[Any] = np.asarray(advice, object if read.type.is_text else None).reshape(-1)
    return frame(form.reply(read, fit(read, flat)))


def _is_float(spec: TensorSpec) -> bool:
    return spec.type.dtype.kind == "f"

"""Checks that every SerDes makes on received bytes; each failure is an InvalidError."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes.contract import Codec
from policybridge_serdes.specs import VARIES, ElementType, Layout, TensorSpec, can_hold

_LARGEST_HEADER = 1 << 14

_T = TypeVar("_T")
Prepared = tuple[Layout, Codec]
"""The layout in a header, and the codec for the values that follow it."""


def remember(prepare: Callable[[bytes], Prepared]) -> Callable[[bytes], Prepared]:
    """Cache the results of ``prepare`` for the most recent headers of self-describing messages.

    Long headers are not cached: a client could fill the memory with layouts that nobody sends twice.
    """
    kept = lru_cache(maxsize=128)(prepare)
    return lambda header: kept(header) if len(header) <= _LARGEST_HEADER else prepare(header)


def decode_json(decoder: msgspec.json.Decoder[_T], data: bytes, wanted: str) -> _T:
    """Parse JSON.

    Raises:
        InvalidError: the JSON is malformed or not of the decoder's type; the message has ``wanted``.

    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"not {wanted}: {error}") from error


def check_bool(spec: TensorSpec, array: npt.NDArray[Any]) -> None:
    """Refuse bytes other than 0 and 1: numpy and C++ treat them as true, and then compute wrong results.

    Raises:
        InvalidError: a byte is neither 0 nor 1.

    """
    if array.size and array.view(np.uint8).max() > 1:
        raise InvalidError(f"{spec}: a bool is the byte 0 or 1, not {array.view(np.uint8).max()}")


def fill_shape(spec: TensorSpec, sizes: list[int]) -> tuple[int, ...]:
    """Return the spec's shape with each −1 replaced by the next of ``sizes``.

    Raises:
        InvalidError: the shape is too large. An empty tensor can announce such a shape without sending any bytes.

    """
    following = iter(sizes)
    shape = tuple(next(following) if dim == VARIES else dim for dim in spec.shape)
    if not can_hold(shape):
        raise InvalidError(f"{spec}: no tensor has the shape {list(shape)}")
    return shape


def texts_to_array(spec: TensorSpec, texts: list[bytes], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Make an object array of ``bytes`` or, for string, of ``str``.

    Raises:
        InvalidError: a string is not UTF-8, or the number of strings does not match the shape.

    """
    array = np.empty(len(texts), object)
    try:
        array[:] = [text.decode() for text in texts] if spec.type is ElementType.STRING else texts
    except UnicodeDecodeError as error:
        raise InvalidError(f"{spec}: a string is not UTF-8: {error}") from error
    return reshape(spec, array, shape)


def reshape(spec: TensorSpec, flat: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Reshape the flat elements to the announced shape.

    Raises:
        InvalidError: the number of elements does not match the shape.

    """
    if flat.size != math.prod(shape):
        raise InvalidError(f"{spec}: {flat.size} elements came for the shape {list(shape)}")
    return flat.reshape(shape)

"""What every SerDes checks of bytes that others sent: whatever is wrong with them is an InvalidError."""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes.contract import Codec
from policybridge_serdes.specs import VARIES, ElementType, Layout, TensorSpec

_LARGEST_HEADER = 1 << 16
_LARGEST_SHAPE = 2**40

_T = TypeVar("_T")
Prepared = tuple[Layout, Codec]
"""A header's layout, and the codec for the values behind it."""


def remember(prepare: Callable[[bytes], Prepared]) -> Callable[[bytes], Prepared]:
    """Keep what ``prepare`` made of the latest headers of self-describing messages.

    Long ones are not kept: a stranger could fill the memory with layouts that nobody sends twice.
    """
    kept = lru_cache(maxsize=128)(prepare)
    return lambda header: kept(header) if len(header) <= _LARGEST_HEADER else prepare(header)


def decode_json(decoder: msgspec.json.Decoder[_T], data: bytes, wanted: str) -> _T:
    """Parse JSON.

    Raises:
        InvalidError: it is malformed or not of the decoder's type; the message says what was ``wanted``.

    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidError(f"not {wanted}: {error}") from error


def check_bool(spec: TensorSpec, array: npt.NDArray[Any]) -> None:
    """Refuse bytes that are neither 0 nor 1: numpy and C++ take them for true and then compute nonsense.

    Raises:
        InvalidError: there is such a byte.

    """
    if array.size and array.view(np.uint8).max() > 1:
        raise InvalidError(f"{spec}: a bool is the byte 0 or 1, not {array.view(np.uint8).max()}")


def fill_shape(spec: TensorSpec, sizes: list[int]) -> tuple[int, ...]:
    """Give the spec's shape with ``sizes`` in the places of −1.

    Raises:
        InvalidError: numpy cannot hold such a shape, which an empty tensor may claim without taking any bytes.

    """
    following = iter(sizes)
    shape = tuple(next(following) if dim == VARIES else dim for dim in spec.shape)
    if math.prod(dim or 1 for dim in shape) > _LARGEST_SHAPE:
        raise InvalidError(f"{spec}: no tensor has the shape {list(shape)}")
    return shape


def texts_to_array(spec: TensorSpec, texts: list[bytes], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Make an object array of ``bytes`` or, for string, of ``str``.

    Raises:
        InvalidError: a string is not UTF-8, or there are too many or too few for the shape.

    """
    array = np.empty(len(texts), object)
    try:
        array[:] = [text.decode() for text in texts] if spec.type is ElementType.STRING else texts
    except UnicodeDecodeError as error:
        raise InvalidError(f"{spec}: a string is not UTF-8: {error}") from error
    return reshape(spec, array, shape)


def reshape(spec: TensorSpec, flat: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Give the flat elements the shape that was announced for them.

    Raises:
        InvalidError: there are too many or too few.

    """
    if flat.size != math.prod(shape):
        raise InvalidError(f"{spec}: {flat.size} elements came for the shape {list(shape)}")
    return flat.reshape(shape)

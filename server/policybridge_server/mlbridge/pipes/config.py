"""One ``[[pipe]]`` of the server's configuration, also in its short form ``BASE[:FORMAT],KEY=VALUE…``."""

import re
from typing import Annotated, Any, Final

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, TensorSpec
from policybridge_server.config import convert_fields

Fallback = bool | int | float | str | list[bool | int | float]
"""An advice as TOML and JSON write it."""

ANY: Final = ""
"""The key for every message; no feature has this name."""

_C_NAMES: Final = {"int": "int32_t", "long": "int64_t", "char": "int8_t"}
"""The element types that ML-Compiler-Bridge's users know by their names in C++."""

_ADVICE: Final = re.compile(r"(\w+)(?:\[(-?\d+)\])?")
_NEXT_FIELD: Final = re.compile(r",(?=[a-z]+(?:\.[^,=]+)?=)")


class PipeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A pair of FIFOs, or a pool of them.

    Attributes:
        base: the compiler reads ``BASE.in`` and writes ``BASE.out``.
        policy: the policy: ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``.
        advice: the type that the compiler reads, which no message has: ``int``, ``float[4]``, ``int[-1]``. For a
            compiler that reads several types: feature → type after a message with that feature.
        format: the name of the format in which messages are written.
        count: the number of pairs for concurrent compiles, ``BASE-0`` and on; absent: one pair, ``BASE`` itself.
        fallback: the advice if the policy gives none; absent: the compiler ends. With several types of
            advice: one for all, or feature → fallback.
        features: element types by feature, if neither the message nor the policy has them.
        options: the sessions' options for the policy.
        labels: the sessions' labels, besides ``pipe``, which is the base.

    """

    base: str
    policy: str
    advice: str | dict[str, str]
    format: str = "bytes"
    count: Annotated[int, msgspec.Meta(ge=1, le=1000)] | None = None
    fallback: Fallback | dict[str, Fallback] | None = None
    features: dict[str, str] = {}
    options: dict[str, str] = {}
    labels: dict[str, str] = {}

    def __post_init__(self) -> None:
        try:
            _ = self.advice_specs, self.fallbacks, self.feature_types
        except InvalidError as error:
            raise ValueError(str(error)) from error

    @property
    def bases(self) -> list[str]:
        """The bases of the pool."""
        return [self.base] if self.count is None else [f"{self.base}-{index}" for index in range(self.count)]

    @property
    def advice_specs(self) -> dict[str, TensorSpec]:
        """The specs that the compiler reads, shape [1], [n] or [−1], by the feature that selects it, or by `ANY`.

        Raises:
            InvalidError: a type has more than one dimension, or there is none.

        """
        if isinstance(self.advice, str):
            return {ANY: self._advice_spec(self.advice)}
        if not self.advice or ANY in self.advice:
            raise InvalidError(f"pipe {self.base}: a table of advice needs feature → type that the compiler reads")
        return {feature: self._advice_spec(text) for feature, text in self.advice.items()}

    def _advice_spec(self, text: str) -> TensorSpec:
        match = _ADVICE.fullmatch(text)
        if match is None:
            raise InvalidError(f"pipe {self.base}: advice is a type as int, float[4] or int[-1], not {text}")
        spec = TensorSpec("advice", self._type(match[1]), (1 if match[2] is None else int(match[2]),))
        if spec.type.is_text and spec.shape != (1,):
            raise InvalidError(f"pipe {self.base}: a compiler reads one string, not {text}")
        return spec

    @property
    def fallbacks(self) -> dict[str, Fallback]:
        """The fallbacks by the keys of `advice_specs`; keys without one are left out.

        Raises:
            InvalidError: one is for a feature that `advice` does not name.

        """
        if self.fallback is None:
            return {}
        if not isinstance(self.fallback, dict):
            return dict.fromkeys(self.advice_specs, self.fallback)
        unknown = self.fallback.keys() - self.advice_specs.keys()
        if unknown:
            raise InvalidError(
                f"pipe {self.base}: fallback names {', '.join(sorted(unknown))}, which the table `advice` does not"
            )
        return self.fallback

    @property
    def feature_types(self) -> dict[str, ElementType]:
        """The declared element types.

        Raises:
            InvalidError: one is unknown.

        """
        return {name: self._type(kind) for name, kind in self.features.items()}

    def _type(self, name: str) -> ElementType:
        try:
            return ElementType(_C_NAMES.get(name, name))
        except ValueError:
            known = ", ".join([*_C_NAMES, *(kind.value for kind in ElementType)])
            raise InvalidError(f"pipe {self.base}: unknown element type {name!r}; known are {known}") from None

    @classmethod
    def parse(cls, text: str) -> "PipeConfig":
        """Read ``/tmp/mlb:json,policy=inliner,advice=int,fallback=0,count=8,features.cost=double``.

        A table's keys are written as those of ``features``: ``advice.request_int=int,advice.request_vec=float[-1]``.

        Raises:
            InvalidError: a field is unknown, of the wrong type or missing.

        """
        where, *rest = _NEXT_FIELD.split(text)
        base, colon, form = where.rpartition(":")
        fields: dict[str, Any] = {"base": base, "format": form} if colon else {"base": where}
        for field in rest:
            key, _, value = field.partition("=")
            table, dot, name = key.partition(".")
            plain = _plain(value) if table in ("fallback", "count") else value
            if not dot:
                fields[key] = plain
            elif isinstance(fields.setdefault(table, {}), dict):
                fields[table][name] = plain
            else:
                raise InvalidError(f"--pipe {text}: {key} beside {table}={fields[table]}; one of both is right")
        return convert_fields(fields, cls, f"--pipe {text}: ")


def _plain(value: str) -> Any:
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value

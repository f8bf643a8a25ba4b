"""``[mlbridge]`` of the server's configuration: users' services, and the binding of their messages to a policy."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

Number = bool | int | float

_NumberType = Literal[
    "float", "double", "int8_t", "uint8_t", "int16_t", "uint16_t", "int32_t", "uint32_t", "int64_t", "uint64_t", "bool"
]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class FeatureConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A feature made of a field of the request.

    Attributes:
        field: the field's dotted path.
        type: the element type that the policy takes, if not the field's.
        shape: a fixed shape, one dimension for each repeated level; the first may be −1. Absent: values come flat.
        pad: whether zeros (or empty strings) pad values shorter than ``shape``; otherwise they are an error.
        truncate: whether longer values are cut; otherwise they are an error.

    """

    field: str
    type: _NumberType | None = None
    shape: list[Annotated[int, msgspec.Meta(ge=-1)]] | None = None
    pad: bool = False
    truncate: bool = False


class ConditionConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on a request: ``field`` equals a value; without one: is not 0, false or empty."""

    field: str
    equals: Number | str | None = None


class MethodConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a method is answered. A key of the method overrides its service's, which overrides ``[mlbridge]``'s.

    Attributes:
        serve: false leaves the method out.
        policy: ``NAME``, ``NAME@VERSION`` or ``NAME@ALIAS``.
        bind: feature of the policy → field of the request; other fields keep their dotted names.
        key: the field that tells sessions apart; absent: each connection is one.
        start: a field, or a condition, that starts a session; absent: the first request does.
        end: a field, or a condition, with which a session ends after the answer.
        end_advice: the advice that ends a session.
        context: the string field that names the function or module.
        labels: labels of the sessions in the ledger.
        fallback: the advice if the policy gives none; absent: the call fails (the client then uses a stale reply).
        idle_timeout: seconds without a request after which a session ends.

    """

    serve: bool | None = None
    policy: str | None = None
    bind: dict[str, str | FeatureConfig] | None = None
    key: str | None = None
    start: str | ConditionConfig | None = None
    end: str | ConditionConfig | None = None
    end_advice: Number | None = None
    context: str | None = None
    labels: dict[str, str] | None = None
    fallback: Number | list[Number] | None = None
    idle_timeout: _Seconds | None = None

    def over(self, general: "MethodConfig") -> "MethodConfig":
        """Return this configuration, with its absent keys from ``general``."""
        names = MethodConfig.__struct_fields__
        chosen: dict[str, Any] = {}
        for name in names:
            own = getattr(self, name)
            chosen[name] = getattr(general, name) if own is None else own
        return MethodConfig(**chosen)


class MlBridgeConfig(MethodConfig, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[mlbridge]``.

    Attributes:
        protos: folders of .proto files; compiling them needs the extra ``mlbridge``.
        descriptors: files with a ``FileDescriptorSet`` and all its imports.
        services: the keys of a service, by its full name: ``package.Service``.
        methods: the keys of a method: ``package.Service/Method``.
        max_sessions: limit for one method; beyond it, the session that has been idle for longest ends.

    """

    protos: list[Path] = []
    descriptors: list[Path] = []
    services: dict[str, MethodConfig] = {}
    methods: dict[str, MethodConfig] = {}
    max_sessions: Annotated[int, msgspec.Meta(ge=1)] = 4096

    def __post_init__(self) -> None:
        if not (self.protos or self.descriptors):
            raise ValueError("needs `protos`, folders of .proto files, or `descriptors`, descriptor sets")

    def method(self, service: str, name: str) -> MethodConfig:
        """Return the configuration of one method."""
        specific = self.methods.get(f"{service}/{name}", MethodConfig())
        return specific.over(self.services.get(service, MethodConfig())).over(self)

"""``policy.toml``, and ``aliases.toml`` beside it."""

from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from policybridge_core.errors import PreconditionError

POLICY_TOML: Final = "policy.toml"

_Parsed = TypeVar("_Parsed")


class HeadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ``[head]`` of a ``policy.toml``: the model's output scores choices, and one of them is the advice.

    Attributes:
        scores: what the output is: ``logits`` or ``probabilities``.
        mask: the client's feature with an element per choice, 0 where the choice is illegal.
        advice: the advice's name.
        type: its element type, an integer one.

    """

    scores: Literal["logits", "probabilities"] = "logits"
    mask: str | None = None
    advice: str = "advice"
    type: Literal["int8_t", "int16_t", "int32_t", "int64_t"] = "int64_t"


class PolicyConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``policy.toml``.

    Attributes:
        backend: what loads the versions: ``onnx``, ``python``, …
        description: shown in lists of policies.
        inline: evaluate on the loop thread (true) or in a worker (false); absent: decided by the time that it takes.
        aliases: alias → version number, until it is set otherwise; ``latest`` is always the highest number.
        features: the inputs in LLVM's JSON form, if the artifact does not say them.
        advice: the output, likewise.
        rename: input of the policy → feature of the client, if their names differ.
        fill: input → value that it gets if the client lacks the feature.
        head: makes advice of scores, if the model gives scores.
        settings: for the backend to read.

    """

    backend: str
    description: str = ""
    inline: bool | None = None
    aliases: dict[str, int] = {}
    features: list[dict[str, Any]] | None = None
    advice: dict[str, Any] | None = None
    rename: dict[str, str] = {}
    fill: dict[str, Any] = {}
    head: HeadConfig | None = None
    settings: dict[str, Any] = {}


def parse_toml(text: bytes, where: str, kind: type[_Parsed]) -> _Parsed:
    """Read the ``text`` of a ``policy.toml`` (a `PolicyConfig`) or of an ``aliases.toml`` (alias → version number).

    Raises:
        PreconditionError: it is not of this ``kind``; the message begins with ``where``.

    """
    try:
        return msgspec.toml.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreconditionError(f"{where}: {error}") from error


def is_policy(folder: Path) -> bool:
    """Whether ``folder`` has a ``policy.toml``."""
    return (folder / POLICY_TOML).is_file()

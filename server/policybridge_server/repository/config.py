"""``policy.toml``."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_core.session import LONGEST_NAME
from policybridge_server.repository.checks import check_alias

POLICY_TOML: Final = "policy.toml"

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]

_MOST_VALUES: Final = 32
"""Values of one label in a scope: each refused session is told all of them."""

_SHOWN: Final = 60
"""Characters of a malformed value that an error shows."""

_MOST_SECONDS: Final = 1e9
"""30 years, as in the server's configuration, because a wait for a lock needs a finite limit."""


class HeadConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The ``[head]`` of a ``policy.toml``: the model's output scores choices, and one of them is the advice.

    Attributes:
        scores: the kind of output: ``logits`` or ``probabilities``, one per choice; or ``choice``, the choice itself.
        choices: with ``scores = "choice"``: the number of choices, 0 to ``choices`` − 1.
        mask: the client's feature with an element per choice, 0 if the choice is illegal.
        advice: the advice's name.
        type: the advice's element type, an integer type.

    Raises:
        ValueError: ``choices`` is missing, or given for scores.

    """

    scores: Literal["logits", "probabilities", "choice"] = "logits"
    choices: Annotated[int, msgspec.Meta(ge=2, le=1 << 16)] | None = None
    mask: str | None = None
    advice: str = "advice"
    type: Literal["int8_t", "int16_t", "int32_t", "int64_t"] = "int64_t"

    def __post_init__(self) -> None:
        if (self.scores == "choice") != (self.choices is not None):
            raise ValueError('scores = "choice" and choices = N belong together: a choice is 0 to N − 1')


class KindConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The keys of a ``policy.toml`` that describe one model.

    Attributes:
        features: the inputs in LLVM's JSON form, if the artifact does not declare them.
        advice: the output, likewise.
        rename: input of the policy → feature of the client, if their names differ.
        fill: input → its value if the client lacks the feature.
        head: turns scores into advice, if the model gives scores.
        settings: settings of the backend.
        probe: input → value in the observations of the probe; absent: random numbers.
        scope: label of a session → the array of values for which the model was made; see `StoredVersion.outside`.

    """

    features: list[dict[str, Any]] | None = None
    advice: dict[str, Any] | None = None
    rename: dict[str, str] = {}
    fill: dict[str, Any] = {}
    head: HeadConfig | None = None
    settings: dict[str, Any] = {}
    probe: dict[str, Any] = {}
    scope: dict[_Name, Any] = {}


class PolicyConfig(KindConfig, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A ``policy.toml``. Defaults are left out of a version's digest (`version_digest`): a new key changes none.

    Attributes:
        backend: the backend of the versions: ``onnx``, ``python``, …
        description: shown in lists of policies.
        inline: evaluate on the loop thread (true) or in a worker (false); absent: by its time.
        aliases: alias → version number, until it is set otherwise; ``latest`` is always the highest number.
        decides: the kinds of decisions, each by the name of the client's advice; empty: whatever a client asks.
        kinds: kind of decision → its own model; empty: one model decides all kinds. Their scopes narrow that of all.
        isolation: where a version runs: in the server's process, or in a process of its own.
        memory_limit: bytes that the version's own process may allocate.
        decision_timeout: seconds for one decision; absent: the server's.

    Raises:
        ValueError: two keys exclude each other, or an alias is malformed.

    """

    backend: str
    description: str = ""
    inline: bool | None = None
    isolation: Literal["thread", "process"] = "thread"
    memory_limit: Annotated[int, msgspec.Meta(ge=1 << 20)] | None = None
    decision_timeout: Annotated[float, msgspec.Meta(gt=0, le=_MOST_SECONDS)] | None = None
    aliases: dict[str, int] = {}
    decides: tuple[_Name, ...] = ()
    kinds: dict[_Name, KindConfig] = {}

    def __post_init__(self) -> None:
        if self.isolation == "process" and self.inline:
            raise ValueError('inline = true runs on the loop thread, and isolation = "process" beside it; give one')
        if self.isolation != "process" and self.memory_limit is not None:
            raise ValueError('memory_limit needs isolation = "process": threads share the server\'s memory')
        _check_scope("scope", self.scope)
        self._check_kinds()
        for alias in self.aliases:
            try:
                check_alias(alias)
            except InvalidError as error:
                raise ValueError(f"aliases: {error}") from error

    def _check_kinds(self) -> None:
        if not self.kinds:
            return
        if {*self.kinds} != {*self.decides}:
            raise ValueError("decides names the kinds of decisions, and [kinds.KIND] is the model of each: give both")
        stated = [name for name in KindConfig.__struct_fields__ if name != "scope" and getattr(self, name)]
        if stated:
            raise ValueError(f"{', '.join(stated)} describes one model; write [kinds.KIND.{stated[0]}] for each kind")
        for kind, own in self.kinds.items():
            _check_scope(f"kinds.{kind}.scope", own.scope)
            for label, values in own.scope.items():
                self._check_narrows(kind, label, values)

    def _check_narrows(self, kind: str, label: str, values: Sequence[str]) -> None:
        beyond = [value for value in values if value not in self.scope.get(label, values)]
        if beyond:
            raise ValueError(
                f"[kinds.{kind}.scope] has {label} {beyond[0]!a}, for which [scope] refuses the whole session; "
                "add the value to [scope], and give each kind the values that it was made for"
            )

    @property
    def by_kind(self) -> Mapping[str, "PolicyConfig"]:
        """The config of each model by the kind of its decisions; that of the only model by the empty name."""
        if not self.kinds:
            return {"": self}
        shared = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("kinds", "decides")}
        return {
            kind: PolicyConfig(
                **{**shared, **msgspec.structs.asdict(own), "scope": {**self.scope, **own.scope}, "decides": (kind,)}
            )
            for kind, own in self.kinds.items()
        }


def _check_scope(table: str, scope: Mapping[str, Any]) -> None:
    # Compilers print labels and values to terminals.
    for label, given in scope.items():
        values = given if isinstance(given, list | tuple) else ()
        if label.isprintable() and 0 < len(values) <= _MOST_VALUES and all(map(_is_value, values)):
            continue
        name = ascii(label)[1:-1][:_SHOWN]
        first = next(iter(values), "VALUE") if isinstance(given, list | tuple) else given
        example = ascii(str(first))[:_SHOWN]
        raise ValueError(
            f"[{table}] has {name} = {ascii(given)[:_SHOWN]}; the values of a label are an array of 1 to "
            f"{_MOST_VALUES} texts of 1 to {LONGEST_NAME} printable characters, such as {name} = [{example}]"
        )


def _is_value(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def is_policy(folder: Path) -> bool:
    """Whether ``folder`` has a ``policy.toml``; one that cannot be read has none."""
    # Not `Path.is_file`, which raises an error where a permission is missing.
    return os.path.isfile(folder / POLICY_TOML)  # noqa: PTH113

"""What an embedded policy takes and gives: the client's features by name, and the advice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt

from policybridge_core.errors import UnsupportedError
from policybridge_forms.content import Content
from policybridge_serdes import PolicyReference, TensorSpec
from policybridge_server.forms.making import form_of
from policybridge_server.repository import BUNDLED, HeadConfig, Repository, StoredVersion
from policybridge_train.embedding.text import identifier


@dataclass(frozen=True)
class Feature:
    """A feature as a client sends it.

    Attributes:
        spec: its name, type and shape.
        member: of the C structure.
        fill: the value if a client does not send it, flat; ``None``: the client must.

    """

    spec: TensorSpec
    member: str
    fill: npt.NDArray[Any] | None


@dataclass(frozen=True)
class Embedded:
    """A version to embed.

    Attributes:
        version: its name, number and digest.
        content: of the form of its model (docs/forms.md), of which the C is made.
        members: the client's features, each once; the mask is the last where the model does not take it.

    """

    version: StoredVersion
    content: Content
    members: Sequence[Feature]

    @property
    def advice(self) -> TensorSpec:
        """The specification of a client's answer."""
        return self.content.advice

    @property
    def head(self) -> HeadConfig | None:
        """How scores become advice; ``None``: the output is the advice."""
        return self.version.config.head

    @property
    def choices(self) -> int:
        """How many the head chooses among; 0 without a head."""
        return self.content.head.choices

    @property
    def mask(self) -> Feature | None:
        """The feature that marks the legal choices."""
        place = self.content.head.mask
        return None if place is None else self.members[place]

    @property
    def identity(self) -> str:
        """The policy's name, number and digest."""
        return f"{self.version} {self.version.policy.digest}"


def read_policies(reference: str, repository: Path | None) -> Mapping[str, Embedded]:
    """Read each model of the version that ``reference`` names in a repository; absent: in that of the package.

    The models are by the kind of their decisions, as policy.toml names it; the only one is by the empty name.

    Raises:
        NotFoundError: there is no such repository, policy, version or alias.
        PreconditionError: it cannot be loaded.
        UnsupportedError: it is no ONNX model, or has no form.

    """
    version = Repository([repository or BUNDLED]).resolve(PolicyReference.parse(reference))
    if version.config.backend != "onnx":
        raise UnsupportedError(f"{version} is of the backend {version.config.backend}; only onnx can be embedded")
    return {kind: _read(each) for kind, each in version.by_kind.items()}


def read_policy(reference: str, repository: Path | None, kind: str | None = None) -> Embedded:
    """Read the model for decisions of a ``kind``; absent: the only model. See `read_policies`.

    Raises:
        UnsupportedError: there are several models, or none of this kind.

    """
    policies = read_policies(reference, repository)
    if kind is None and len(policies) == 1:
        kind = next(iter(policies))
    if kind is None or kind not in policies:
        known = ", ".join(name for name in policies if name)
        what = f"a model for each of {known}: name one by --kind" if known else f"one model, and none for {kind} alone"
        raise UnsupportedError(f"{reference} has {what}")
    return policies[kind]


def _read(version: StoredVersion) -> Embedded:
    content = form_of(version).content
    members: list[Feature] = []
    for each in content.features:
        member = identifier(each.spec.name, {other.member for other in members})
        members.append(Feature(each.spec, member, each.fill))
    return Embedded(version, content, members)

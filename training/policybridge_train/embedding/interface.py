"""What an embedded policy takes and gives: the client's features by name, and the advice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from policybridge_core.errors import PreconditionError, UnsupportedError
from policybridge_serdes import ElementType, PolicyReference, TensorSpec
from policybridge_serdes.values import fit
from policybridge_server.backends.artifacts import artifact_file
from policybridge_server.backends.contract import convert_settings
from policybridge_server.backends.onnx.backend import OnnxSettings
from policybridge_server.backends.tensors import Input, Interface, choose_output
from policybridge_server.engine.head import Head
from policybridge_server.forms.graph import Graph, read_graph, read_ports
from policybridge_server.repository import BUNDLED, HeadConfig, Repository, StoredVersion
from policybridge_train.embedding.text import identifier


@dataclass(frozen=True)
class Feature:
    """A feature as a client sends it.

    Attributes:
        spec: its name, type and shape.
        member: of the C structure.
        fill: what stands for it where a client does not send it; ``None``: it has to.

    """

    spec: TensorSpec
    member: str
    fill: npt.NDArray[Any] | None


@dataclass(frozen=True)
class Embedded:
    """A version to embed.

    Attributes:
        version: its name, number and digest.
        graph: its model.
        inputs: how each input of the model is made of the model's features.
        features: feature of the model → feature of the client.
        output: the name of the model's output that is the advice, or scores it.
        elements: how many elements the file says that this output has.
        advice: the specification of a client's answer.
        head: how scores become advice; ``None``: the output is the advice.
        mask: the feature that marks the legal choices.
        choices: how many the head chooses among; 0 without a head.

    """

    version: StoredVersion
    graph: Graph
    inputs: Sequence[Input]
    features: Mapping[str, Feature]
    output: str
    elements: int
    advice: TensorSpec
    head: HeadConfig | None
    mask: Feature | None
    choices: int

    @property
    def members(self) -> list[Feature]:
        """The client's features, each once; the mask is the last where the model does not take it."""
        own = {each.member: each for each in (*self.features.values(), *([self.mask] if self.mask else []))}
        return list(own.values())

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
        UnsupportedError: it is no ONNX model, or takes or gives what varies.

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
    settings: OnnxSettings = convert_settings(version.config, OnnxSettings)
    file = artifact_file(version.folder, settings.file)
    inputs, outputs = read_ports(_loaded(file))
    output = choose_output([port.name for port in outputs], settings)
    interface = Interface(inputs, next(port for port in outputs if port.name == output), settings)
    features = interface.signature.features
    scores = interface.signature.advice
    if features is None or scores is None:
        raise AssertionError("an interface has both")
    for spec in (*features.specs, scores):
        if not spec.fixed:
            raise UnsupportedError(f"{version} has {spec}; only tensors of fixed shapes and numbers can be embedded")
    graph = read_graph(file, batched=interface.batched)
    head = None if version.config.head is None else Head(version.config.head, scores)
    named = _features(features.specs, version)
    return Embedded(
        version,
        graph,
        interface.inputs,
        named,
        output,
        scores.count,
        scores if head is None else head.advice,
        version.config.head,
        None if head is None else _mask(version.config.head, head.count, named),
        0 if head is None else head.count,
    )


def _loaded(file: Path) -> onnx.ModelProto:
    try:
        return onnx.load(str(file), load_external_data=False)
    except Exception as error:
        raise PreconditionError(f"{file.name} is no ONNX model: {error}") from error


def _features(specs: Sequence[TensorSpec], version: StoredVersion) -> dict[str, Feature]:
    """Name each feature of the model as clients do."""
    made: dict[str, Feature] = {}
    by_name: dict[str, Feature] = {}
    for spec in specs:
        name = version.config.rename.get(spec.name, spec.name)
        fill = version.config.fill.get(spec.name)
        values = None if fill is None else np.asarray(fit(spec, fill), spec.type.dtype)
        if name not in by_name:
            member = identifier(name, {each.member for each in by_name.values()})
            by_name[name] = Feature(TensorSpec(name, spec.type, spec.shape), member, values)
        elif by_name[name].spec.type is not spec.type or by_name[name].spec.count != spec.count:
            raise PreconditionError(f"{version} makes two inputs of {name}, which need other types or shapes")
        made[spec.name] = by_name[name]
    return made


def _mask(head: HeadConfig | None, choices: int, features: Mapping[str, Feature]) -> Feature | None:
    if head is None or head.mask is None:
        return None
    known = {each.spec.name: each for each in features.values()}
    if head.mask not in known:
        taken = {each.member for each in features.values()}
        # A client's mask may have any type; LLVM sends int64.
        return Feature(TensorSpec(head.mask, ElementType.INT64, (choices,)), identifier(head.mask, taken), None)
    found = known[head.mask]
    if found.spec.count != choices:
        raise PreconditionError(f"the legality mask {found.spec} needs {choices} elements")
    return found

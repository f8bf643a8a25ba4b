"""The form of a version: made once, of the files and the policy.toml that its digest covers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx

from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError, UnsupportedError
from policybridge_forms import Feature, Form, Function, Head, Scores, Space
from policybridge_forms.content import Content
from policybridge_serdes import ElementType, TensorSpec
from policybridge_serdes.values import fit
from policybridge_server.backends.artifacts import artifact_file
from policybridge_server.backends.contract import convert_settings
from policybridge_server.backends.onnx.backend import OnnxSettings
from policybridge_server.backends.tensors import Input, Interface, choose_output
from policybridge_server.engine.head import Head as EngineHead
from policybridge_server.forms.builder import Builder, Tensor
from policybridge_server.forms.computing import compute
from policybridge_server.forms.graph import read_graph, read_ports
from policybridge_server.repository import HeadConfig, StoredVersion

_SCORES: Final = {"logits": Scores.LOGITS, "probabilities": Scores.PROBABILITIES, "choice": Scores.CHOICE}


@dataclass(frozen=True)
class Made:
    """A model to bring into a form.

    Attributes:
        version: its name, number and digest.
        interface: its inputs and features.
        file: its ONNX file.
        output: the name of the output that is the advice, or scores it.
        scores: the specification of this output.
        features: feature of the model → feature of the client.
        head: how scores become advice; ``None``: the output is the advice.

    """

    version: StoredVersion
    interface: Interface
    file: Path
    output: str
    scores: TensorSpec
    features: Mapping[str, Feature]
    head: EngineHead | None


def forms_of(version: StoredVersion) -> Mapping[str, Form]:
    """Give the form of each model of a version, by the kind of its decisions; the only model is by the empty name.

    Raises:
        PreconditionError: the model cannot be loaded.
        UnsupportedError: it has no form; the message says why in one line.

    """
    if version.config.backend != "onnx":
        raise UnsupportedError(f"{version} is of the backend {version.config.backend}; only onnx has a portable form")
    return {kind: form_of(each) for kind, each in version.by_kind.items()}


def form_of(version: StoredVersion) -> Form:
    """Give the form of a version with one model, or of one of its models; see `forms_of`."""
    made = _read(version)
    try:
        return Form.of(_content(made))
    except (InvalidError, TooLargeError) as error:
        raise UnsupportedError(f"{version} has no portable form: {error}") from error


def _read(version: StoredVersion) -> Made:
    settings: OnnxSettings = convert_settings(version.config, OnnxSettings)
    file = artifact_file(version.folder, settings.file)
    inputs, outputs = read_ports(_loaded(file))
    output = choose_output([port.name for port in outputs], settings)
    interface = Interface(inputs, next(port for port in outputs if port.name == output), settings)
    features, scores = interface.signature.features, interface.signature.advice
    if features is None or scores is None:
        raise AssertionError("an interface has both")
    for spec in (*features.specs, scores):
        if not spec.fixed:
            raise UnsupportedError(
                f"{version} has {spec}; only tensors of fixed shapes and numbers have a portable form"
            )
    head = None if version.config.head is None else EngineHead(version.config.head, scores)
    return Made(version, interface, file, output, scores, _features(features.specs, version), head)


def _loaded(file: Path) -> onnx.ModelProto:
    try:
        return onnx.load(str(file), load_external_data=False)
    except Exception as error:
        raise PreconditionError(f"{file.name} is no ONNX model: {error}") from error


def _features(specs: Sequence[TensorSpec], version: StoredVersion) -> dict[str, Feature]:
    """Name each feature of the model as clients do, and place it in the observation."""
    made: dict[str, Feature] = {}
    by_name: dict[str, Feature] = {}
    end = 0
    for spec in specs:
        name = version.config.rename.get(spec.name, spec.name)
        fill = version.config.fill.get(spec.name)
        if name not in by_name:
            offset = end + -end % spec.type.dtype.itemsize
            by_name[name] = Feature(TensorSpec(name, spec.type, spec.shape), offset, _filled(spec, fill))
            end = offset + spec.size
        elif by_name[name].spec.type is not spec.type or by_name[name].spec.count != spec.count:
            raise PreconditionError(f"{version} makes two inputs of {name}, which need other types or shapes")
        made[spec.name] = by_name[name]
    return made


def _filled(spec: TensorSpec, fill: Any) -> npt.NDArray[Any] | None:
    if fill is None:
        return None
    values = np.asarray(fit(spec, fill), spec.type.dtype)
    return np.ascontiguousarray(np.broadcast_to(values, spec.shape)).reshape(-1)


def _content(made: Made) -> Content:
    build = Builder()
    graph = read_graph(made.file, batched=made.interface.batched)
    inputs = {each.spec.name: _packed(build, made, each) for each in made.interface.inputs}
    result = compute(graph, build, inputs, made.output)
    if result.count != made.scores.count:
        raise PreconditionError(
            f"the model declares its output {made.output} with {made.scores.count} elements, and computes "
            f"{result.count}; export it with its true shape"
        )
    features = list({each.spec.name: each for each in made.features.values()}.values())
    head, advice = Head(), made.scores
    if made.head is not None and made.version.config.head is not None:
        features, head = _head(made.version.config.head, made.head.count, features)
        advice = made.head.advice
    end = max((each.offset + each.spec.size for each in features), default=0)
    return Content(
        bytes.fromhex(made.version.policy.digest.removeprefix("sha256:")),
        features,
        end + -end % 8,
        build.work,
        build.constants,
        build.forests,
        build.instructions,
        build.operand(result),
        advice,
        head,
    )


def _head(config: HeadConfig, choices: int, features: list[Feature]) -> tuple[list[Feature], Head]:
    scores = _SCORES[config.scores]
    if config.mask is None:
        return features, Head(scores, choices)
    names = [each.spec.name for each in features]
    if config.mask not in names:
        end = max((each.offset + each.spec.size for each in features), default=0)
        # A client's mask may have any type; LLVM sends int64.
        spec = TensorSpec(config.mask, ElementType.INT64, (choices,))
        return [*features, Feature(spec, end + -end % 8)], Head(scores, choices, len(features))
    found = features[names.index(config.mask)].spec
    if found.count != choices:
        raise PreconditionError(f"the legality mask {found} needs {choices} elements")
    return features, Head(scores, choices, names.index(config.mask))


def _packed(build: Builder, made: Made, given: Input) -> Tensor:
    """Make an input of its features, converted to its type: those side by side at once."""
    dtype, shape = given.spec.type.dtype, given.spec.shape
    lead = (1,) if made.interface.batched else ()
    runs = _runs([made.features[each.name] for each in given.features])
    if not runs:
        return build.constant(np.zeros((*lead, *shape), dtype))
    if len(runs) == 1 and runs[0].dtype == dtype and dtype.kind != "b":
        return Tensor(dtype, (*lead, *shape), None, Space.OBSERVATION, runs[0].offset)
    if len(runs) == 1:
        converted = build.elementwise(Function.CAST, runs, dtype)
        return Tensor(dtype, (*lead, *shape), None, Space.WORK, converted.offset)
    whole, begun = build.new(dtype, (*lead, *shape)), 0
    for run in runs:
        converted = build.elementwise(Function.CAST, [run], dtype)
        build.place(converted, whole, begun, [1, run.count, run.count])
        begun += run.count
    return whole


def _runs(features: Sequence[Feature]) -> list[Tensor]:
    """Join features of one type that lie side by side."""
    made: list[Tensor] = []
    for each in features:
        dtype, last = each.spec.type.dtype, made[-1] if made else None
        if last is not None and last.dtype == dtype and each.offset == last.offset + last.count * dtype.itemsize:
            made[-1] = Tensor(dtype, (last.count + each.spec.count,), None, Space.OBSERVATION, last.offset)
        else:
            made.append(Tensor(dtype, (each.spec.count,), None, Space.OBSERVATION, each.offset))
    return made

"""Backend `tensorflow`: SavedModels, ml-compiler-opt's saved policies among them.

The version's folder is the SavedModel. The signature is chosen by name. With an ``output_spec.json`` the signature is
``action`` unless ``policy.toml`` names another, and the advice is the decision that the file names.

The graph runs in a session of its own, because a call takes 90 µs there and 270 µs by the function of
``tf.saved_model.load`` for a signature; its threads serve only this model, and closing it frees its memory.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model.loader_impl import SavedModelLoader

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import Values
from policybridge_server.backends.artifacts import (
    TRAINING_ONLY,
    LoggedOutput,
    artifact_file,
    feature_names,
    loading,
    read_output_spec,
)
from policybridge_server.backends.contract import Batch, convert_settings
from policybridge_server.backends.tensors import (
    Interface,
    Port,
    TensorModel,
    TensorSettings,
    choose_output,
    element_type,
)
from policybridge_server.repository import PolicyConfig

_REFUSED = re.compile(
    r"WriteFile|ReadFile|MatchingFiles|Save.*|MergeV2Checkpoints|ShardedFilename.*|.*Dataset(V\d+)?|.*Reader(V\d+)?"
    r"|Print(V\d+)?|.*Summary.*|(Eager)?PyFunc(Stateless)?|ImmutableConst|Debug.*|Rpc.*|.*Socket.*|.*DeleteFile.*"
)
_RESTORING = "__saved_model_init_op"


class TensorflowSettings(TensorSettings, frozen=True, forbid_unknown_fields=True):
    """``[settings]``.

    Attributes:
        signature: the name of the signature; absent: ``action`` with an ``output_spec.json``, else ``serving_default``.
        tag: the tag of the graph in the SavedModel.

    """

    signature: str | None = None
    tag: str = "serve"


class TensorflowBackend:
    """Loads SavedModels."""

    runs_code: ClassVar[bool] = False

    def load(self, artifact: Path, config: PolicyConfig) -> "TensorflowModel":
        """Load the graph and its variables into a session."""
        settings: TensorflowSettings = convert_settings(config, TensorflowSettings)
        file = artifact_file(artifact, "saved_model.pb", cure="Keras' model.export(FOLDER) writes a SavedModel")
        logged = read_output_spec(artifact)
        with loading(file):
            loader = SavedModelLoader(str(artifact))
            meta = loader.get_meta_graph_def_from_tags([settings.tag])
            signature = _signature(meta.signature_def, settings, logged)
            refuse_side_effects(meta, [tensor.name for tensor in signature.outputs.values()])
            return TensorflowModel(_open(loader, settings), signature, settings, logged)


def _signature(signatures: Mapping[str, Any], settings: TensorflowSettings, logged: LoggedOutput | None) -> Any:
    name = settings.signature or ("serving_default" if logged is None else "action")
    if name not in signatures:
        known = ", ".join(sorted(key for key in signatures if not key.startswith("__")))
        raise PreconditionError(f"there is no signature {name!r}; there are {known}")
    return signatures[name]


def _open(loader: SavedModelLoader, settings: TensorflowSettings) -> Any:
    options = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=settings.threads, inter_op_parallelism_threads=1, use_per_session_threads=True
    )
    # One thread: handing a policy's small operators from thread to thread makes a call 130 µs instead of 90 µs.
    options.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    graph = tf.Graph()
    with graph.as_default():
        session = tf.compat.v1.Session(graph=graph, config=options)
        try:
            loader.load(session, [settings.tag])
        except BaseException:
            session.close()
            raise
    return session


class TensorflowModel(TensorModel):
    """A session with one signature as a model."""

    def __init__(self, session: Any, signature: Any, settings: TensorflowSettings, logged: LoggedOutput | None) -> None:
        self._session = session
        tensors = dict(sorted(signature.inputs.items()))
        names = feature_names(list(tensors), ["action", "serving_default"])
        inputs = [_port(name, tensor) for name, tensor in zip(names, tensors.values(), strict=True)]
        output = _output(signature.outputs, settings, logged)
        unused = TRAINING_ONLY if logged is not None else frozenset[str]()
        super().__init__(Interface(inputs, _port(output, signature.outputs[output]), settings, unused))
        feeds = [tensor.name for tensor in tensors.values()]
        self._run: Callable[..., Any] = session.make_callable(signature.outputs[output].name, feeds)

    def evaluate(self, batch: Batch) -> Values:
        """Run the graph once for all observations of the batch."""
        feeds = self._interface.feeds(batch.values)
        try:
            result = self._run(*feeds)
        except Exception as error:
            raise PolicyFailedError(f"TensorFlow: {error}") from error
        # TensorFlow gives a single string as a Python object.
        array = result if isinstance(result, np.ndarray | np.generic) else np.asarray(result, object)
        return self._interface.advice(batch, np.asarray(array))

    def close(self) -> None:
        """Free the session's variables and threads."""
        self._session.close()
        del self._session, self._run


def _output(outputs: Mapping[str, Any], settings: TensorflowSettings, logged: LoggedOutput | None) -> str:
    if settings.output is None and logged is not None:
        # The file names a tensor inside of the graph and not the signature's output; the name in the log fits both.
        for name in outputs:
            if name.lower() == logged.logging_name.lower():
                return name
    return choose_output(sorted(outputs), settings)


def _port(name: str, tensor: Any) -> Port:
    if tensor.tensor_shape.unknown_rank:
        raise PreconditionError(
            f"{name} has no known number of dimensions; save it with a shape, with None for a varying dimension"
        )
    dtype = tf.dtypes.as_dtype(tensor.dtype).as_numpy_dtype
    dims = [dim.size if dim.size >= 0 else "varies" for dim in tensor.tensor_shape.dim]
    return Port(name, element_type(name, dtype), dims)


def refuse_side_effects(meta: Any, outputs: Iterable[str]) -> None:
    """Check the operators of the ``MetaGraphDef`` that run when the tensors ``outputs`` are evaluated.

    A graph can read and write files, and call Python. Every SavedModel holds operators that save it, so only those are
    checked that the signature's outputs, the restoring of variables and the initialization depend on.

    Raises:
        PreconditionError: one of them does more than compute.

    """
    entries = [*outputs, meta.saver_def.restore_op_name]
    if _RESTORING in meta.signature_def:
        entries += [tensor.name for tensor in meta.signature_def[_RESTORING].outputs.values()]
    for node in _reached(meta.graph_def, entries):
        if _REFUSED.fullmatch(node.op):
            raise PreconditionError(f"the operator {node.op} ({node.name}) does more than compute")


def _reached(graph: Any, entries: Iterable[str]) -> Iterator[Any]:
    """Give the nodes that ``entries`` depend on, and the nodes of all functions that these call."""
    nodes = {node.name: node for node in graph.node}
    functions = {function.signature.name: function for function in graph.library.function}
    waiting = [nodes[name] for name in {_node_name(entry) for entry in entries} if name in nodes]
    seen_nodes, seen_functions = {node.name for node in waiting}, set[str]()
    while waiting:
        node = waiting.pop()
        yield node
        for name in {_node_name(source) for source in node.input} - seen_nodes:
            if name in nodes:
                seen_nodes.add(name)
                waiting.append(nodes[name])
        for name in set(_called(node)) - seen_functions:
            if name in functions:
                seen_functions.add(name)
                waiting.extend(functions[name].node_def)


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _called(node: Any) -> Iterator[str]:
    # A node whose operator has a function's name calls that function.
    yield node.op
    for value in node.attr.values():
        yield from (each.name for each in (value.func, *value.list.func) if each.name)

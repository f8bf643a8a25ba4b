"""The files of a version's folder: finding the model, and reading ml-compiler-opt's ``output_spec.json`` beside it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_serdes import TensorSpec

OUTPUT_SPEC = "output_spec.json"

_FILE: Final = "`file` under [settings] in policy.toml names one"
_SHOWN: Final = 5
"""Files that a message names."""

TRAINING_ONLY = frozenset({"discount", "reward", "step_type"})
"""Inputs that TF-Agents adds to every saved policy. They are fed zeros, as LLVM's ModelUnderTrainingRunner does."""


class LoggedOutput(NamedTuple):
    """One output: its name in LLVM's training log, and its tensor by LLVM's spec and port."""

    logging_name: str
    spec: TensorSpec
    port: int


class _Tensor(msgspec.Struct):
    name: str
    type: str
    shape: list[int]
    port: int = 0


class _Entry(msgspec.Struct):
    logging_name: str
    tensor_spec: _Tensor


def artifact_file(folder: Path, *names: str, cure: str = _FILE) -> Path:
    """Give the first of ``names`` that is a file in the version's ``folder``; ``cure`` is for a folder of other files.

    Raises:
        PreconditionError: the file is missing, or is outside the folder.

    """
    for name in names:
        file = folder / name
        if not file.resolve().is_relative_to(folder.resolve()):
            raise PreconditionError(f"{file} is outside of the version's folder")
        if file.is_file():
            return file
    others = sorted(file.name for file in folder.iterdir() if file.is_file())[:_SHOWN]
    there = f"; the version has {', '.join(map(repr, others))}: {cure}" if others else ""
    raise PreconditionError(f"there is no model {folder / ' or '.join(names)}{there}")


@contextmanager
def loading(file: Path) -> Iterator[None]:
    """Turn every error of a framework that loads ``file`` into a `PreconditionError`.

    Raises:
        PreconditionError: it cannot be loaded; the message names it.

    """
    try:
        yield
    except PolicyBridgeError as error:
        raise PreconditionError(f"{file}: {error}") from error
    except Exception as error:
        # The frameworks' errors have no common base.
        raise PreconditionError(f"{file} cannot be loaded: {error}") from error


def read_output_spec(folder: Path) -> LoggedOutput | None:
    """Read the first entry of ``output_spec.json``, the decision; ``None`` without such a file.

    The format is that of LLVM's ModelUnderTrainingRunner.

    Raises:
        PreconditionError: the file has another format.

    """
    file = folder / OUTPUT_SPEC
    if not file.is_file():
        return None
    try:
        entry = msgspec.json.decode(file.read_bytes(), type=list[_Entry])[0]
        tensor = entry.tensor_spec
        spec = TensorSpec.from_json({"name": tensor.name, "type": tensor.type, "shape": tensor.shape})
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError, PolicyBridgeError) as error:
        raise PreconditionError(f"{file} is no list of objects with logging_name and tensor_spec: {error}") from error
    return LoggedOutput(entry.logging_name, spec, tensor.port)


def feature_names(inputs: Sequence[str], signatures: Sequence[str]) -> list[str]:
    """Give the features' names for the names of ``inputs``.

    TensorFlow writes ``SIGNATURE_FEATURE:PORT``: ``action_callee_users:0`` is the feature ``callee_users``. The port is
    cut off, and so is the name of one of ``signatures`` if all inputs begin with it.
    """
    names = [name.partition(":")[0] for name in inputs]
    for signature in signatures:
        if names and all(name.startswith(f"{signature}_") for name in names):
            return [name.removeprefix(f"{signature}_") for name in names]
    return names

"""The pages of the Python packages; mkdocstrings fills them from the docstrings."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Final


@dataclass(frozen=True)
class ApiPage:
    """A page.

    Attributes:
        title: its heading.
        text: the text above the names.
        names: import paths of the described names; for a package with an ``__all__``, all its exports.

    """

    title: str
    text: str
    names: Sequence[str]


PAGES: Final[Mapping[str, ApiPage]] = {
    "serdes": ApiPage(
        "Values and their SerDes",
        "`policybridge_serdes`, which the base install has: tensors, their specs and layouts, and how they become "
        "bytes. "
        "[Extending](../../extending.md#a-serdes) shows a SerDes of your own.",
        ["policybridge_serdes"],
    ),
    "client": ApiPage(
        "Asking a server",
        "`policybridge_client`, which the base install has. It exports the [specs, values and errors](serdes.md) too. "
        "[Asking from your own program](../../clients.md) shows it in use.",
        ["policybridge_client"],
    ),
    "llvm": ApiPage(
        "Compilers",
        "`policybridge_client.llvm` starts an unmodified LLVM and answers it, as [`policybridge run`](../../llvm.md) "
        "does; "
        "`policybridge_client.environment`, of the extra `gym`, is a compiler that is itself "
        "[a server while it compiles](../../ml-compiler-bridge.md#training-mode-the-compiler-is-the-server).",
        [
            "policybridge_client.llvm",
            "policybridge_client.llvm.tasks.Task",
            "policybridge_client.decisions",
            "policybridge_client.environment",
        ],
    ),
    "train": ApiPage(
        "Training",
        "A [task](../../training.md#tasks) is a problem that a policy is trained for; "
        "[environments](../../gymnasium.md) are compilers for your own trainers. They are of the extras `train` and "
        "`gym`.",
        [
            "policybridge_train.tasks.task.Task",
            "policybridge_train.tasks.task.Asking",
            "policybridge_train.tasks.task.Case",
            "policybridge_train.compiling.result.CompileResult",
            "policybridge_train.tasks.task.names_in_hex",
            "policybridge_train.environments.register",
            "policybridge_train.environments.inlining.InlineForSize",
            "policybridge_train.environments.eviction.Evict",
        ],
    ),
    "ledger": ApiPage(
        "The ledger",
        "Reads the [records](../../ledger.md) of a server; of the extra `server`.",
        [
            "policybridge_server.ledger",
            "policybridge_server.ledger.trajectory",
        ],
    ),
    "server": ApiPage(
        "Parts of a server",
        "The contracts of the parts that you can write yourself, as [Extending](../../extending.md) shows; "
        "of the extra `server`.",
        [
            "policybridge_server.backends.contract",
            "policybridge_server.transports.contract",
            "policybridge_server.ledger.contract",
            "policybridge_core.plugins",
        ],
    ),
}


def described() -> Sequence[str]:
    """Return the import paths of all described names."""
    return [path for page in PAGES.values() for each in page.names for path in _exported(each)]


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each page. A name with several exports is described at its first."""
    seen = set[str]()
    for name, page in PAGES.items():
        found = [path for each in page.names for path in _exported(each) if path not in seen]
        seen.update(found)
        yield (
            f"reference/python/{name}.md",
            "\n".join([f"# {page.title}\n", f"{page.text}\n", *map("::: {}\n".format, found)]),
        )


def _exported(path: str) -> Sequence[str]:
    """Return the import paths of the exports of the package ``path``; ``path`` itself if it has none."""
    try:
        package = import_module(path)
    except ModuleNotFoundError:  # a class or a function
        return [path]
    return [_defined(package, name) for name in getattr(package, "__all__", ())] or [path]


def _defined(package: ModuleType, name: str) -> str:
    """Return the import path of a name's definition; for a constant, which lacks a module, that of its export."""
    value = getattr(package, name)
    knows = isinstance(value, type | FunctionType)
    return f"{value.__module__}.{value.__qualname__}" if knows else f"{package.__name__}.{name}"

"""The compilers that a policy can be embedded for, and what they ask."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policybridge_client.decisions.passes import ALTERNATIVES
from policybridge_serdes import ElementType, TensorSpec
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.passes import PassesForSize
from policybridge_train.tasks.tiling import Tiling


@dataclass(frozen=True)
class Question:
    """The decisions of one kind, as a compiler asks for them.

    Attributes:
        zero: what an advice of 0 means.
        features: by name.
        varying: further features, which it has at some options and in shapes that these give.
        choices: how many the advice can name; ``None``: any number.

    """

    zero: str
    features: Mapping[str, TensorSpec]
    varying: tuple[str, ...] = ()
    choices: int | None = None


@dataclass(frozen=True)
class Host:
    """A kind of compiler that a plugin is for.

    Attributes:
        majors: for which there is a plugin.
        sources: of the plugin, in the folder ``clients``.
        library: linked with the policy; its name ends with the major.
        entry: the function that the compiler calls.
        variable: of CMake, with the majors.
        header: a header that the plugin needs, in LLVM's folder of headers, and the package that has it.
        questions: by the name of the advice; the first is for policies that declare no kind.

    """

    majors: tuple[str, ...]
    sources: str
    library: str
    entry: str
    variable: str
    header: tuple[str, str]
    questions: Mapping[str, Question]


def _named(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, ElementType.INT64) for name in names)


LLVM: Final = Host(
    majors=("19", "22"),
    sources="llvm",
    library="policybridge-embedded",
    entry="llvmGetPassPluginInfo",
    variable="POLICYBRIDGE_LLVM",
    header=("llvm/IR/Module.h", "llvm-{}-dev"),
    questions={
        InlineForSize.advice.name: Question(
            "0 leaves a call",
            {spec.name: spec for spec in (*InlineForSize.features, *_named("site", "caller", "callee"))},
            varying=("callee_embedding", "caller_embedding"),
        ),
        PassesForSize.advice.name: Question(
            "0 keeps LLVM's passes",
            {spec.name: spec for spec in (*_named("function"), *PassesForSize.features)},
            choices=len(ALTERNATIVES),
        ),
    },
)
MLIR: Final = Host(
    majors=("22",),
    sources="mlir",
    library="policybridge-mlir-embedded",
    entry="mlirGetPassPluginInfo",
    variable="POLICYBRIDGE_MLIR",
    header=("mlir/Pass/Pass.h", "libmlir-{}-dev"),
    questions={
        Tiling.advice.name: Question(
            "the place of a size", {spec.name: spec for spec in (*_named("operation"), *Tiling.features)}
        )
    },
)

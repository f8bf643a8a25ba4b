"""Checking a compiler's signature: LLVM's tensors are numbers of a fixed size."""

from policybridge_core.errors import InvalidError
from policybridge_serdes import Signature, TensorSpec


def check_llvm_signature(signature: Signature) -> None:
    """Check that LLVM could have sent this signature (llvm/include/llvm/Analysis/TensorSpec.h).

    Raises:
        InvalidError: a tensor varies in size, or holds texts.

    """
    for spec in (*signature.features.specs, signature.advice):
        _check_fixed(spec)


def _check_fixed(spec: TensorSpec) -> None:
    if spec.type.is_text:
        raise InvalidError(f"{spec.name}: LLVM sends no elements of the type {spec.type.value!r}")
    if not spec.fixed:
        raise InvalidError(f"{spec.name}: LLVM's tensors have a fixed size, and a dimension is 0 or more")

import hashlib
import struct

from policybridge_client.decisions import FeaturesKeys, site_key
from policybridge_serdes import ElementType, Signature, TensorSpec

NAMES = ("node_count", "edge_count", "sroa_savings", "cost_estimate", "callee_users", "caller_users", "nested_loops")


def signature(*names: str) -> Signature:
    advice = TensorSpec("inlining_decision", ElementType.INT64)
    return Signature.of([TensorSpec(name, ElementType.INT64) for name in names], advice)


def test_a_site_key_is_of_names_and_numbers_with_nul_between() -> None:
    expected = hashlib.sha256(b"caller\0origin\0callee\x003\x000").hexdigest()[:16]
    assert site_key("caller", "origin", "callee", 3, 0) == expected
    assert site_key("f\udcff", "f", "", 0, 1) == hashlib.sha256(b"f\xff\0f\0\x000\x001").hexdigest()[:16]


def test_a_features_key_is_of_what_neither_other_functions_nor_other_decisions_change() -> None:
    keys = FeaturesKeys(signature(*NAMES, "inlining_default"))
    own = hashlib.sha256(struct.pack("<3q", 30, -40, 70)).hexdigest()[:16]
    assert keys.next(struct.pack("<8q", 10, 20, 30, -40, 50, 60, 70, 1)) == f"{own}.0"
    assert keys.next(struct.pack("<8q", 11, 21, 30, -40, 51, 61, 70, 0)) == f"{own}.1"
    assert keys.next(struct.pack("<8q", 10, 20, 31, -40, 50, 60, 70, 1)) != f"{own}.2"
    assert keys.next(struct.pack("<8q", 10, 20, 30, -40, 50, 60, 70, 1)) == f"{own}.2"


def test_features_that_are_no_integers_do_not_count() -> None:
    specs = [TensorSpec("embedding", ElementType.FLOAT, (2,)), TensorSpec("cost_estimate", ElementType.INT64)]
    keys = FeaturesKeys(Signature.of(specs, TensorSpec("inlining_decision", ElementType.INT64)))
    own = hashlib.sha256(struct.pack("<q", 7)).hexdigest()[:16]
    assert keys.next(struct.pack("<2fq", 1.5, 2.5, 7)) == f"{own}.0"

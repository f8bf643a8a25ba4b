"""JSON: the conformance suite, and the text it is pinned to."""

import numpy as np
import pytest

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, Layout, TensorSpec, pack, unpack

from .conformance import (
    F32,
    FIXED,
    FIXED_SPECS,
    INTEGERS,
    LYING_SPECS,
    ONE_BOOL,
    ONE_BYTES,
    ONE_FLOAT,
    ONE_OPEN_BOOL,
    ONE_STRING,
    ONE_UINT64,
    SerDesConformance,
)
from .strategies import record


class TestJson(SerDesConformance):
    name = "json"
    fixed_bytes = b"[[1,-2],[0.5]]"
    varying_bytes = b'[[1,-2],[true],{"shape":[1],"data":[1.5]},["\xc3\xa9"],{"shape":[2],"data":["AA==",""]}]'
    described_bytes = FIXED_SPECS[:-1] + b',"values":[[1,-2],[0.5]]}'
    lies = (
        (ONE_FLOAT, b'[{"shape":[4611686018427387904,4],"data":[]}]'),
        (ONE_FLOAT, b'[{"shape":[0,99999999999999999999],"data":[]}]'),
        (ONE_FLOAT, b'[{"shape":[134217728,0],"data":[]}]'),
        (ONE_FLOAT, b'[{"shape":[-1,-1],"data":[1]}]'),
        (ONE_FLOAT, b'[{"shape":[1,2],"data":[1]}]'),
        (ONE_FLOAT, b'[{"shape":[1],"data":[1]}]'),
        (ONE_FLOAT, b'[{"shape":[1,1]}]'),
        (ONE_FLOAT, b'[{"shape":[1,1],"data":[1e39]}]'),
        (ONE_FLOAT, b'[{"shape":[1,1],"data":[1e999]}]'),
        (ONE_FLOAT, b'[{"shape":[1,1],"data":["nan"]}]'),
        (ONE_FLOAT, b'[{"shape":[1,1],"data":{"bits":[4294967296]}}]'),
        (ONE_FLOAT, b'[{"shape":[1,1],"data":{"bits":[-1]}}]'),
        (ONE_FLOAT, b'[{"shape":[1,1],"data":{"bits":[1],"more":1}}]'),
        (ONE_STRING, b'[{"shape":[1],"data":["\xff"]}]'),
        (ONE_STRING, b'[{"shape":[1],"data":["\\ud800"]}]'),
        (ONE_BYTES, b'[["A"]]'),
        (ONE_BYTES, '[["é"]]'.encode()),
        (ONE_BOOL, b"[[7]]"),
        (ONE_OPEN_BOOL, b'[{"shape":[1],"data":[1]}]'),
        (INTEGERS, b"[[1,128],[3]]"),
        (INTEGERS, b"[[1,-129],[3]]"),
        (INTEGERS, b"[[1,2.5],[3]]"),
        (INTEGERS, b"[[1,true],[3]]"),
        (INTEGERS, b"[[1,2],[3],[4]]"),
        (INTEGERS, b"[[1,2]," + b"9" * 5000 + b"]"),
        (ONE_UINT64, b"[[18446744073709551616]]"),
        (ONE_UINT64, b"[[-1]]"),
        (FIXED, b"[" * 100_000),
        (FIXED, b"[" + b"[]," * 100_000 + b"[]]"),
        *((None, line[:-1] + b',"values":[[]]}') for line in LYING_SPECS),
        (None, b'{"tensors":' + b"[" * 100_000),
        (None, b'{"values":[]}'),
    )

    @pytest.mark.parametrize("kind", [kind for kind in ElementType if kind.dtype.kind in "iu"])
    @pytest.mark.parametrize("beside", [ElementType.BOOL, None], ids=["mixed", "alone"])
    def test_integers_beyond_their_type_are_refused(self, kind: ElementType, beside: ElementType | None) -> None:
        others = [TensorSpec("b", beside, (0,))] if beside else []
        codec = self.serdes.codec(Layout.of([TensorSpec("t", kind, ()), *others]))
        limits = np.iinfo(kind.dtype)
        for wrong in (int(limits.min) - 1, int(limits.max) + 1):
            with pytest.raises(InvalidError):
                codec.decode(b"[[%d]%b]" % (wrong, b",[]" if others else b""))

    def test_names_of_what_json_lacks_are_those_of_protobuf(self) -> None:
        layout = Layout.of([TensorSpec("t", ElementType.FLOAT, (4,))])
        data = b'[["NaN","Infinity","-Infinity",1.0]]'
        assert self.serdes.codec(layout).encode(pack(layout, {"t": [np.nan, np.inf, -np.inf, 1]})) == data

    def test_a_nan_of_another_payload_is_sent_as_bits(self) -> None:
        layout = Layout.of([TensorSpec("t", ElementType.FLOAT, (2,))])
        values = record(layout, np.array([0x7FC00001, 0x3F800000], "<u4").view(F32))
        assert self.serdes.codec(layout).encode(values) == b'[{"bits":[2143289345,1065353216]}]'

    def test_whole_numbers_are_floats_too(self) -> None:
        assert unpack(FIXED, self.serdes.codec(FIXED).decode(b" [[1, 2], [3]] "))["f"] == 3.0

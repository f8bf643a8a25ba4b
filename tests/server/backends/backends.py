"""The backend contract: one suite, which every backend's tests inherit."""

import gc
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from policybridge_core.errors import PreconditionError
from policybridge_serdes import (
    ElementType,
    Layout,
    PolicyReference,
    PolicyVersion,
    TensorSpec,
    Values,
    join,
    pack,
    tensor,
)
from policybridge_server.backends.contract import Batch, Model, SessionView, load_backend
from policybridge_server.engine.probe import MAX_BATCH, probe
from policybridge_server.repository import Repository
from tests.frameworks import ADVICE as DECISION
from tests.frameworks import LOGITS, expected_decisions, feature_names, llvm_observations

# Its 48 MB are above malloc's largest threshold for mmap (32 MiB), so that they go back to the system when freed.
_TABLE = 12 * 2**20
ADVICE = TensorSpec("advice", ElementType.INT64)
MIXTURE = (
    TensorSpec("hot", ElementType.BOOL, ()),
    TensorSpec("users", ElementType.FLOAT, ()),
    TensorSpec("cost", ElementType.INT64, ()),
)
SESSION = SessionView("a", PolicyVersion("p", 1, ""))
SAMPLES: dict[ElementType, list[Any]] = {
    ElementType.FLOAT: [1.5, -0.0, np.inf],
    ElementType.DOUBLE: [1.5, 5e-324, -np.inf],
    ElementType.BOOL: [True, False, True],
    ElementType.STRING: ["a", "", "größer"],
    ElementType.BYTES: [b"a", b"", b"\0\xff"],
    **{
        kind: [np.iinfo(kind.dtype).min, 0, np.iinfo(kind.dtype).max] for kind in ElementType if kind.dtype.kind in "iu"
    },
}


def load(repository: Path, name: str) -> Model:
    stored = Repository([repository]).resolve(PolicyReference(name))
    return load_backend(stored.config.backend).load(stored.folder, stored.config)


def evaluate(model: Model, values: Values, advice: TensorSpec) -> Values:
    return model.evaluate(Batch(values, [SESSION] * len(values), Layout((advice,))))


def add_setting(repository: Path, name: str, line: str) -> None:
    file = repository / name / "policy.toml"
    before, _, after = file.read_text().partition("[settings]\n")
    file.write_text(f"{before}\n[settings]\n{line}\n{after}")


class BackendContract:
    """What every backend must do; a subclass says how its artifacts are written."""

    types: ClassVar[list[ElementType]]
    backend: ClassVar[str]
    artifact: ClassVar[str]
    kernels_differ: ClassVar[bool] = False
    is_slow_to_write: ClassVar[bool] = False
    """Whether an artifact takes a second: then all types are tried in one shape, and one type in the others."""

    def write_identity(self, repository: Path, spec: TensorSpec) -> None:
        """Add the policy ``same``: the advice is the feature ``x``, which looks like ``spec``."""
        raise NotImplementedError

    def write_difference(self, repository: Path) -> None:
        """Add the policy ``difference``: int64 features ``b`` and ``a``, declared in that order; advice a − b."""
        raise NotImplementedError

    def write_table(self, repository: Path, size: int) -> None:
        """Add the policy ``table``: it holds ``size`` floats of 1; the advice is the one at the int64 feature ``x``."""
        raise NotImplementedError

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3)])
    def test_advice_has_the_bits_and_shape_that_the_policy_gives(self, tmp_path: Path, shape: tuple[int, ...]) -> None:
        for kind in self.types[:1] if self.is_slow_to_write and shape != (1, 3) else self.types:
            spec = TensorSpec("x", kind, shape)
            self.write_identity(tmp_path / kind.name, spec)
            samples = SAMPLES[kind][: spec.count]
            values = pack(Layout((spec,)), {"x": np.array(samples, kind.dtype).reshape(shape)})
            model = load(tmp_path / kind.name, "same")
            advice = evaluate(model, values, TensorSpec("advice", kind, shape))
            given = tensor(TensorSpec("advice", kind, shape), advice)
            assert given.tolist() == tensor(spec, values).tolist()
            assert given.dtype == kind.dtype
            model.close()

    def test_a_shape_that_varies_is_taken_as_it_comes(self, tmp_path: Path) -> None:
        spec = TensorSpec("x", ElementType.FLOAT, (-1,))
        self.write_identity(tmp_path, spec)
        model = load(tmp_path, "same")
        for size in (0, 1, 5):
            values = pack(Layout((spec,)), {"x": np.arange(size, dtype=np.float32)})
            advice = evaluate(model, values, TensorSpec("advice", ElementType.FLOAT, (-1,)))
            assert tensor(TensorSpec("advice", ElementType.FLOAT, (-1,)), advice).tolist() == list(range(size))

    def test_inputs_are_found_by_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        model = load(tmp_path, "difference")
        features = model.signature.features
        assert features is not None
        advice = evaluate(model, pack(features, {"a": 10, "b": 3}), TensorSpec("advice", ElementType.INT64))
        assert advice["advice"].tolist() == [[7]]

    def test_an_observation_gives_the_same_bits_alone_and_in_a_batch(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        model = load(tmp_path, "difference")
        features = model.signature.features
        assert features is not None
        spec = TensorSpec("advice", ElementType.INT64)
        rows = [pack(features, {"a": number, "b": 3}) for number in range(5)]
        alone = [evaluate(model, row, spec).tobytes() for row in rows]
        if model.batched:
            assert evaluate(model, join(features, rows), spec).tobytes() == b"".join(alone)
        else:
            assert probe(model).most == 1

    def test_a_missing_artifact_is_refused_by_its_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        (tmp_path / "difference" / "1" / self.artifact).unlink()
        with pytest.raises(PreconditionError, match=self.artifact):
            load(tmp_path, "difference")

    def test_a_missing_artifact_is_told_with_the_files_that_there_are(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        version = tmp_path / "difference" / "1"
        (version / self.artifact).rename(version / "exported.bin")
        cure = "model.export" if self.backend == "tensorflow" else r"`file` under \[settings\]"
        with pytest.raises(PreconditionError, match=f"; the version has 'exported.bin'.*: .*{cure}"):
            load(tmp_path, "difference")

    def test_a_corrupt_artifact_is_refused_by_its_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        (tmp_path / "difference" / "1" / self.artifact).write_bytes(b"\xff\x00 no artifact")
        with pytest.raises(PreconditionError, match=self.artifact):
            load(tmp_path, "difference")

    def test_an_unknown_setting_is_refused_by_its_name(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        add_setting(tmp_path, "difference", "fiel = 'x'")
        with pytest.raises(PreconditionError, match="fiel"):
            load(tmp_path, "difference")

    def test_closing_gives_the_memory_back(self, tmp_path: Path) -> None:
        self.write_table(tmp_path, _TABLE)
        used = [self._memory_after_loading(tmp_path) for _ in range(8)]
        # The first few fill pools that are kept for the next model.
        assert used[-1] - used[3] < 4 * _TABLE, [f"{each / 2**20:.0f} MB" for each in used]

    def _memory_after_loading(self, repository: Path) -> int:
        model = load(repository, "table")
        spec = TensorSpec("x", ElementType.INT64)
        advice = evaluate(model, pack(Layout((spec,)), {"x": 7}), TensorSpec("advice", ElementType.FLOAT))
        assert advice["advice"].tolist() == [[1.0]]
        model.close()
        del model
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class TensorContract(BackendContract):
    """What the backends of tensor frameworks must do beside."""

    def write_network(self, repository: Path, advice: TensorSpec = DECISION) -> None:
        """Add the policy ``network``: tests.frameworks' network, its input packed."""
        raise NotImplementedError

    def write_mixture(self, repository: Path) -> None:
        """Add the policy ``mixture`` of `MIXTURE`: the advice, a float, is ``users + cost`` if ``hot``, otherwise 0."""
        raise NotImplementedError

    @pytest.mark.parametrize("count", [1, 2, 5])
    def test_features_of_several_types_are_taken_alone_and_in_a_batch(self, tmp_path: Path, count: int) -> None:
        self.write_mixture(tmp_path)
        model = load(tmp_path, "mixture")
        probe(model, must_answer=True)
        features, advice = model.signature.features, model.signature.advice
        assert features is not None
        assert advice is not None
        assert set(features.specs) == set(MIXTURE)
        rows = [pack(features, {"hot": n != 3, "users": n / 2, "cost": n}) for n in range(1, count + 1)]
        given = evaluate(model, join(features, rows), advice)[advice.name]
        assert given.tolist() == [1.5 * n if n != 3 else 0 for n in range(1, count + 1)]

    def test_a_scalar_of_another_type_is_packed_alone(self, tmp_path: Path) -> None:
        self.write_mixture(tmp_path)
        for name in ("users", "cost"):
            add_setting(tmp_path, "mixture", f'pack.{name} = {{features = ["{name}_8"], type = "int8_t"}}')
        model = load(tmp_path, "mixture")
        probe(model, must_answer=True)
        features, advice = model.signature.features, model.signature.advice
        assert features is not None
        assert advice is not None
        assert {str(spec) for spec in features.specs} == {"hot: bool[]", "users_8: int8_t[1]", "cost_8: int8_t[1]"}
        rows = [pack(features, {"hot": n != 3, "users_8": n, "cost_8": 2 * n}) for n in range(1, 6)]
        for count in (1, 2, 5):
            given = evaluate(model, join(features, rows[:count]), advice)[advice.name]
            assert given.tolist() == [3.0 * n if n != 3 else 0 for n in range(1, count + 1)]

    def test_a_packed_input_is_made_of_its_features_by_name(self, tmp_path: Path) -> None:
        self.write_network(tmp_path)
        model = load(tmp_path, "network")
        assert model.signature.features is not None
        assert [spec.name for spec in model.signature.features.specs] == feature_names()
        values = llvm_observations()[:500]
        spec = model.signature.advice
        assert spec is not None
        decisions = evaluate(model, values, spec)[spec.name].reshape(-1)
        assert decisions.tolist() == expected_decisions()[:500].tolist()

    def test_all_batch_sizes_that_the_probe_allows_give_the_same_bits(self, tmp_path: Path) -> None:
        self.write_network(tmp_path, LOGITS)
        model = load(tmp_path, "network")
        found, values = probe(model), llvm_observations()[:512]
        assert found.most == MAX_BATCH or self.kernels_differ
        most = range(0, len(values), found.most)
        whole = b"".join(evaluate(model, values[start : start + found.most], LOGITS).tobytes() for start in most)
        sizes = (found.least, found.least + 1, 6, 13, 50, 200)
        for size in (size for size in sizes if found.least <= size <= found.most):
            starts = range(0, len(values) - size + 1, size)
            given = b"".join(evaluate(model, values[start : start + size], LOGITS).tobytes() for start in starts)
            assert given == whole[: len(given)], f"size {size}, of at least {found.least}"

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ("pack.elsewhere = {features = ['f']}", "names the input 'elsewhere'; the model's inputs are observation"),
            (
                "pack.observation = {features = ['f']}",
                r"settings.pack packs 1 features into the input observation: float\[39\]",
            ),
            (
                "pack.observation = {type = 'int65_t', features = FEATURES}",
                "'int65_t'; element types are float, double",
            ),
        ],
    )
    def test_a_pack_that_does_not_fit_is_refused(self, tmp_path: Path, settings: str, message: str) -> None:
        self.write_network(tmp_path)
        file = tmp_path / "network" / "policy.toml"
        kept = file.read_text().partition("[settings.pack")[0]
        file.write_text(kept)
        add_setting(tmp_path, "network", settings.replace("FEATURES", str(feature_names())))
        with pytest.raises(PreconditionError, match=message):
            load(tmp_path, "network")

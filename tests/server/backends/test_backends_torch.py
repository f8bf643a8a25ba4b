"""The backend torch by the contract of all, for each kind of file; and what it must not let through."""

import io
import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from policybridge_core.errors import PreconditionError
from policybridge_demo.export.policy import declare, policy_folder
from policybridge_serdes import ElementType, Layout, PolicyReference, TensorSpec, pack
from policybridge_server.backends.contract import WeightsBackend, load_backend
from policybridge_server.engine.probe import probe
from policybridge_server.repository import Repository
from tests.frameworks import ADVICE as DECISION
from tests.frameworks import require, write_network
from tests.server.backends.backends import ADVICE, MIXTURE, TensorContract, add_setting, evaluate, load

require("torch")
require("safetensors")

import torch  # noqa: E402
from torch.export import Dim  # noqa: E402

from policybridge_demo.export.torch import save_program, save_script  # noqa: E402
from policybridge_server.backends.torch.archive import RefusedError, check_script  # noqa: E402
from tests import torch_modules as modules  # noqa: E402
from tests.frameworks_torch import save_weights, write_weights_network  # noqa: E402

TYPES = [kind for kind in ElementType if not kind.is_text]
INT64 = TensorSpec("x", ElementType.INT64)


def zeros(spec: TensorSpec) -> torch.Tensor:
    return torch.from_numpy(np.zeros([3, *(max(dim, -3 * dim) for dim in spec.shape)], spec.type.dtype))


class TestPrograms(TensorContract):
    types: ClassVar = TYPES
    backend = "torch"
    artifact = "model.pt2"

    def write_identity(self, repository: Path, spec: TensorSpec) -> None:
        dims = {axis + 1: Dim(f"d{axis}", min=0) for axis, dim in enumerate(spec.shape) if dim < 0}
        folder = policy_folder(repository, "same", "torch")
        save_program(modules.Same(), folder, [zeros(spec)], {"x": {0: Dim("batch"), **dims}})

    def write_difference(self, repository: Path) -> None:
        # The same tensor twice would be exported as one input.
        numbers, batch = [torch.zeros(3, 1, dtype=torch.int64) for _ in "ba"], Dim("batch")
        folder = policy_folder(repository, "difference", "torch")
        save_program(modules.Difference(), folder, numbers, {"b": {0: batch}, "a": {0: batch}})

    def write_table(self, repository: Path, size: int) -> None:
        folder = policy_folder(repository, "table", "torch")
        number = torch.zeros(3, 1, dtype=torch.int64)
        save_program(modules.Table(size), folder, [number], {"x": {0: Dim("batch")}})

    def write_mixture(self, repository: Path) -> None:
        dims = {spec.name: {0: Dim("batch")} for spec in MIXTURE}
        folder = policy_folder(repository, "mixture", "torch")
        save_program(modules.Mixture(), folder, [zeros(spec) for spec in MIXTURE], dims)

    def write_network(self, repository: Path, advice: TensorSpec = DECISION) -> None:
        write_network(repository, "network", "torch", advice)

    def test_a_program_says_for_which_sizes_it_was_exported(self, tmp_path: Path) -> None:
        number = torch.zeros(3, 1, dtype=torch.int64)
        folder = policy_folder(tmp_path, "few", "torch")
        save_program(modules.Same(), folder, [number], {"x": {0: Dim("batch", max=4)}})
        model = load(tmp_path, "few")
        values = pack(Layout((INT64,)), {"x": 5})
        assert evaluate(model, values, ADVICE)["advice"].tolist() == [[5]]
        with pytest.raises(Exception, match=r"exported for sizes \d to 4, not for 5; .*Dim\.DYNAMIC"):
            evaluate(model, values.repeat(5), ADVICE)

    @pytest.mark.parametrize("output", ["minus", "neg"])
    def test_one_of_several_outputs_is_named_by_its_key_or_its_node(self, tmp_path: Path, output: str) -> None:
        folder = policy_folder(tmp_path, "both", "torch")
        save_program(modules.Both(), folder, [torch.zeros(3, 1, dtype=torch.int64)], {"x": {0: Dim("batch")}})
        with pytest.raises(PreconditionError, match=r"several outputs, same, minus; .* `output = "):
            load(tmp_path, "both")
        add_setting(tmp_path, "both", f'output = "{output}"')
        values = pack(Layout((INT64,)), {"x": 5})
        assert evaluate(load(tmp_path, "both"), values, ADVICE)["advice"].tolist() == [[-5]]

    def test_an_input_that_is_no_tensor_is_named(self, tmp_path: Path) -> None:
        folder = policy_folder(tmp_path, "state", "torch")
        program = torch.export.export(modules.Optional(), (torch.zeros(3, 1), None))
        torch.export.save(program, folder / "model.pt2")
        with pytest.raises(PreconditionError, match="state is NoneType and no tensor"):
            load(tmp_path, "state")

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda program: rename_operator(program, "torch.ops.aten.from_file.default"), "aten.from_file"),
            (lambda program: rename_operator(program, "torch.hub.load"), "torch.hub.load"),
            (lambda program: rename_operator(program, "_operator.methodcaller"), "methodcaller"),
            (lambda program: rename_size(program, "__import__('os').getpid()"), "is the expression"),
            (lambda program: rename_size(program, "exit(1)"), "is the expression"),
            # A backtracking search would take years for this one.
            (lambda program: rename_size(program, f"{'a' * 80};"), "is the expression"),
        ],
    )
    def test_a_program_that_would_run_code_is_refused(
        self, tmp_path: Path, change: Callable[[Any], None], message: str
    ) -> None:
        self.write_difference(tmp_path)
        file = tmp_path / "difference" / "1" / "model.pt2"

        def changed(name: str, content: bytes) -> bytes:
            if not name.endswith("models/model.json"):
                return content
            program = json.loads(content)
            change(program)
            return json.dumps(program).encode()

        rewrite(file, changed)
        with pytest.raises(PreconditionError, match=message):
            load(tmp_path, "difference")

    @pytest.mark.parametrize("record", ["data/sample_inputs/model.pt", "data/weights/model.pt"])
    def test_a_pickle_in_a_program_is_refused(self, tmp_path: Path, record: str) -> None:
        self.write_difference(tmp_path)
        file, loaded = tmp_path / "difference" / "1" / "model.pt2", tmp_path / "loaded"
        code = io.BytesIO()
        torch.save(Touching(loaded), code)
        rewrite(file, lambda name, content: code.getvalue() if name.endswith(record) else content, record)
        with pytest.raises(PreconditionError, match="pickle of more than tensors"):
            load(tmp_path, "difference")
        assert not loaded.exists()

    def test_weights_that_are_pickled_are_refused(self, tmp_path: Path) -> None:
        self.write_table(tmp_path, 5)

        def changed(name: str, content: bytes) -> bytes:
            return content.replace(b'"use_pickle": false', b'"use_pickle": true') if name.endswith(".json") else content

        rewrite(tmp_path / "table" / "1" / "model.pt2", changed)
        with pytest.raises(PreconditionError, match="table is a pickle and no tensor"):
            load(tmp_path, "table")

    def test_a_graph_by_another_name_is_checked_too(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)

        def changed(name: str, content: bytes) -> bytes:
            return content.replace(b"torch.ops.aten.sub.Tensor", b"torch.hub.load") if "models/" in name else content

        rewrite(tmp_path / "difference" / "1" / "model.pt2", changed, renamed=("model.json", "a_config.json"))
        with pytest.raises(PreconditionError, match=r"torch\.hub\.load"):
            load(tmp_path, "difference")

    def test_a_compiled_library_in_a_program_is_refused(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        file = tmp_path / "difference" / "1" / "model.pt2"
        rewrite(file, lambda _, content: content, "data/aotinductor/model/model.so")
        with pytest.raises(PreconditionError, match="compiled library"):
            load(tmp_path, "difference")


class Declared(TensorContract):
    """What files must do that do not say what they take and give."""

    types: ClassVar = TYPES
    backend = "torch"

    def write(self, module: torch.nn.Module, folder: Path) -> None:
        raise NotImplementedError

    def settings(self, module: torch.nn.Module) -> str:
        return ""

    def add(self, repository: Path, name: str, module: torch.nn.Module, toml: str) -> None:
        self.write(module, policy_folder(repository, name, "torch", toml + self.settings(module)))

    def write_identity(self, repository: Path, spec: TensorSpec) -> None:
        toml = declare([spec], TensorSpec("advice", spec.type, spec.shape))
        self.add(repository, "same", modules.Same(), toml)

    def write_difference(self, repository: Path) -> None:
        features = [TensorSpec("a", ElementType.INT64), TensorSpec("b", ElementType.INT64)]
        self.add(repository, "difference", modules.Difference(), declare(features, ADVICE))

    def write_table(self, repository: Path, size: int) -> None:
        toml = declare([INT64], TensorSpec("advice", ElementType.FLOAT))
        self.add(repository, "table", modules.Table(size), toml)

    def write_mixture(self, repository: Path) -> None:
        toml = declare(MIXTURE, TensorSpec("advice", ElementType.FLOAT, ()))
        self.add(repository, "mixture", modules.Mixture(), toml)

    def test_one_of_several_outputs_is_named_in_the_settings(self, tmp_path: Path) -> None:
        self.add(tmp_path, "both", modules.Both(), declare([INT64], ADVICE))
        values = pack(Layout((INT64,)), {"x": 5})
        with pytest.raises(Exception, match="gave dict and no tensor"):
            evaluate(load(tmp_path, "both"), values, ADVICE)
        add_setting(tmp_path, "both", 'output = "minus"')
        assert evaluate(load(tmp_path, "both"), values, ADVICE)["advice"].tolist() == [[-5]]

    @pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
    def test_a_model_without_a_dimension_for_batches_is_asked_singly(
        self, tmp_path: Path, shape: tuple[int, ...]
    ) -> None:
        spec = TensorSpec("x", ElementType.FLOAT, shape)
        self.write_identity(tmp_path, spec)
        add_setting(tmp_path, "same", "batch = false")
        model = load(tmp_path, "same")
        assert (model.batched, probe(model).most) == (False, 1)
        values = pack(Layout((spec,)), {"x": np.full(shape, 7, np.float32)})
        given = evaluate(model, values, TensorSpec("advice", ElementType.FLOAT, shape))["advice"]
        assert given.tolist() == values["x"].tolist()

    def test_what_is_not_declared_is_asked_for(self, tmp_path: Path) -> None:
        self.add(tmp_path, "same", modules.Same(), "")
        with pytest.raises(PreconditionError, match="must declare features and advice"):
            load(tmp_path, "same")

    def test_features_that_the_model_does_not_take_are_refused(self, tmp_path: Path) -> None:
        self.add(tmp_path, "same", modules.Same(), declare([TensorSpec("y", ElementType.INT64)], ADVICE))
        with pytest.raises(PreconditionError, match=r"takes x; the features of policy.toml are y"):
            load(tmp_path, "same")

    def test_advice_of_another_type_than_declared_is_an_error(self, tmp_path: Path) -> None:
        self.add(tmp_path, "same", modules.Same(), declare([INT64], TensorSpec("advice", ElementType.FLOAT)))
        values = pack(Layout((INT64,)), {"x": 5})
        with pytest.raises(Exception, match=r"gave int64 for advice: float\[1\]"):
            evaluate(load(tmp_path, "same"), values, TensorSpec("advice", ElementType.FLOAT))


class TestScripts(Declared):
    artifact = "model.pt"

    def write(self, module: torch.nn.Module, folder: Path) -> None:
        save_script(module, folder)

    def write_network(self, repository: Path, advice: TensorSpec = DECISION) -> None:
        write_network(repository, "network", "torchscript", advice)

    @pytest.mark.parametrize("kept", ["module", "weights"])
    def test_a_checkpoint_is_refused_without_being_unpickled(self, tmp_path: Path, kept: str) -> None:
        self.write_difference(tmp_path)
        loaded = tmp_path / "loaded"
        torch.save({"weights": torch.ones(1), "module": Touching(loaded)}[kept], tmp_path / "difference/1/model.pt")
        with pytest.raises(PreconditionError, match="it is a checkpoint, which is a pickle"):
            load(tmp_path, "difference")
        assert not loaded.exists()

    def test_a_bare_pickle_is_refused_without_being_unpickled(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        loaded = tmp_path / "loaded"
        (tmp_path / "difference" / "1" / "model.pt").write_bytes(pickle.dumps(Touching(loaded)))
        with pytest.raises(PreconditionError, match=r"model\.pt"):
            load(tmp_path, "difference")
        assert not loaded.exists()

    def test_weights_alone_are_not_taken(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        stored = Repository([tmp_path]).resolve(PolicyReference("difference"))
        backend = load_backend("torch")
        assert isinstance(backend, WeightsBackend)
        with pytest.raises(
            PreconditionError, match=r"model\.pt cannot take other weights, .* publish the whole version"
        ):
            backend.replace_weights(stored.folder, stored.config, b"")

    def test_a_script_that_writes_files_is_refused(self, tmp_path: Path) -> None:
        self.write_difference(tmp_path)
        file = tmp_path / "difference" / "1" / "model.pt"
        save_script(modules.Writing(), file.parent)
        with pytest.raises(PreconditionError, match="says 'save', which does more"):
            load(tmp_path, "difference")


class TestWeights(Declared):
    artifact = "model.safetensors"

    def write(self, module: torch.nn.Module, folder: Path) -> None:
        save_weights(module, folder)

    def settings(self, module: torch.nn.Module) -> str:
        size = f"arguments = {{size = {len(module.table)}}}\n" if isinstance(module, modules.Table) else ""
        return f'[settings]\nmodule = "tests.torch_modules:{type(module).__name__}"\n{size}'

    def write_network(self, repository: Path, advice: TensorSpec = DECISION) -> None:
        write_weights_network(repository, "network", advice)

    @pytest.mark.parametrize(
        ("module", "message"),
        [
            ("subprocess:Popen", "no torch.nn.Module"),
            ("torch.nn:no_such_class", "no torch.nn.Module"),
            ("no_such_package:Network", "no_such_package"),
            ("torch.nn", 'weights need a "package.module:Class"'),
        ],
    )
    def test_only_a_module_of_an_installed_package_takes_weights(
        self, tmp_path: Path, module: str, message: str
    ) -> None:
        self.write_difference(tmp_path)
        file = tmp_path / "difference" / "policy.toml"
        file.write_text(file.read_text().replace("tests.torch_modules:Difference", module))
        with pytest.raises(PreconditionError, match=message):
            load(tmp_path, "difference")

    def test_weights_of_another_module_are_refused(self, tmp_path: Path) -> None:
        self.write_table(tmp_path, 5)
        save_weights(modules.Table(6), tmp_path / "table" / "1")
        with pytest.raises(PreconditionError, match="size mismatch for table"):
            load(tmp_path, "table")


class Touching:
    """A pickle of it makes a file when it is loaded."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.file,)


def rename_operator(program: Any, target: str) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = target


def rename_size(program: Any, expression: str) -> None:
    tensor = program["graph_module"]["graph"]["tensor_values"]["b"]
    tensor["sizes"][0] = {"as_expr": {"expr_str": expression, "hint": {"as_int": 3}}}


def rewrite(
    file: Path,
    change: Callable[[str, bytes], bytes],
    added: str | None = None,
    renamed: tuple[str, str] = ("", ""),
) -> None:
    """Write the archive ``file`` anew, each record as ``change`` wants it, with one more called ``added``."""
    with zipfile.ZipFile(file) as archive:
        records = {name.replace(*renamed): archive.read(name) for name in archive.namelist()}
    root = next(iter(records)).partition("/")[0]
    if added is not None:
        records.setdefault(f"{root}/{added}", b"")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, content in records.items():
            archive.writestr(name, change(name, content))


def test_an_archive_that_declares_more_than_it_can_hold_is_refused_before_it_is_read() -> None:
    data = (Path(__file__).parents[2] / "fuzzing" / "corpus" / "torch_script" / "declares-4-GB").read_bytes()
    with pytest.raises(RefusedError, match="it declares 4,211,082,171 bytes of content and has 2,043 bytes in all"):
        check_script(data)

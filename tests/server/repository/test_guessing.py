"""Policies without a policy.toml: the files of a version tell the backend."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_client import open_runner
from policybridge_core.errors import NotFoundError, PreconditionError
from policybridge_serdes import ElementType, PolicyReference, TensorSpec
from policybridge_server.engine.loading import Allowances
from policybridge_server.engine.versions import LoadedVersions
from policybridge_server.repository import PolicyConfig, Repository
from policybridge_server.repository.reading import policy_folders
from tests.onnx_models import make_model, write_onnx

SPEC = TensorSpec("x", ElementType.FLOAT, (2,))


def write_files(repository: Path, *names: str, version: int = 1) -> Repository:
    """Write the version of a policy `mine`, and give the repository."""
    folder = repository / "mine" / str(version)
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return Repository([repository])


@pytest.mark.parametrize(
    "tritons", [None, "garbage {", 'name: "other"\ninput [{ name: "z" data_type: TYPE_INT8 dims: [ 7 ] }]']
)
def test_a_model_without_a_policy_toml_answers_whatever_triton_was_told(tmp_path: Path, tritons: str | None) -> None:
    spec: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["batch", 2])
    file = write_onnx(tmp_path, "mine", make_model([helper.make_node("Neg", ["x"], ["y"])], {"x": spec}, {"y": spec}))
    file.rename(file.with_name("exported.onnx"))
    (tmp_path / "mine" / "policy.toml").unlink()
    if tritons is not None:
        (tmp_path / "mine" / "config.pbtxt").write_text(tritons)
    advice = TensorSpec("y", ElementType.FLOAT, (2,))
    with open_runner(f"inprocess:{tmp_path}", policy="mine", features=[SPEC], advice=advice) as runner:
        runner["x"] = np.array([1, 2], np.float32)
        assert np.array_equal(np.asarray(runner.evaluate()), [-1, -2])


@pytest.mark.parametrize(
    ("names", "config"),
    [
        (["model.onnx"], PolicyConfig("onnx")),
        (["weights.bin", "net.onnx"], PolicyConfig("onnx", settings={"file": "net.onnx"})),
        (["model.pt2"], PolicyConfig("torch")),
        (["model.tflite", "output_spec.json"], PolicyConfig("litert")),
        (["saved_model.pb", "fingerprint.pb"], PolicyConfig("tensorflow")),
        (["policy.py", "scores.pt2"], PolicyConfig("python")),
    ],
)
def test_the_files_tell_the_backend(tmp_path: Path, names: list[str], config: PolicyConfig) -> None:
    assert write_files(tmp_path, *names).policy("mine").config == config


def test_the_newest_version_tells(tmp_path: Path) -> None:
    write_files(tmp_path, "model.onnx", version=9)
    assert write_files(tmp_path, "model.tflite", version=10).policy("mine").usable.backend == "litert"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["model.bin"], "no file of version 1 says which backend"),
        (["a.onnx", "b.onnx"], "a.onnx, b.onnx of version 1 says which backend"),
        ([], "no file of version 1"),
    ],
)
def test_files_that_do_not_tell_are_refused_with_what_would(tmp_path: Path, names: list[str], message: str) -> None:
    repository = write_files(tmp_path, *names)
    with pytest.raises(PreconditionError, match=message) as refused:
        repository.resolve(PolicyReference("mine"))
    assert 'write a policy.toml with `backend = "…"`' in str(refused.value)


def test_folders_without_versions_are_no_policies(tmp_path: Path) -> None:
    (tmp_path / "notes" / "drafts").mkdir(parents=True)
    (tmp_path / "model.onnx").touch()
    assert Repository([tmp_path]).policies() == []


def test_code_without_a_policy_toml_runs_only_where_it_is_allowed(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "mine" / "1" / "policy.py").write_text("raise SystemExit('it ran')")
    versions = LoadedVersions(Repository([tmp_path]), Allowances(allow_python=False))
    with pytest.raises(PreconditionError, match="--allow-python"):
        versions.load(PolicyReference("mine"))


@pytest.mark.parametrize(
    "place", ["mine/model.onnx", "mine/v1/model.onnx", "mine/01/model.tflite", "mine/latest/policy.py"]
)
def test_a_model_that_is_in_no_version_is_told_with_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).touch()
    assert Repository([tmp_path]).policies() == []
    right = f"mine/1/{Path(place).name}"
    assert f"{place} is in no version; the folder of a version is named by a number: {right}" in caplog.text


def test_a_model_is_not_told_to_be_misplaced_while_it_may_be_copied_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine" / "new").mkdir(parents=True)
    (tmp_path / "mine" / "new" / "model.onnx").touch()
    assert list(policy_folders(tmp_path)) == []
    assert not caplog.records


def test_a_policy_without_a_version_says_where_one_would_be(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "policy.toml").write_text('backend = "onnx"\n')
    with pytest.raises(NotFoundError, match="no version yet; the folder of a version is named by a number: mine/1"):
        Repository([tmp_path]).resolve(PolicyReference("mine"))

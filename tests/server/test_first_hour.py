"""What a newcomer is told in the first hour: each mistake by what is wrong and what would be right."""

import re
from pathlib import Path
from typing import Any

import grpc
import onnx
import pytest
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from onnx import TensorProto, helper

from policybridge_client import open_runner
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_serdes import ElementType, TensorSpec
from tests.conftest import RunningServer, ServerFactory, running_server
from tests.repositories import answering, write_python
from tests.server.publishing.policies import client, wait_for

FORM = "a repository holds a folder for each policy: NAME/policy.toml and the versions NAME/1/, NAME/2/, …"
X = [TensorSpec("x", ElementType.INT64)]
ADVICE = TensorSpec("advice", ElementType.INT64)


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    write_python(folder, "echo", answering("observation['x']"))
    return folder


def is_serving(server: RunningServer, name: str = "") -> bool:
    with grpc.insecure_channel(server.grpc.removeprefix("grpc:")) as channel:
        status = HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=60).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)


@pytest.mark.parametrize("given", [".", "policies/echo", "empty"])
def test_a_repository_without_a_policy_is_warned_of_and_is_not_ready(
    policies: Path, server_factory: ServerFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str], given: str
) -> None:
    (tmp_path / "empty").mkdir()
    folder = tmp_path / given
    server = server_factory(folder)
    said = {
        ".": f"{folder} holds no policy, but {policies} does: give that folder",
        "policies/echo": f"{folder} is a policy and no repository: give the folder above it",
        "empty": f"{folder} holds no policy",
    }
    assert f"WARNING {said[given]}; {FORM}" in capfd.readouterr().err
    assert not is_serving(server)


def test_a_repository_without_a_policy_is_told_without_a_server_too(policies: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"no policy 'echo'.* {tmp_path} holds no policy, but {policies} does"):
        open_runner(f"inprocess:{tmp_path}", policy="echo", features=X, advice=ADVICE)
    with pytest.raises(NotFoundError, match=r"no policy 'other'; there are echo$"):
        open_runner(f"inprocess:{policies}", policy="other", features=X, advice=ADVICE)


def test_a_server_is_ready_as_soon_as_it_has_a_policy_that_can_be_served(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    pytest.importorskip("watchfiles")
    (tmp_path / "new").mkdir()
    server = server_factory(tmp_path / "new")
    assert not is_serving(server)
    write_python(tmp_path / "new", "echo", answering("observation['x']"))
    wait_for(lambda: is_serving(server))


def test_a_new_repository_that_is_published_into_is_no_mistake(
    server_factory: ServerFactory, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new").mkdir()
    server_factory(tmp_path / "new", "--allow-publish")
    assert "holds no policy" not in capfd.readouterr().err


@pytest.fixture
def misspelt(policies: Path, server_factory: ServerFactory) -> RunningServer:
    (policies / "echo" / "policy.toml").write_text('backend = "pyton"\n')
    return server_factory(policies)


def test_a_backend_that_does_not_exist_is_listed_with_the_reason_and_the_closest_name(misspelt: RunningServer) -> None:
    reason = "policy.toml of 'echo': unknown backend 'pyton'; did you mean 'python'? there are "
    with client(misspelt) as server:
        (policy,) = server.repository.policies()
        assert policy.error.startswith(reason)
        assert server.repository.show("echo").summary.error.startswith(reason)
        with pytest.raises(PreconditionError, match="did you mean 'python'"):
            open_runner(misspelt.grpc, policy="echo", features=X, advice=ADVICE)
    assert not is_serving(misspelt)
    assert not is_serving(misspelt, "echo")


def test_a_policy_whose_backend_is_corrected_is_served_without_a_restart(
    misspelt: RunningServer, policies: Path
) -> None:
    pytest.importorskip("watchfiles")
    (policies / "echo" / "policy.toml").write_text('backend = "python"\n')
    wait_for(lambda: is_serving(misspelt, "echo"))


def write_logits(repository: Path, toml: str = "") -> None:
    """Add a policy whose model makes two scores of two numbers."""
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", 2])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["scores"])], "logits", [x], [scores])
    (repository / "logits" / "1").mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, repository / "logits" / "1" / "model.onnx")
    (repository / "logits" / "policy.toml").write_text(f'backend = "onnx"\n{toml}')


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (TensorProto.FLOAT, r"given is one number; let the model give a score for no .*, and then \[head\] in policy"),
        (TensorProto.INT32, r'if given is one of N choices, \[head\] .* scores = "choice" and .* makes it int64_t'),
        (TensorProto.BOOL, r'if given is one of N choices, \[head\] .* scores = "choice" and .* makes it int64_t'),
    ],
)
def test_a_model_whose_one_number_has_another_type_than_the_advice_is_told_what_makes_it_that(
    tmp_path: Path, kind: int, told: str
) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1])
    given = helper.make_tensor_value_info("given", kind, ["batch", 1])
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["given"], to=kind)], "one", [x], [given])
    (tmp_path / "one" / "1").mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "one" / "1" / "model.onnx")
    features = [TensorSpec("x", ElementType.FLOAT)]
    with pytest.raises(InvalidError, match=told):
        open_runner(f"inprocess:{tmp_path}", policy="one", features=features, advice=ADVICE)


def test_a_client_that_sends_a_packed_input_itself_is_told_of_the_features(policies: Path, tmp_path: Path) -> None:
    write_logits(policies, '[settings.pack.x]\nfeatures = ["cost", "benefit"]\n[head]\n')
    told = (
        r"logits@1 needs cost: int64_t\[1?\], which the client does not send; it sends x; settings.pack in policy.toml"
        r" makes the model's input x of 2 features: send them each by its name, or add a \[fill\] for those that"
        r" clients lack: cost: int64_t\[1?\], benefit: int64_t\[1?\]"
    )
    with running_server(policies, tmp_path) as server:
        with pytest.raises(InvalidError, match=told):
            open_runner(
                server.grpc, policy="logits", features=[TensorSpec("x", ElementType.FLOAT, (2,))], advice=ADVICE
            )
        features = [TensorSpec(name, ElementType.INT64) for name in ("benefit", "cost")]
        with open_runner(server.grpc, policy="logits", features=features, advice=ADVICE) as runner:
            runner["benefit"], runner["cost"] = 1, 2
            assert runner.evaluate() == 1


@pytest.mark.parametrize("shape", [["batch"], ["batch", 1]])
def test_a_model_that_takes_another_type_of_number_is_told_of_the_pack_that_converts_it(
    tmp_path: Path, shape: list[str | int]
) -> None:
    x, same = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "same"))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["same"])], "one", [x], [same])
    (tmp_path / "one" / "1").mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "one" / "1" / "model.onnx")
    given: dict[str, Any] = {
        "policy": "one",
        "features": [TensorSpec("x", ElementType.INT64)],
        "advice": TensorSpec("same", ElementType.FLOAT),
    }
    with pytest.raises(
        InvalidError, match=r"the client sends x: int64_t\[1\]; (.*) in policy.toml converts it"
    ) as told:
        open_runner(f"inprocess:{tmp_path}", **given)
    table, features = re.findall(r"(\[settings.pack.x\]) with (features = .*) in policy", str(told.value))[0]
    (tmp_path / "one" / "policy.toml").write_text(f'backend = "onnx"\n{table}\n{features}\n')
    with open_runner(f"inprocess:{tmp_path}", **given) as runner:
        runner["x"] = 7
        assert runner.evaluate() == 7


def test_a_rename_the_other_way_round_is_told_with_the_right_one(policies: Path) -> None:
    write_logits(policies, '[head]\n[rename]\nobs = "x"\n')
    features = [TensorSpec("obs", ElementType.FLOAT, (2,))]
    with pytest.raises(
        InvalidError, match=r'needs x: .* \[rename\] in policy.toml is input = feature, so "x" = "obs"$'
    ):
        open_runner(f"inprocess:{policies}", policy="logits", features=features, advice=ADVICE)


def test_a_model_that_gives_logits_is_told_of_the_head(policies: Path, tmp_path: Path) -> None:
    write_logits(policies)
    features = [TensorSpec("x", ElementType.FLOAT, (2,))]
    told = (
        r"gives scores: float\[2\]; the client takes advice: int64_t\[1\]; if scores scores the choices, \[head\] in po"
    )
    with (
        running_server(policies, tmp_path) as server,
        pytest.raises(InvalidError, match=told),
    ):
        open_runner(server.grpc, policy="logits", features=features, advice=ADVICE)

"""Publishing weights alone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from policybridge_client.policies import save_weights
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_core.session import SessionOptions
from policybridge_serdes import ElementType, PolicyReference, Signature, TensorSpec, pack
from tests.conftest import ServerFactory
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, write_python
from tests.server.publishing.policies import Client, client, identity, write_adder


@pytest.fixture
def server(policies: Path, server_factory: ServerFactory) -> Iterator[Client]:
    with client(server_factory(policies, "--allow-publish")) as made:
        yield made


def own(number: int) -> dict[str, np.ndarray]:
    return {"own": np.array([[number]], np.int64)}


def test_weights_make_a_version_like_any_other(server: Client, policies: Path) -> None:
    version = server.repository.publish_weights(PolicyReference("adder"), own(200), aliases=["stable"])
    assert server.ask("adder@stable") == (version, 200)
    assert version.digest == identity(policies / "adder" / "2")
    again = server.repository.publish_weights(PolicyReference("adder", version=1), own(300))
    assert (again.version, server.ask()[1], server.ask("adder@1")[1]) == (3, 300, 100)


def test_weights_survive_a_restart(policies: Path, server_factory: ServerFactory) -> None:
    first = server_factory(policies, "--allow-publish")
    with client(first) as server:
        version = server.repository.publish_weights(PolicyReference("adder"), own(200))
    first.kill()
    with client(server_factory(policies, "--allow-publish")) as server:
        assert server.ask() == (version, 200)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"other": np.zeros(1)}, "the base has no tensor 'other'; it has own"),
        ({"own": np.zeros((1, 2), np.int64)}, r"own is I64\[1, 2\]; in the base it is I64\[1, 1\]"),
        ({"own": np.zeros((1, 1), np.float32)}, r"own is F32\[1, 1\]; in the base it is I64\[1, 1\]"),
    ],
)
def test_weights_that_are_not_those_of_the_base_are_refused(
    server: Client, policies: Path, weights: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(PreconditionError, match=message):
        server.repository.publish_weights(PolicyReference("adder"), weights)
    assert server.ask()[1] == 100
    assert {path.name for path in (policies / "adder").iterdir()} == {"1", "numbers.json", "policy.toml"}


def test_weights_with_nan_are_refused(server: Client, tmp_path: Path) -> None:
    files = write_adder(tmp_path / "float", 1, kind=1)
    server.repository.publish("float", files, config='backend = "onnx"\n')
    with pytest.raises(PreconditionError, match="own holds NaN"):
        server.repository.publish_weights(PolicyReference("float"), {"own": np.full((1, 1), np.nan, np.float32)})


def test_weights_need_a_base(server: Client) -> None:
    with pytest.raises(NotFoundError, match="no policy 'none'"):
        server.repository.publish_weights(PolicyReference("none"), own(1))
    with pytest.raises(NotFoundError, match="no version 9 of policy 'adder'"):
        server.repository.publish_weights(PolicyReference("adder", version=9), own(1))


def test_initializers_without_new_weights_stay(policies: Path, server_factory: ServerFactory) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "own"], ["advice"]),
    ]
    integer: tuple[int, list[int | str]] = (TensorProto.INT64, ["batch", 1])
    weights = {"factor": np.array([[3]], np.int64), **own(10)}
    write_onnx(policies, "line", make_model(nodes, {"x": integer}, {"advice": integer}, weights))
    with client(server_factory(policies, "--allow-publish")) as server:
        # `ask` gives the advice for 7, less 7.
        assert server.ask("line")[1] == 3 * 7 + 10 - 7
        server.repository.publish_weights(PolicyReference("line"), own(20))
        assert server.ask("line")[1] == 3 * 7 + 20 - 7


def test_a_policy_whose_backend_takes_no_weights_alone_says_so(policies: Path, server_factory: ServerFactory) -> None:
    write_python(policies, "code", answering("observation['x']"))
    with (
        client(server_factory(policies, "--allow-publish")) as server,
        pytest.raises(PreconditionError, match="the backend 'python' takes no weights alone; publish all files"),
    ):
        server.repository.publish_weights(PolicyReference("code"), own(1))


def test_a_state_dict_of_torch_is_published_whole(policies: Path, server_factory: ServerFactory) -> None:
    pytest.importorskip("torch")
    spec = TensorSpec("x", ElementType.FLOAT, (2,))
    signature = Signature.of([spec], TensorSpec("y", ElementType.FLOAT, (1,)))
    (policies / "linear" / "1").mkdir(parents=True)
    (policies / "linear" / "policy.toml").write_text(
        'backend = "torch"\nfeatures = [{name = "input", type = "float", shape = [2]}]\n'
        'advice = {name = "y", type = "float", shape = [1]}\n[rename]\ninput = "x"\n'
        '[settings]\nmodule = "torch.nn:Linear"\narguments = {in_features = 2, out_features = 1}\n'
    )
    state = {"weight": np.ones((1, 2), np.float32), "bias": np.zeros(1, np.float32)}
    (policies / "linear" / "1" / "model.safetensors").write_bytes(save_weights(state))
    with client(server_factory(policies, "--allow-publish")) as server:
        with pytest.raises(PreconditionError, match="the weights lack bias"):
            server.repository.publish_weights(PolicyReference("linear"), {"weight": state["weight"]})
        server.repository.publish_weights(PolicyReference("linear"), {**state, "bias": np.full(1, 5, np.float32)})
        session = server.connection.open(PolicyReference("linear"), signature, SessionOptions())
        assert session.policy.version == 2
        assert session.evaluate(pack(signature.features, {"x": [1, 2]}))["y"].item() == 8


def test_the_weights_of_an_exported_program_are_published(policies: Path, server_factory: ServerFactory) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
    tied = torch.nn.Linear(2, 2, bias=False)
    tied.weight = module[0].weight
    module.append(tied)
    program = torch.export.export(module, (torch.zeros(2, 2),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    (policies / "program" / "1").mkdir(parents=True)
    torch.export.save(program, policies / "program" / "1" / "model.pt2")
    (policies / "program" / "policy.toml").write_text('backend = "torch"\n[rename]\ninput = "x"\n')
    signature = Signature.of([TensorSpec("x", ElementType.FLOAT, (2,))], TensorSpec("y", ElementType.FLOAT, (2,)))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
        expected = module(torch.tensor([[1.0, 2.0]])).tolist()
    state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    with client(server_factory(policies, "--allow-publish")) as server:
        for wrong, message in (
            ({**state, "more": np.zeros(1)}, "the base has no tensor 'more'"),
            ({**state, "0.bias": np.zeros(3, np.float32)}, r"0\.bias is F32\[3\]; in the base it is F32\[2\]"),
            ({name: state[name] for name in state if name != "1.running_var"}, "the weights lack 1.running_var"),
        ):
            with pytest.raises(PreconditionError, match=message):
                server.repository.publish_weights(PolicyReference("program"), wrong)
        with pytest.raises(InvalidError, match="shares its bytes with another weight"):
            server.repository.publish_weights(PolicyReference("program"), {**state, "2.weight": state["2.weight"] + 1})
        # Of weights that share their bytes safetensors keeps one name.
        server.repository.publish_weights(
            PolicyReference("program"), {name: state[name] for name in state if name != "2.weight"}
        )
        session = server.connection.open(PolicyReference("program"), signature, SessionOptions())
        assert session.policy.version == 2
        # The exported program may add in another order.
        np.testing.assert_allclose(session.evaluate(pack(signature.features, {"x": [1, 2]}))["y"], expected, rtol=1e-5)

"""What Python policies may do beside the contract of all backends: consult models, and live in episodes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from policybridge_client import open_runner
from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_serdes import ElementType, Layout, PolicyVersion, TensorSpec, pack, tensor
from policybridge_server.backends.contract import Batch, Model, SessionView
from policybridge_server.engine.probe import probe
from tests.frameworks import require
from tests.onnx_models import make_model
from tests.repositories import answering, write_python
from tests.server.backends.backends import load

X = TensorSpec("x", ElementType.FLOAT, (-1,))
ADVICE = TensorSpec("advice", ElementType.FLOAT, (-1,))
CONSULTING = """
class Policy:
    def __init__(self, models):
        self.models = models

    def evaluate(self, observation, session):
        return {answer}
"""
EPISODES = """
class Policy:
    def start(self, session):
        session.state["told"] = []

    def evaluate(self, observation, session):
        session.state["told"].append(observation["x"].item())
        return session.state["told"]

    def end(self, session):
        session.labels["ended"] = session.labels.get("ended", "") + str(session.state["told"])
"""


def ask(model: Model, value: Sequence[float], session: SessionView | None = None) -> list[float]:
    session = session or SessionView("a", PolicyVersion("p", 1, ""))
    values = model.evaluate(Batch(pack(Layout((X,)), {"x": np.array(value)}), [session], Layout((ADVICE,))))
    answer: list[float] = tensor(ADVICE, values).tolist()
    return answer


def save_difference(file: Path) -> None:
    """Write a model that takes any number of ``a`` and ``b`` and gives their differences."""
    spec: tuple[int, list[int | str]] = (TensorProto.FLOAT, ["n"])
    node = helper.make_node("Sub", ["a", "b"], ["difference"])
    onnx.save(make_model([node], {"b": spec, "a": spec}, {"difference": spec}), file)


def write_consulting(repository: Path, answer: str, models: str = 'difference = "difference.onnx"') -> Path:
    """Add the policy ``consults``, and give its version's folder with the model ``difference`` in it."""
    toml = f"[settings.models]\n{models}\n"
    write_python(repository, "consults", CONSULTING.format(answer=answer), toml)
    folder = repository / "consults" / "1"
    save_difference(folder / "difference.onnx")
    return folder


class TestModels:
    def test_a_model_is_called_by_the_names_of_its_inputs_with_shapes_as_its_file_has_them(
        self, tmp_path: Path
    ) -> None:
        write_consulting(tmp_path, "self.models['difference'](b=[1] * len(observation['x']), a=observation['x'])")
        model = load(tmp_path, "consults")
        assert ask(model, [3.5, 1.0, 7.0]) == [2.5, 0.0, 6.0]
        assert ask(model, []) == []

    def test_several_models_are_consulted_for_one_advice(self, tmp_path: Path) -> None:
        answer = "self.models['one'](a=self.models['other'](a=observation['x'], b=[1]), b=[2])"
        write_consulting(tmp_path, answer, 'one = "difference.onnx"\nother = {file = "difference.onnx"}')
        assert ask(load(tmp_path, "consults"), [10.0]) == [7.0]

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            ("(a=observation['x'])", "the model 'difference' takes b, a; it was given a"),
            ("()", "the model 'difference' takes b, a; it was given nothing"),
            ("(a=[[1]], b=[1])", r"the model 'difference': a: float\[-1\] was given a value of shape \[1, 1\]"),
            ("(a=['x'], b=[1])", r"the model 'difference': a: float\[-1\] was given"),
            ("(a=[1, 2, 3], b=[1, 2])", "the model 'difference': ONNX Runtime"),
        ],
    )
    def test_a_call_that_does_not_fit_names_the_model(self, tmp_path: Path, call: str, message: str) -> None:
        write_consulting(tmp_path, f"self.models['difference']{call}")
        with pytest.raises(PolicyFailedError, match=message):
            ask(load(tmp_path, "consults"), [1.0])

    @pytest.mark.parametrize(
        ("models", "message"),
        [
            ('m = "absent.onnx"', r"there is no model .*absent\.onnx"),
            ('m = "../../../difference.onnx"', "outside of the version's folder"),
            ('m = "policy.py"', r"settings.models names 'policy.py'; without `backend` its file is one of .onnx, .pt"),
            ('m = {file = "difference.onnx", fiel = 1}', "fiel"),
            ('m = {file = "difference.onnx", settings = {threds = 1}}', "threds"),
            ('m = "corrupt.onnx"', r"corrupt\.onnx cannot be loaded"),
        ],
    )
    def test_a_model_that_cannot_be_loaded_is_refused_by_its_name(
        self, tmp_path: Path, models: str, message: str
    ) -> None:
        folder = write_consulting(tmp_path, "0", models)
        (folder / "corrupt.onnx").write_bytes(b"\xff\x00 no model")
        save_difference(tmp_path / "difference.onnx")
        with pytest.raises(PreconditionError, match=message):
            load(tmp_path, "consults")

    def test_a_policy_that_does_not_take_its_models_is_refused(self, tmp_path: Path) -> None:
        write_consulting(tmp_path, "0")
        (tmp_path / "consults" / "1" / "policy.py").write_text("class Policy:\n    pass\n")
        with pytest.raises(PreconditionError, match=r"Policy\(models\) raised TypeError"):
            load(tmp_path, "consults")

    def test_the_models_are_closed_with_the_policy(self, tmp_path: Path) -> None:
        write_consulting(tmp_path, "self.models['difference'](a=observation['x'], b=observation['x'])")
        model = load(tmp_path, "consults")
        assert ask(model, [1.0]) == [0.0]
        model.close()
        with pytest.raises(PolicyFailedError):
            ask(model, [1.0])

    def test_weights_are_declared_as_in_a_policy_of_their_own(self, tmp_path: Path) -> None:
        require("torch")
        from tests import frameworks_torch, torch_modules  # noqa: PLC0415 - not where torch is missing

        spec = '{name = "x", type = "float", shape = [-1]}'
        models = f"""
            [settings.models.same]
            file = "model.safetensors"
            settings = {{module = "tests.torch_modules:Same"}}
            features = [{spec}]
            advice = {spec}
            """
        folder = write_consulting(tmp_path, "self.models['same'](x=observation['x'])", models)
        frameworks_torch.save_weights(torch_modules.Same(), folder)
        assert ask(load(tmp_path, "consults"), [4.0, 5.0]) == [4.0, 5.0]

    def test_a_tflite_model_is_consulted_like_any_other(self, tmp_path: Path) -> None:
        require("ai_edge_litert")
        require("tensorflow")
        import tensorflow as tf  # noqa: PLC0415 - not where it is missing

        from policybridge_demo.export.tensorflow import save_litert  # noqa: PLC0415

        folder = write_consulting(tmp_path, "self.models['m'](x=observation['x'])", 'm = "model.tflite"')
        twice: Callable[..., object] = lambda x: {"advice": x + x}  # noqa: E731
        save_litert(twice, {"x": tf.TensorSpec([2], tf.float32)}, folder)
        assert ask(load(tmp_path, "consults"), [4.0, 5.0]) == [8.0, 10.0]


class TestEpisodes:
    def load(self, repository: Path, episode: str) -> Model:
        write_python(repository, "remembers", EPISODES, episode)
        return load(repository, "remembers")

    def test_a_session_is_one_episode_unless_the_policy_says_otherwise(self, tmp_path: Path) -> None:
        model, session = self.load(tmp_path, ""), SessionView("a", PolicyVersion("p", 1, ""))
        for context, given in (("f", [1.0]), ("g", [1.0, 1.0])):
            session.context = context
            assert ask(model, [1.0], session) == given

    def test_a_feature_that_is_not_0_starts_an_episode_with_an_empty_state(self, tmp_path: Path) -> None:
        model = self.load(tmp_path, '[settings.episode]\nfeature = "x"')
        session = SessionView("a", PolicyVersion("p", 1, ""))
        given = [ask(model, [value], session) for value in (0.0, 0.0, 1.0, 0.0, 2.0)]
        assert given == [[0.0], [0.0, 0.0], [1.0], [1.0, 0.0], [2.0]]
        model.end(session)  # type: ignore[attr-defined]
        assert session.labels == {"ended": "[0.0, 0.0][1.0, 0.0][2.0]"}

    def test_the_first_observation_starts_one_episode_and_not_two(self, tmp_path: Path) -> None:
        model = self.load(tmp_path, '[settings.episode]\nfeature = "x"')
        session = SessionView("a", PolicyVersion("p", 1, ""))
        assert ask(model, [1.0], session) == [1.0]
        assert session.labels == {}

    def test_another_context_starts_an_episode(self, tmp_path: Path) -> None:
        model = self.load(tmp_path, "[settings.episode]\ncontext = true")
        session = SessionView("a", PolicyVersion("p", 1, ""), context="f")
        assert [ask(model, [value], session) for value in (1.0, 2.0)] == [[1.0], [1.0, 2.0]]
        session.context = "g"
        assert ask(model, [3.0], session) == [3.0]

    def test_episodes_of_one_session_are_not_those_of_another(self, tmp_path: Path) -> None:
        model = self.load(tmp_path, '[settings.episode]\nfeature = "x"')
        one, other = (SessionView(name, PolicyVersion("p", 1, "")) for name in "ab")
        assert [ask(model, [value], one) for value in (1.0, 0.0)] == [[1.0], [1.0, 0.0]]
        assert ask(model, [1.0], other) == [1.0]
        assert ask(model, [0.0], one) == [1.0, 0.0, 0.0]

    def test_a_policy_with_episodes_can_be_probed(self, tmp_path: Path) -> None:
        declared = """
            features = [{name = "x", type = "float", shape = [1]}]
            advice = {name = "advice", type = "float", shape = [1]}
            """
        write_python(tmp_path, "remembers", EPISODES, declared)
        model = load(tmp_path, "remembers")
        assert probe(model).seconds is not None

    def test_an_episode_by_a_feature_that_is_not_sent_is_an_error(self, tmp_path: Path) -> None:
        model = self.load(tmp_path, '[settings.episode]\nfeature = "new"')
        session = SessionView("a", PolicyVersion("p", 1, ""))
        ask(model, [1.0], session)
        with pytest.raises(KeyError, match="no feature 'new'; the client sends x"):
            ask(model, [1.0], session)


X_ALONE = 'features = [{name = "x", type = "int64_t", shape = [1]}]'


@pytest.mark.parametrize(("declared", "seen"), [("", [1, 1]), (X_ALONE, [1, 0])])
def test_without_declared_features_a_policy_has_all_of_the_client_and_with_them_only_those(
    declared: str, seen: list[int], tmp_path: Path
) -> None:
    write_python(tmp_path, "names", answering("[name in observation for name in ('x', 'y')]"), declared)
    features = [TensorSpec(name, ElementType.INT64) for name in ("x", "y")]
    advice = TensorSpec("advice", ElementType.INT64, (2,))
    with open_runner(f"inprocess:{tmp_path}", policy="names", features=features, advice=advice) as runner:
        assert np.asarray(runner.evaluate()).tolist() == seen


@pytest.mark.parametrize("place", ["helper.py", "helper/__init__.py"])
def test_a_module_beside_the_policy_that_is_imported_by_its_name_alone_is_refused_with_the_line_that_imports_it(
    tmp_path: Path, place: str
) -> None:
    write_python(tmp_path, "own", "import helper\n" + answering("helper.COST"))
    beside = tmp_path / "own" / "1" / place
    beside.parent.mkdir(exist_ok=True)
    beside.write_text("COST = 1\n")
    with pytest.raises(PreconditionError, match=r"No module named 'helper'.*`from \.helper import …`"):
        load(tmp_path, "own")


def test_a_missing_module_that_is_not_beside_the_policy_is_said_as_python_says_it(tmp_path: Path) -> None:
    write_python(tmp_path, "own", "import helper\n" + answering("1"))
    with pytest.raises(PreconditionError, match=r"No module named 'helper' \(policy.py, line 1\)$"):
        load(tmp_path, "own")


def test_a_class_of_another_name_is_refused_with_the_setting_that_names_it(tmp_path: Path) -> None:
    write_python(tmp_path, "own", answering("1").replace("Policy", "MyPolicy"))
    with pytest.raises(PreconditionError, match=r"no class 'Policy'; .* `name` under \[settings\]"):
        load(tmp_path, "own")

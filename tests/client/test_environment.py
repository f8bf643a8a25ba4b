"""The reverse mode, with a C++ compiler that serves gRPC while it compiles."""

import gc
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv
from gymnasium.wrappers import FilterObservation
from stable_baselines3 import PPO

from policybridge_client.environment import Compiler, CompilerEnvironment, Method, Transition, load_method
from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    NotFoundError,
    PreconditionError,
    UnavailableError,
)
from tests.server.mlbridge.pipes_native import ENVIRONMENT_PROTOS as PROTOS
from tests.server.mlbridge.pipes_native import environment_compiler
from tests.server.mlbridge.pipes_server import wait_until

NAME = "episode.CompilerService/queryCompiler"

DIES, HANGS, ERROR, SHORT = 90, 91, 92, 93

Make = Callable[..., CompilerEnvironment]


@pytest.fixture(scope="module")
def program() -> Path:
    return environment_compiler()


@pytest.fixture(scope="module")
def method() -> Method:
    return load_method([PROTOS], NAME)


@pytest.fixture
def make(program: Path, method: Method) -> Iterator[Make]:
    """Make environments that are closed with the test."""
    made: list[CompilerEnvironment] = []

    def environment(behaviour: str = "", **changes: Any) -> CompilerEnvironment:
        timeouts = {name: changes.pop(name) for name in list(changes) if name.endswith("_timeout")}
        address, pattern = (
            ("127.0.0.1:0", r"Listening on .*:(\d+)$") if "port" in behaviour else ("127.0.0.1:{port}", None)
        )
        words = [str(program), address, "{folder}/out", *([behaviour] if behaviour else [])]
        compiler = changes.pop("compiler", None) or Compiler(command=words, port_pattern=pattern, **timeouts)
        arguments = {"action_space": Discrete(100), "reward": reward, "terminated": lambda t: t.step == 3, **changes}
        made.append(CompilerEnvironment(compiler, changes.pop("method", method), **arguments))
        return made[-1]

    yield environment
    for one in made:
        one.close()


def reward(transition: Transition) -> float:
    """Give what the compilation came to when it has."""
    return float((transition.folder / "out").read_text()) if transition.terminated else -0.5


def test_an_episode_is_a_compilation_to_its_end(make: Make) -> None:
    environment = make(sizes={"embedding": 3}, last={"action": -1})
    observation, info = environment.reset()
    assert observation["embedding"].tolist() == [0, 0.5, 1]
    assert info["reply"].name == "main"
    steps = [environment.step(action) for action in (1, 2, 3)]
    assert [step[1:4] for step in steps] == [(-0.5, False, False), (-0.5, False, False), (106, True, False)]
    assert [step[0]["detail/remaining"].tolist() for step in steps] == [[9], [7], [4]]
    assert steps[2][4]["status"] == 0
    with pytest.raises(PreconditionError, match="reset"):
        environment.step(1)


def test_episodes_follow_each_other_and_start_anew(make: Make) -> None:
    environment = make()
    for _ in range(3):
        observation, _ = environment.reset()
        assert observation["choices"].tolist() == []
        assert environment.step(2)[0]["choices"].tolist() == [[0], [1]]


@pytest.mark.parametrize("action", [3, -1, 1.5, "1", None])
def test_an_action_that_a_discrete_space_lacks_is_refused_and_the_episode_goes_on(make: Make, action: Any) -> None:
    environment = make(action_space=Discrete(3))
    environment.reset()
    with pytest.raises(InvalidError, match=r"is no action of Discrete\(3\)"):
        environment.step(action)
    assert environment.step(np.int64(2))[0]["choices"].tolist() == [[0], [1]]


@pytest.mark.filterwarnings("ignore:.*m(in|ax)imum value is -?infinity")
def test_gymnasium_finds_nothing_wrong(make: Make) -> None:
    environment = make(sizes={"embedding": 3, "choices": 0}, action_space=Discrete(1))
    # An embedding has no bounds.
    check_env(environment, skip_render_check=True)


@pytest.mark.parametrize("sizes", [{}, {"embedding": 3}])
def test_observations_lie_in_the_space_that_the_reply_describes(make: Make, sizes: dict[str, int]) -> None:
    environment = make(sizes=sizes)
    observation, _ = environment.reset()
    assert list(observation) == ["embedding", "detail/remaining", "detail/legal", "choices"]
    assert environment.observation_space.contains(observation)
    after, *_ = environment.step(2)
    assert environment.observation_space.contains(after)
    assert after["embedding"].dtype == np.float32
    assert after["choices"].dtype == np.int32


def test_stable_baselines_learns_from_a_nested_reply(make: Make) -> None:
    environment = make(sizes={"embedding": 3})
    # The number of choices varies, and its networks take a fixed number.
    fixed = FilterObservation(environment, ["embedding", "detail/remaining", "detail/legal"])
    PPO("MultiInputPolicy", fixed, n_steps=4, batch_size=4).learn(4)


def test_what_is_observed_and_sent_may_be_the_users_own(make: Make) -> None:
    def act(request: Message, action: Any) -> None:
        request.action, _ = map(int, action)  # type: ignore[attr-defined]

    def observe(reply: Message) -> np.ndarray:
        return np.array([len(reply.choices)], np.float32)  # type: ignore[attr-defined]

    space = Box(0, 100, (1,), np.float32)
    environment = make(
        observe=observe, observation_space=space, action=act, action_space=MultiDiscrete([4, 4]), first={"action": 5}
    )
    assert environment.reset()[0].tolist() == [5]
    assert environment.step(np.array([3, 1]))[0].tolist() == [8]


class TestDeath:
    @pytest.mark.parametrize(
        ("action", "message", "status"),
        [
            (DIES, "ended with status 3: .*internal compiler error", 3),
            (HANGS, r"no answer within 0\.5 s", None),
            (ERROR, "no such pass", None),
            (SHORT, "embedding has 2 numbers; its size was given as 3", None),
        ],
    )
    def test_it_truncates_the_episode_and_the_next_starts_anew(
        self, make: Make, action: int, message: str, status: int | None
    ) -> None:
        environment = make(sizes={"embedding": 3}, step_timeout=0.5)
        for _ in range(2):
            environment.reset()
            before, *_ = environment.step(2)
            observation, earned, terminated, truncated, info = environment.step(action)
            assert (earned, terminated, truncated, info["status"]) == (0, False, True, status)
            assert np.array_equal(observation["detail/remaining"], before["detail/remaining"])
            assert re.search(message, info["error"], re.DOTALL)

    def test_a_stopped_compiler_that_takes_no_bytes_of_a_large_request_truncates(self, make: Make) -> None:
        def act(request: Message, _: Any) -> None:
            request.hints.extend(range(1 << 40, (1 << 40) + (4 << 20)))  # type: ignore[attr-defined]

        environment = make(action=act, step_timeout=2)
        environment.reset()
        assert environment._running is not None
        compiler = environment._running._process.pid
        os.kill(compiler, signal.SIGSTOP)
        *_, truncated, info = environment.step(1)
        assert (truncated, "no answer within 2 s" in info["error"]) == (True, True)
        assert not is_running(compiler)

    def test_a_compiler_that_does_not_end_in_time_truncates(self, make: Make) -> None:
        environment = make("mute", end_timeout=0.3)
        environment.reset()
        for _ in range(2):
            environment.step(1)
        *_, terminated, truncated, info = environment.step(1)
        assert (terminated, truncated) == (False, True)
        assert "did not end within 0.3 s" in info["error"]

    def test_before_its_first_answer_it_is_an_error_with_its_output(self, make: Make) -> None:
        with pytest.raises(UnavailableError, match=r"status 1: .*no such file"):
            make("broken").reset()

    def test_a_compiler_that_is_not_there_is_an_error_that_names_it(self, make: Make) -> None:
        with pytest.raises(UnavailableError, match="/nowhere/clang"):
            make(compiler=Compiler(command=["/nowhere/clang", "{port}"])).reset()

    def test_a_compiler_that_never_listens_is_an_error(self, make: Make) -> None:
        sleeper = [sys.executable, "-c", "import sys; sys.stdin.read()", "{port}"]
        with pytest.raises(DeadlineError, match="did not listen"):
            make(compiler=Compiler(command=sleeper, start_timeout=0.5)).reset()


class TestPort:
    def test_it_may_be_found_in_the_output(self, make: Make, program: Path) -> None:
        words = [str(program), "127.0.0.1:0", "{folder}/out"]
        environment = make(compiler=Compiler(command=words, port_pattern=r"Listening on .*:(\d+)$"))
        assert environment.reset()[0]["detail/remaining"].tolist() == [10]

    def test_an_output_that_never_tells_is_an_error(self, make: Make, program: Path) -> None:
        words = [str(program), "127.0.0.1:0", "{folder}/out", "silent"]
        with pytest.raises(DeadlineError, match="printed no port"):
            make(compiler=Compiler(command=words, port_pattern=r":(\d+)$", start_timeout=0.5)).reset()

    def test_it_is_either_given_or_found(self) -> None:
        for command, pattern in ((["clang"], None), (["clang", "{port}"], r"(\d+)")):
            with pytest.raises(InvalidError, match="port_pattern"):
                Compiler(command=command, port_pattern=pattern)


def test_options_of_reset_fill_the_command(make: Make, program: Path) -> None:
    words = [str(program), "127.0.0.1:{port}", "{folder}/out", "{behaviour}"]
    environment = make(compiler=Compiler(command=words))
    environment.reset(options={"behaviour": "silent"})
    with pytest.raises(UnavailableError, match="no such file"):
        environment.reset(options={"behaviour": "broken"})


def is_running(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    return False


class TestNothingIsLeft:
    def running(self, environment: CompilerEnvironment) -> tuple[int, int, Path]:
        environment.reset()
        running = environment._running
        assert running is not None
        child = running.folder / "out.child"
        wait_until(lambda: child.exists() and child.read_text().endswith("\n"))
        return running._process.pid, int(child.read_text()), running.folder

    @pytest.mark.parametrize("how", ["close", "reset", "death", "forgotten"])
    def test_of_a_compiler_and_what_it_started(self, make: Make, method: Method, program: Path, how: str) -> None:
        if how == "forgotten":
            words = [str(program), "127.0.0.1:{port}", "{folder}/out", "child"]
            environment = CompilerEnvironment(
                Compiler(command=words), method, action_space=Discrete(100), reward=reward, terminated=bool
            )
        else:
            environment = make("child")
        compiler, child, folder = self.running(environment)
        if how == "close":
            environment.close()
            environment.close()
        elif how == "reset":
            environment.reset()
        elif how == "death":
            environment.step(DIES)
        else:
            del environment
            gc.collect()
        wait_until(lambda: not is_running(compiler) and not is_running(child))
        assert not folder.exists()

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_where_a_signal_ends_the_trainer(self, program: Path, tmp_path: Path, number: signal.Signals) -> None:
        trainer = f"""
import sys, time
from pathlib import Path
from gymnasium.spaces import Discrete
from policybridge_client.environment import Compiler, CompilerEnvironment, load_method
words = [{str(program)!r}, "127.0.0.1:{{port}}", "{{folder}}/out", "child"]
method = load_method([{str(PROTOS)!r}], {NAME!r})
environment = CompilerEnvironment(
    Compiler(command=words), method, action_space=Discrete(100), reward=lambda _: 0, terminated=lambda _: False
)
environment.reset()
running = environment._running
child = running.folder / "out.child"
while not (child.exists() and child.read_text().endswith("\\n")):
    time.sleep(0.01)
print(running._process.pid, int(child.read_text()), running.folder, flush=True)
time.sleep(600)
"""
        with subprocess.Popen([sys.executable, "-c", trainer], stdout=subprocess.PIPE, text=True) as started:
            assert started.stdout is not None
            compiler, child, folder = started.stdout.readline().split()
            started.send_signal(number)
        assert started.returncode == -number
        wait_until(lambda: not is_running(int(compiler)) and not is_running(int(child)))
        wait_until(lambda: not Path(folder).exists())

    def test_descriptors_included(self, make: Make) -> None:
        environment = make(terminated=lambda t: t.step == 1)

        def episode() -> int:
            environment.reset()
            environment.step(1)
            environment.close()
            return len(list(Path("/proc/self/fd").iterdir()))

        before = max(episode() for _ in range(2))
        # gRPC closes in threads of its own, a little later.
        wait_until(lambda: episode() <= before)


def test_environments_in_processes_of_their_own_are_stepped_together(program: Path) -> None:
    def environment() -> CompilerEnvironment:
        words = [str(program), "127.0.0.1:{port}", "{folder}/out"]
        return CompilerEnvironment(
            Compiler(command=words),
            load_method([PROTOS], NAME),
            action_space=Discrete(100),
            sizes={"embedding": 3, "choices": 0},
            reward=reward,
            terminated=lambda transition: transition.step == 2,
            observe=lambda reply: np.array([reply.detail.remaining], np.float32),  # type: ignore[attr-defined]
            observation_space=Box(-100, 100, (1,), np.float32),
        )

    environments = AsyncVectorEnv([environment, environment], context="spawn", shared_memory=False)
    try:
        observations, infos = environments.reset()
        assert observations.tolist() == [[10], [10]]
        assert [reply.name for reply in infos["reply"]] == ["main", "main"]
        environments.step(np.array([1, 1]))
        observations, _, terminated, _, infos = environments.step(np.array([1, 2]))
        assert (observations.tolist(), terminated.tolist()) == ([[8], [7]], [True, True])
        assert infos["status"].tolist() == [0, 0]
    finally:
        environments.close()


def test_an_info_and_a_method_can_be_pickled(make: Make, method: Method) -> None:
    environment = make()
    _, info = environment.reset()
    copied = pickle.loads(pickle.dumps(info))["reply"]
    assert (copied.name, copied.message) == ("main", pickle.loads(pickle.dumps(info["reply"])).message)
    assert copied.message.SerializeToString() == info["reply"].message.SerializeToString()
    assert pickle.loads(pickle.dumps(method)).path == method.path


class TestMethods:
    def test_a_descriptor_set_needs_no_compiler_of_protos(self, tmp_path: Path) -> None:
        made = tmp_path / "episode.binpb"
        words = [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{PROTOS}",
            f"--descriptor_set_out={made}",
            "episode.proto",
        ]
        subprocess.run(words, check=True)
        method = load_method([made], f"/{NAME}")
        assert method.path == f"/{NAME}"
        assert method.request(action=3).SerializeToString() == b"\x08\x03"

    @pytest.mark.parametrize(
        ("name", "error", "message"),
        [
            ("episode.CompilerService/watch", InvalidError, "streams"),
            ("episode.CompilerService/other", NotFoundError, "package.Service/Method"),
            ("other.Service/queryCompiler", NotFoundError, "package.Service/Method"),
            ("queryCompiler", NotFoundError, "package.Service/Method"),
        ],
    )
    def test_a_method_that_cannot_be_stepped_is_refused(self, name: str, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=message):
            load_method([PROTOS / "episode.proto"], name)

    def test_files_that_are_none_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(NotFoundError, match=r"missing\.proto"):
            load_method([tmp_path / "missing.proto"], NAME)
        (tmp_path / "wrong.proto").write_text("message {")
        with pytest.raises(InvalidError, match=r"wrong\.proto"):
            load_method([tmp_path / "wrong.proto"], NAME)
        (tmp_path / "wrong.binpb").write_bytes(b"\xff\xff")
        with pytest.raises(InvalidError, match="descriptor set"):
            load_method([tmp_path / "wrong.binpb"], NAME)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"action": "colour"}, "no field of numbers colour"),
            ({"sizes": {"name": 3}}, "no field of numbers called name"),
            ({"first": {"colour": 1}}, "is no request"),
            ({"last": {"action": "x"}}, "is no request"),
            ({"observation_space": Discrete(2)}, "come together"),
        ],
    )
    def test_fields_that_are_not_there_are_refused(self, method: Method, changes: dict[str, Any], message: str) -> None:
        compiler = Compiler(command=["clang", "{port}"])
        arguments: dict[str, Any] = {"action_space": Discrete(2), "reward": reward, "terminated": bool, **changes}
        with pytest.raises(InvalidError, match=message):
            CompilerEnvironment(compiler, method, **arguments)


def test_without_gymnasium_the_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['gymnasium'] = None; import policybridge_client.environment"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "pip install 'policybridge[gym]'" in done.stderr

"""Episodes: what a compilation shows, takes and gives."""

import math
import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3

from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_train.environments import register
from policybridge_train.environments.eviction import Evict
from policybridge_train.environments.inlining import InlineForSize
from tests.client.compilers import parameters
from tests.training.corpora import write_corpus
from tests.training.environments.conftest import Make, pressure
from tests.training.tuning.autotuning import CountedCompiler

PARTS = {"module": "p/two parts.c"}


def played(environment: gymnasium.Env[Any, Any], choose: Any, **reset: Any) -> tuple[float, dict[str, Any]]:
    """Play an episode; give the sum of its rewards and the last info."""
    observation, info = environment.reset(**reset)
    rewards, over = [], False
    while not over:
        observation, reward, terminated, over, info = environment.step(choose(observation, info))
        rewards.append(reward)
        over = over or terminated
    assert not any(rewards[:-1])
    return float(rewards[-1]), info


def defaults(observation: dict[str, Any], _: dict[str, Any]) -> int:
    return int(observation["inlining_default"][0])


def always(_: dict[str, Any], __: dict[str, Any]) -> int:
    return 1


@pytest.mark.parametrize("kind", [InlineForSize, Evict])
def test_both_checkers_accept_an_environment(make: Make, kind: Any) -> None:
    environment = make(kind)
    check_env(environment, skip_render_check=True)
    check_env_of_sb3(environment)


@pytest.mark.parametrize("compiler", ["zig", *parameters("clang-22")])
def test_llvms_own_decisions_earn_nothing_and_others_what_the_functions_save(make: Make, compiler: str) -> None:
    environment = make(InlineForSize, compiler=compiler)
    reward, info = played(environment, defaults, options=PARTS)
    assert (reward, info["text"]) == (0, info["default_text"])
    assert info["credit"] == [0.0] * info["decisions"]
    assert info["decisions"] > 3

    reward, info = played(environment, always, options=PARTS)
    assert reward == info["default_text"] - info["text"]
    assert reward != 0
    assert len(info["credit"]) == info["decisions"]
    assert any(info["credit"])


def test_a_decisions_credit_is_that_of_the_functions_that_it_can_change(make: Make) -> None:
    environment = make(InlineForSize)
    turned = 2

    def choose(observation: dict[str, Any], told: dict[str, Any]) -> int:
        nonlocal turned
        turned -= 1
        return 1 - defaults(observation, told) if turned >= 0 else defaults(observation, told)

    reward, info = played(environment, choose, options=PARTS)
    credit = info["credit"]
    # The calls in first are turned. What second and third have in them stays as it is.
    assert credit[0] == credit[1] != 0
    assert set(credit[2:]) == {0.0}
    assert math.copysign(1, credit[0]) == math.copysign(1, reward)


def test_evictions_are_judged_by_the_cost_of_spills_of_their_function(make: Make) -> None:
    environment = make(Evict)
    reward, info = played(environment, lambda _, told: told["legal_actions"][0], options={"module": "p/pressure.c"})
    assert info["decisions"] == len(info["credit"]) > 10
    assert 2 <= len(set(info["credit"])) <= 3
    assert reward == pytest.approx(sum(set(info["credit"])))
    assert (reward < 0) == (info["spill_cost"] > info["default_spill_cost"])


def test_the_reward_of_evictions_is_the_logarithm_of_the_ratio_of_both_costs(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path, {"p/one function.c": pressure("f")})
    with closing(Evict(corpus.folder, compiler="zig")) as environment:
        reward, info = played(environment, lambda _, told: told["legal_actions"][0])
    assert reward == pytest.approx(math.log((info["default_spill_cost"] + 1) / (info["spill_cost"] + 1)))
    assert reward != 0


def test_a_module_is_compiled_once_with_the_compilers_own_decisions_and_again_at_each_reset(
    make: Make, tmp_path: Path
) -> None:
    compiler = CountedCompiler.of(tmp_path / "a compiler", "zig")
    environment = make(InlineForSize, compiler=str(compiler.path))
    compiles = []
    for module in ("p/two parts.c", "p/more.c", "p/two parts.c", "p/two parts.c"):
        before = compiler.compiles
        environment.reset(options={"module": module})
        compiles.append(compiler.compiles - before)
    # The first two ask LLVM's own advisor, and LLVM without it, beside the episode's.
    assert compiles == [3, 3, 1, 1]


def test_an_illegal_action_is_replaced_by_one_that_does_no_harm(make: Make) -> None:
    environment = make(Evict)
    illegal = lambda _, told: int(np.flatnonzero(told["action_mask"] == 0)[0])  # noqa: E731
    _, info = played(environment, illegal, seed=1)
    assert info["replaced"] == info["decisions"] > 0
    assert "credit" in info
    environment.reset()
    assert environment.action_masks().dtype == np.bool_


def test_a_seed_chooses_the_modules_and_those_without_decisions_are_passed_over(make: Make) -> None:
    first, second = make(InlineForSize), make(InlineForSize)
    named = [[each.reset(seed=3 if n == 0 else None)[1]["module"] for n in range(6)] for each in (first, second)]
    assert named[0] == named[1]
    assert set(named[0]) == {"p/two parts.c", "p/more.c"}
    with pytest.raises(PreconditionError, match=r"asks nothing about the module p/quiet.c"):
        first.reset(options={"module": "p/quiet.c"})
    with pytest.raises(PreconditionError, match="none of 1 modules makes the compiler ask"):
        make(InlineForSize, modules=["p/quiet.c"]).reset()


def test_what_is_wrong_is_said(make: Make, tmp_path: Any) -> None:
    environment = make(InlineForSize)
    with pytest.raises(PreconditionError, match="call reset first"):
        environment.step(1)
    environment.reset(seed=1)
    with pytest.raises(InvalidError, match="2 is no action of Discrete"):
        environment.step(2)
    with pytest.raises(NotFoundError, match="no module 'away'"):
        environment.reset(options={"module": "away"})
    with pytest.raises(InvalidError, match="not 'modul'"):
        environment.reset(options={"modul": "p/more.c"})
    with pytest.raises(NotFoundError, match="has no module 'away'"):
        make(InlineForSize, modules=["away"])
    with pytest.raises(NotFoundError, match="holds no corpus"):
        InlineForSize(tmp_path)


def test_beyond_the_growth_limit_the_compiler_decides_for_itself(make: Make) -> None:
    environment = make(InlineForSize, growth_limit=0.05)
    _, info = played(environment, lambda *_: 1, options=PARTS)
    assert info["limited"] > 0
    assert len(info["credit"]) == info["decisions"] > 0


def test_gymnasium_makes_them_by_id_and_a_copy_by_pickle_plays_the_same(calls: Any) -> None:
    register()
    register()
    environment = gymnasium.make("policybridge/InlineForSize-v0", corpus=calls, compiler="zig")
    copied = pickle.loads(pickle.dumps(environment))
    try:
        plays = [played(each, always, seed=7) for each in (environment, copied)]
        assert str(plays[0]) == str(plays[1])
    finally:
        environment.close()
        copied.close()


def test_it_is_made_without_a_render_mode_and_refuses_one(calls: Any) -> None:
    register()
    gymnasium.make("policybridge/InlineForSize-v0", corpus=calls, compiler="zig", render_mode=None).close()
    with pytest.raises(TypeError, match="cannot be rendered"), pytest.warns(UserWarning, match="render_modes"):
        gymnasium.make("policybridge/InlineForSize-v0", corpus=calls, render_mode="human")

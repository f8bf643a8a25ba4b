"""The part that all environments have in common: a compilation is an episode, a decision is a step."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import EzPickle

from policybridge_client.llvm.bounds import GROWTH_LIMIT
from policybridge_client.llvm.growth import Growth
from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError, PreconditionError
from policybridge_train.compiling.compiler import Compiler, newest_compiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.corpus.description import Corpus
from policybridge_train.environments.compilation import Question, WaitingCompilation
from policybridge_train.environments.objective import Objective, Setting
from policybridge_train.environments.spaces import Features, Observation

D = TypeVar("D")

_SECONDS: Final = 120.0


class CompilingEnvironment(gymnasium.Env[Observation, np.int64], EzPickle, Generic[D]):
    """Starts a compiler at each reset, which waits for each step's action.

    The observation has all features that the compiler sends, by its own names. Every ``info`` has ``module``,
    ``context`` (the function, where the compiler names it), ``action_mask`` (int8, shape [actions]: 1 where the action
    is legal) and ``legal_actions`` (the same as a list). The last legal action replaces an illegal one;
    ``info["replaced"]`` counts them.

    The reward is 0 in each step but the last one, because only the finished object tells it. At the end, ``info`` has
    ``credit``, a list with a number for each step of the episode, and the compilation's totals. It is a list because
    vector environments join arrays of one key, and episodes differ in length.

    A compiler that dies, is killed or does not go on truncates the episode: the observation is the one before, the
    reward 0, and ``info["error"]`` says why.

    Args:
        objective: the decisions to ask for, and the reward.
        corpus: the corpus' folder.
        compiler: a name or path, as for `Compiler.find`; ``None``: the newest clang on PATH, or zig's.
        modules: the names of those modules that are used; ``None``: all.
        seconds: for one answer of the compiler.
        growth_limit: the factor of a module's size that the actions may add to it; beyond it the compiler decides for
            itself. See `Growth`.
        plugins: the folder in which a plugin that asks is looked for first.
        render_mode: ``None``, as trainers give it to every environment: there is nothing to see.

    Raises:
        TypeError: there is a ``render_mode``; Stable-Baselines3 then leaves it out.
        NotFoundError: there is no such corpus, module or compiler.
        InvalidError: the corpus has no modules, or cannot be read.

    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(  # noqa: PLR0913 - by keyword
        self,
        objective: Objective[D],
        corpus: Path | str,
        *,
        compiler: str | None = None,
        modules: Sequence[str] | None = None,
        seconds: float = _SECONDS,
        growth_limit: float = GROWTH_LIMIT,
        plugins: Path | str | None = None,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            raise TypeError(f"a compilation cannot be rendered; leave out render_mode={render_mode!r}")
        self._compilation: WaitingCompilation | None = None
        self._objective = objective
        self._modules = _chosen(Corpus.open(Path(corpus)), modules)
        found = newest_compiler() if compiler is None else Compiler.find(compiler)
        folder = None if plugins is None else Path(plugins)
        self._setting = Setting(found, replace(Limits(), seconds=seconds), folder)
        signature = self._setting.signature(objective.task)
        self._signature = signature
        self._features = Features(signature.features)
        self.observation_space: gymnasium.Space[Any] = self._features.space
        self.action_space = gymnasium.spaces.Discrete(objective.actions(signature))
        self._growth = Growth(growth_limit)
        self._known: dict[str, D] = {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start the compiler, and give its first observation.

        Args:
            seed: of the choice of modules, from here on.
            options: ``{"module": NAME}`` chooses the module. Without it, modules about which the compiler asks nothing,
                or which it cannot compile, are passed over.

        Raises:
            InvalidError: another option is given.
            NotFoundError: the module is unknown.
            PreconditionError: the compiler asks nothing about the module, or about none of all.
            PolicyBridgeError: the module that was chosen does not compile.

        """
        super().reset(seed=seed)
        self._end()
        name = _option(options or {})
        if name is not None:
            self._start(self._module(name))
        else:
            self._start_any()
        return self._observed(), self._info()

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Answer the compiler, and wait for its next question or its end.

        Raises:
            InvalidError: the action is none of the action space.
            PreconditionError: the episode is over, or has not begun.

        """
        compilation = self._compilation
        if compilation is None:
            raise PreconditionError("there is no episode: call reset first")
        if not self.action_space.contains(action):
            raise InvalidError(f"{action!r} is no action of {self.action_space}")
        self._steps += 1
        try:
            self._answer(compilation, int(action))
            question = self._ask(compilation)
            if question is None:
                compilation.succeed()
                return self._judged(compilation)
        except (PolicyBridgeError, OSError) as error:
            self._end()
            return self._observed(), 0.0, False, True, {**self._info(), "error": str(error)}
        self._question = question
        return self._observed(), 0.0, False, False, self._info()

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Give which actions are legal now; shape [actions]. Stable-Baselines3's contributed MaskablePPO calls it."""
        return self._objective.legal(self._question.observation).astype(np.bool_)

    def close(self) -> None:
        """End the compiler, and remove its folder."""
        self._end()

    def _start_any(self) -> None:
        names = sorted(self._modules)
        while names:
            name = names.pop(int(self.np_random.integers(len(names))))
            try:
                self._start(self._modules[name])
            except PolicyBridgeError as error:
                last = error
            else:
                return
        raise PreconditionError(f"none of {len(self._modules)} modules makes the compiler ask; the last one: {last}")

    def _start(self, module: Module) -> None:
        if module.name not in self._known:
            self._known[module.name] = self._objective.by_default(self._setting, module)
        self._name, self._steps, self._replaced, self._limited = module.name, 0, 0, 0
        self._growth.begin()
        try:
            objective = self._objective
            compilation = self._setting.compilation(objective.task, module, objective.remarks)
            self._compilation = compilation
            question = self._ask(compilation)
            if question is None:
                compilation.succeed()
                raise PreconditionError(f"the compiler asks nothing about the module {module.name}")
        except BaseException:
            self._end()
            raise
        self._question = question

    def _ask(self, compilation: WaitingCompilation) -> Question | None:
        """Give the next question; beyond the growth limit, the compiler's own decisions answer."""
        while (question := compilation.next()) is not None:
            if compilation.signature != self._signature:
                raise InvalidError("the compiler sends other features for this module than for those before")
            if not self._growth.reached:
                return question
            compilation.answer(compilation.defaults.answer(question.observation))
            self._limited += 1
        return None

    def _answer(self, compilation: WaitingCompilation, action: int) -> None:
        observation = self._question.observation
        legal = self._objective.legal(observation)
        if not legal[action]:
            action = int(np.flatnonzero(legal)[-1])
            self._replaced += 1
        advice = self._signature.advice
        answer = np.full(advice.shape, action, advice.type.dtype).tobytes()
        compilation.answer(answer)
        if compilation.defaults.known:
            self._growth.count(observation, answer)

    def _judged(self, compilation: WaitingCompilation) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        judgement = self._objective.judge(self._known[self._name], compilation)
        self._end()
        credit = list(judgement.credit[: self._steps])
        told = {"credit": credit, "decisions": self._steps, "limited": self._limited, **judgement.told}
        return self._observed(), judgement.reward, True, False, {**self._info(), **told}

    def _observed(self) -> Observation:
        return self._features.read(self._question.observation)

    def _info(self) -> dict[str, Any]:
        mask = self._objective.legal(self._question.observation)
        return {
            "module": self._name,
            "context": self._question.context,
            "action_mask": mask,
            "legal_actions": np.flatnonzero(mask).tolist(),
            "replaced": self._replaced,
        }

    def _end(self) -> None:
        if self._compilation is not None:
            self._compilation.close()
            self._compilation = None

    def _module(self, name: str) -> Module:
        if name not in self._modules:
            raise NotFoundError(f"there is no module {name!r} among the {len(self._modules)} of this environment")
        return self._modules[name]


def _chosen(corpus: Corpus, names: Sequence[str] | None) -> dict[str, Module]:
    modules = {module.name: module for module in corpus.modules}
    missing = [name for name in names or () if name not in modules]
    if missing:
        raise NotFoundError(f"{corpus.folder} has no module {missing[0]!r}")
    chosen = modules if names is None else {name: modules[name] for name in names}
    if not chosen:
        raise InvalidError(f"there are no modules to choose from in {corpus.folder}")
    return chosen


def _option(options: dict[str, Any]) -> str | None:
    unknown = sorted(options.keys() - {"module"})
    if unknown:
        raise InvalidError(f'the options of reset are {{"module": NAME}}, not {unknown[0]!r}')
    name = options.get("module")
    if name is not None and not isinstance(name, str):
        raise InvalidError(f"a module is named by a string, not by {name!r}")
    return name

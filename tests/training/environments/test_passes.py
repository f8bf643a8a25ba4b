"""Episodes about functions' passes, asked by the plugin in stock compilers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from policybridge_client.decisions.passes import ALTERNATIVES
from policybridge_core.errors import PreconditionError
from policybridge_train.environments import ENVIRONMENTS
from policybridge_train.environments.passes import PassesForSize
from tests.native.conftest import MAJORS, built
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.test_pass_choices import LOOPS
from tests.training.corpora import write_corpus
from tests.training.environments.test_episodes import played

MAJOR = MAJORS[-1]
"""The plugin's; an older one does not read the corpus, which the newest clang makes."""
SIZE = list(ALTERNATIVES).index("size")
_QUIET = "extern int none;\n"

Make = Callable[..., PassesForSize]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a corpus of a module with functions, and one without."""
    folder = tmp_path_factory.mktemp("with a space")
    return write_corpus(folder, {"p/loops.c": LOOPS, "p/quiet.c": _QUIET}).folder


@pytest.fixture
def make(functions: Path) -> Iterator[Make]:
    made: list[PassesForSize] = []
    compiler, plugin = need(f"clang-{MAJOR}"), built_plugin(built, "inliner", MAJOR)

    def environment(**arguments: Any) -> PassesForSize:
        made.append(PassesForSize(functions, **{"compiler": compiler, "plugins": plugin.parent, **arguments}))
        return made[-1]

    yield environment
    for each in made:
        each.close()


def test_llvms_own_passes_earn_nothing_and_others_what_the_functions_save(make: Make) -> None:
    environment = make()
    reward, info = played(environment, lambda *_: 0, options={"module": "p/loops.c"})
    assert (reward, info["text"], info["credit"]) == (0, info["default_text"], [0.0] * info["decisions"])
    asked: list[str] = []

    def choose(_: dict[str, Any], told: dict[str, Any]) -> int:
        asked.append(told["context"])
        return SIZE

    reward, info = played(environment, choose, options={"module": "p/loops.c"})
    assert reward == info["default_text"] - info["text"] != 0
    # The function without optimisation is not asked about.
    assert asked == ["sum", "other", "choose", "fill", "mix"]
    assert len(info["credit"]) == len(asked)
    assert any(info["credit"])


def test_a_functions_credit_is_the_same_whatever_is_chosen_for_the_others(make: Make) -> None:
    environment = make()
    _, info = played(environment, lambda *_: SIZE, seed=1)
    together = info["credit"]
    for number in range(len(together)):
        steps = iter(range(len(together)))
        _, info = played(environment, lambda *_, n=number, steps=steps: SIZE if next(steps) == n else 0, seed=1)
        assert info["credit"] == [credit if n == number else 0.0 for n, credit in enumerate(together)]


def test_gymnasiums_checker_accepts_it_and_modules_without_functions_are_passed_over(make: Make) -> None:
    environment = make()
    check_env(environment, skip_render_check=True)
    assert environment.reset(seed=3)[1]["module"] == "p/loops.c"
    with pytest.raises(PreconditionError, match=r"asks nothing about the module p/quiet.c"):
        environment.reset(options={"module": "p/quiet.c"})
    assert ENVIRONMENTS["policybridge/PassesForSize-v0"].endswith(":PassesForSize")


@pytest.mark.parametrize("compiler", ["zig", f"clang-{MAJOR}"])
def test_without_the_plugin_it_cannot_be_made(
    functions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("POLICYBRIDGE_PLUGINS", "")
    if compiler != "zig":
        need(compiler)
    with pytest.raises(PreconditionError, match=r"needs the plugin policybridge-inliner-\d+\.so for the kind pass_"):
        PassesForSize(functions, compiler=compiler, plugins=tmp_path)

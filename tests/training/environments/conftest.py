"""Two small corpora, and environments over them that are closed with the test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from policybridge_train.environments.environment import CompilingEnvironment
from policybridge_train.environments.eviction import Evict
from policybridge_train.environments.inlining import InlineForSize
from tests.training.corpora import write_corpus

Make = Callable[..., CompilingEnvironment[Any]]

_TWO_PARTS = """
int sink(int);
static int one(int x) { for (int i = 0; i < x; i++) x += sink(x) ^ sink(i); return sink(x + 1) - sink(x - 1); }
int first(int x) { return one(x) + one(x + 3); }
static int two(int x) { for (int i = 0; i < x; i++) x -= sink(x) * sink(i); return sink(x) - sink(x / 3); }
int second(int x) { return two(x) - two(x + 5); }
int third(int x) { return second(x) ^ second(x * 7); }
"""
_QUIET = "int sink(int);\nint f(int x) { return sink(x); }\n"


def pressure(name: str, values: int = 24) -> str:
    """Give C with a function of more live values than registers."""
    lines = [f"  long v{n} = sink(x + {n});" for n in range(values)]
    uses = " + ".join(f"v{n} * sink(v{(n * 7) % values})" for n in range(values))
    return "\n".join(["long sink(long);", f"long {name}(long x) {{", *lines, f"  return {uses};", "}", ""])


@pytest.fixture(scope="session")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a corpus of two modules with calls to decide about, and one without."""
    folder = tmp_path_factory.mktemp("with a space")
    more = _TWO_PARTS.replace("sink(i)", "sink(i ^ 5)")
    return write_corpus(folder, {"p/two parts.c": _TWO_PARTS, "p/more.c": more, "p/quiet.c": _QUIET}).folder


@pytest.fixture(scope="session")
def registers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a corpus of one module, in which two functions need more registers than there are."""
    text = pressure("höher") + pressure("g", 20).replace("sink(x", "sink(3 * x")
    return write_corpus(tmp_path_factory.mktemp("registers"), {"p/pressure.c": text}).folder


@pytest.fixture
def make(calls: Path, registers: Path) -> Iterator[Make]:
    """Make environments by their class; the compiler is zig's, if none is said."""
    made: list[CompilingEnvironment[Any]] = []
    folders = {InlineForSize: calls, Evict: registers}

    def environment(kind: type[InlineForSize] | type[Evict], **arguments: Any) -> CompilingEnvironment[Any]:
        made.append(kind(folders[kind], **{"compiler": "zig", **arguments}))
        return made[-1]

    yield environment
    for each in made:
        each.close()

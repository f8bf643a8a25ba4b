"""What to heed where a program builds of which no way is known to name its compilers, and to compile all again."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from policybridge_train.tuning.tuned_compiler import TunedCompiler


def cautions(build: Sequence[str], environment: Mapping[str, str], tuned: TunedCompiler) -> Iterator[str]:
    """Say what may keep a line that sets ``CC`` and ``CXX`` from having an effect.

    Args:
        build: the recorded command.
        environment: in which it ran.
        tuned: the compiler with its store.

    """
    program = Path(build[0]).name
    used = {Path(path).name for path in +tuned.compilers.sources}
    unnamed = [name for name in tuned.variables if used.isdisjoint(_names(environment.get(name, "")))]
    if unnamed:
        variables = " and ".join(unnamed)
        yield (
            f"# {variables} did not name this build's compiler: if {program} does not take it from there, "
            f"write it where {program} does"
        )
    yield f"# clean first: {program} may not compile sources again that have not changed"


def _names(words: str) -> Iterator[str]:
    yield from (Path(word).name for word in words.split())

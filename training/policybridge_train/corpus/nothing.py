"""Why a build became no module."""

from collections.abc import Sequence
from typing import Final

from policybridge_train.corpus.conversion import removed_sources
from policybridge_train.corpus.notes import BuildCommand

_NOTHING: Final = (
    "the build compiled nothing that was seen: if all is up to date, clean it and build again; if it starts compilers "
    "in an environment of its own, as SCons does, let it pass on the one that it gets (Environment(ENV=os.environ))"
)
_BY_RUST: Final = (
    "the build compiled nothing with clang: rustc makes modules that are not recorded or searched; with "
    "-C linker-plugin-lto a policy such as size decides about them at link time (docs/plugin.md#rust)"
)
_OBJECT_OF_RUST: Final = ".rcgu.o"


def why_nothing(commands: Sequence[BuildCommand], failed: int = 0) -> str:
    """Say why a build's commands became no module, of which ``failed`` sources did not compile again."""
    if failed:
        return (
            f"no source of the build compiles again ({failed:,} tried): if a header is missing that the build made or "
            "fetched and removed, let it keep its folders (pip --no-build-isolation -C build-dir=build)"
        )
    if removed := removed_sources(commands):
        return (
            f"the build removed all sources that it compiled, as {str(removed[0])!r}: let it keep them where they are "
            "(valac --save-temps; pip of an unpacked folder); if all else is up to date, clean it and build again"
        )
    words = (word for command in commands for word in command.arguments)
    return _BY_RUST if any(word.endswith(_OBJECT_OF_RUST) for word in words) else _NOTHING

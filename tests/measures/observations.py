"""Real observations of a compiler for each module, with the compiler's own decision as the last feature.

They are stored in one file per module: an array of records whose fields are the features.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from policybridge_client.llvm.config import HostConfig
from policybridge_demo.compilation import compile_listening
from policybridge_demo.corpus import Module, check_sources
from policybridge_demo.report import progress
from policybridge_demo.server import demo_server
from policybridge_demo.workers import for_each
from policybridge_serdes import PolicyReference, Values

ECHO = PolicyReference("inlining-default")
"""This policy repeats LLVM's own decisions, so the observations are those of a compilation without a policy."""


def training_modules() -> list[Module]:
    """Return the modules on which the policy was trained. The demo's may share templates in headers with them."""
    listing = Path(__file__).parent / "imitation_modules.txt"
    return [Module(line) for line in listing.read_text(encoding="utf-8").splitlines()]


def observe(modules: Sequence[Module], folder: Path, jobs: int) -> Values:
    """Return the observations of all ``modules``. A module whose file is missing in ``folder`` is compiled first.

    Raises:
        CompileError: a module did not compile, or the policy failed.
        CorpusError: a module is not in the installed wheel.
        ServerError: the policy server did not start.

    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [module for module in modules if not _file(folder, module).is_file()]
    if missing:
        check_sources(missing)
        with demo_server() as server:
            job = partial(_record, folder, HostConfig(ECHO, server, fallback="error"))
            for _ in progress(for_each(job, missing, jobs), "observing", len(missing), Console(stderr=True)):
                pass
    return np.concatenate([np.load(_file(folder, module)) for module in modules])


def _record(folder: Path, config: HostConfig, module: Module) -> None:
    observations: list[Values] = []
    compile_listening("zig", config, lambda observation, _: observations.append(observation.copy()), module)
    partial_file = _file(folder, module).with_suffix(".part")
    with partial_file.open("wb") as file:
        np.save(file, np.concatenate(observations))
    # Files appear complete or not at all, so the files of an interrupted run can be used.
    partial_file.replace(_file(folder, module))


def _file(folder: Path, module: Module) -> Path:
    return folder / f"{module.path.replace('/', '__')}.npy"

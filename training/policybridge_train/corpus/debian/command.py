"""``policybridge corpus debian``: many source packages at a time, and a report of what failed and why."""

import argparse
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_train.corpus.debian.apt import Apt
from policybridge_train.corpus.debian.jobs import Built, PackageJob, ToolsRecipe
from policybridge_train.corpus.debian.package import Row, Wanted, Workshop, read_wanted
from policybridge_train.corpus.options import add_front_end, add_output, front_end_of
from policybridge_train.corpus.showing import as_json
from policybridge_train.corpus.wrappers import cache
from policybridge_train.corpus.writing import CorpusWriter, remove
from policybridge_train.farms.contract import Farm
from policybridge_train.farms.options import add_cluster, farm_of
from policybridge_train.processes.threads import Threads

_LIST = "debian_packages.txt"

_T = TypeVar("_T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_output(parser)
    add_front_end(parser)
    add_cluster(parser)
    # The cores are those of all machines.
    parser.set_defaults(jobs=None)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="source packages (default: our own list)")
    parser.add_argument("--list", type=Path, metavar="FILE", help="a package a line, with options for its build")
    parser.add_argument("--work", type=Path, metavar="DIR", help="where packages are built (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep the build trees; needs --work")
    parser.add_argument("--build-seconds", type=float, default=1800, help="for one build (default: %(default)s)")
    parser.add_argument(
        "--build-dependencies", action="store_true", help="install the packages' build dependencies; needs root"
    )


def run(arguments: argparse.Namespace) -> int:
    """Build the corpus; 1, if no package gave a module.

    Raises:
        PolicyBridgeError: there is no clang, no apt, no network; or a list cannot be read.

    """
    if arguments.keep and arguments.work is None:
        raise PreconditionError("--keep needs --work: the folder in which the build trees stay")
    front_end = front_end_of(arguments)
    wanted = _wanted(arguments)
    writer, logs = CorpusWriter(arguments.output), arguments.output / "logs"
    if arguments.ray is not None or arguments.farm is not None:
        if arguments.work is not None or arguments.build_dependencies:
            raise InvalidError("--work, --keep and --build-dependencies are for builds on this machine, without --ray")
        with farm_of(arguments) as farm:
            tools, seconds = ToolsRecipe.of(front_end), arguments.build_seconds
            rows = by_farm(farm, wanted, tools, seconds=seconds, writer=writer, logs=logs)
            return reported(rows, writer, json=arguments.json)
    apt = Apt.prepare(cache() / "apt")
    if arguments.build_dependencies:
        _install(wanted, apt)
    with _work(arguments.work) as folder:
        workshop = Workshop(apt, folder, front_end, writer, logs, arguments.build_seconds, arguments.keep)
        jobs = arguments.jobs or os.cpu_count() or 1
        rows = _process(workshop.process, wanted, jobs, workshop.stop, lambda row: row)
        return reported(rows, writer, json=arguments.json)


def by_farm(  # noqa: PLR0913 - each is a choice of the caller's
    farm: Farm, wanted: Sequence[Wanted], tools: ToolsRecipe, *, seconds: float, writer: CorpusWriter, logs: Path
) -> Iterator[Row]:
    """Build each package by a job of a farm; add them in the order of the list, as one machine that builds one by one.

    So a module that two packages share is always the first one's. If an error ends the run, finished packages are
    added, too.

    Raises:
        PolicyBridgeError: no machine is left, or one lacks a tool of the jobs.

    """
    done: dict[str, Built] = {}
    left = deque(wanted)

    def build(one: Wanted) -> Built:
        return farm.do(PackageJob(one, tools, seconds))

    try:
        for built in _process(build, wanted, farm.slots, farm.running.end, lambda built: built.row):
            done[built.row.package] = built
            while left and left[0].name in done:
                done[left[0].name].add(writer, logs)
                yield done.pop(left.popleft().name).row
    finally:
        for one in left:
            if one.name in done:
                done[one.name].add(writer, logs)


def reported(found: Iterator[Row], writer: CorpusWriter, *, json: bool) -> int:
    """Write the corpus after each package; report each package, as a table or within the corpus' JSON."""
    rows: list[Row] = []
    try:
        for row in found:
            rows.append(row)
            writer.write()
    finally:
        corpus = writer.write()
        rows.sort(key=lambda row: row.package)
        if json:
            print(as_json(corpus, writer.duplicates, packages=[*map(asdict, rows)]))
        else:
            _report(rows)
    return 0 if any(row.modules for row in rows) else 1


def default_list() -> list[Wanted]:
    """Give the packages of our own list."""
    text = files("policybridge_train.corpus").joinpath(_LIST).read_text(encoding="utf-8")
    return read_wanted(text.splitlines())


def _wanted(arguments: argparse.Namespace) -> list[Wanted]:
    if arguments.list is None and not arguments.packages:
        return default_list()
    listed = arguments.list.read_text(encoding="utf-8").splitlines() if arguments.list else []
    return read_wanted([*listed, *arguments.packages])


def _process(
    do: Callable[[Wanted], _T],
    wanted: Sequence[Wanted],
    jobs: int,
    stop: Callable[[], None],
    row_of: Callable[[_T], Row],
) -> Iterator[_T]:
    """Process packages in parallel; give each when it is done."""
    columns = (TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress, Threads[Wanted, _T](jobs) as threads:
        task = progress.add_task("packages", total=len(wanted))
        try:
            for one in wanted:
                threads.submit(one, partial(do, one))
            for _ in wanted:
                done = threads.take()[1]()
                row = row_of(done)
                progress.console.print(f"{row.package}: {row.modules} modules {row.remark}".rstrip(), markup=False)
                progress.advance(task)
                yield done
        finally:
            stop()


@contextmanager
def _work(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder.absolute()
        return
    made = Path(tempfile.mkdtemp(prefix="policybridge-debian-"))
    try:
        yield made
    finally:
        remove(made)


def _install(wanted: Sequence[Wanted], apt: Apt) -> None:
    if os.geteuid() != 0:
        raise PreconditionError("--build-dependencies installs packages, which only root may do")
    apt.install_dependencies([one.name for one in wanted])


def _report(rows: Sequence[Row]) -> None:
    table = Table("package", "built by", "modules", "failed", "seconds", "remark")
    for row in rows:
        table.add_row(
            row.package, row.built or "-", str(row.modules), str(row.failed), f"{row.seconds:.0f}", row.remark
        )
    Console().print(table)

"""``policybridge train``: a policy that is better than the compiler's own decisions, on code that it never saw."""

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.command_line import count, status_of
from policybridge_train.compiling.options import (
    Selection,
    add_compiler,
    add_limits,
    add_lto,
    add_plugins,
    add_selection,
)
from policybridge_train.farms.options import add_farm, farm_of
from policybridge_train.learning.cases import RunCases
from policybridge_train.learning.record import Record
from policybridge_train.learning.training import ALGORITHMS, Training
from policybridge_train.report.making import report, show
from policybridge_train.report.result import result_json
from policybridge_train.tasks.recipe import TaskRecipe, make_task
from policybridge_train.tasks.task import TASKS
from policybridge_train.trajectories.server import TrainingServer
from policybridge_train.trajectories.trajectory import Collector

COMMON: Final = ("compiler", "plugins", "seconds", "memory", "lto")
"""Options of a task that every command has."""
_EPILOG: Final = """\
settings of the algorithms, for --set:
{settings}

Exit status: 0; 2 for what cannot be done; 130 after an interrupt."""

S = TypeVar("S", bound=msgspec.Struct)


class Algorithm(Protocol):
    """An algorithm is a module with this struct and this function."""

    Settings: type[msgspec.Struct]

    @staticmethod
    def train(training: Training, settings: Any) -> None:
        """Train until the settings or the time say that it is enough."""
        ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = _EPILOG.format(settings="\n".join(_settings()))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("task", metavar="TASK", help=f"{', '.join(TASKS)}, or a class of yours: package.module:Class")
    add("--algo", required=True, choices=ALGORITHMS, metavar="NAME", help="%(choices)s")
    add("--corpus", type=Path, metavar="DIR", help="the modules; a third of the projects is held out")
    add("--split", type=Path, metavar="FILE", help="the parts of cases by lines 'PART PATTERN' (default: by project)")
    add("--output", type=Path, required=True, metavar="DIR", help="the run's folder; an ended run goes on there")
    add_task_options(parser)
    add("--set", action="append", default=[], metavar="NAME=VALUE", help="of the algorithm: iterations=8; repeatable")
    add("--minutes", type=_minutes, metavar="M", help="begin no iteration after this time (default: no limit)")
    add("--compiles", type=count, metavar="N", help="begin no iteration after N compiles (default: no limit)")
    add_farm(parser)
    add("--seed", type=int, default=0, metavar="N", help="of all chance (default: %(default)s)")
    add("--promote", metavar="ALIAS", help="give the best version this alias, whenever there is a better one")
    add("--export", type=Path, metavar="DIR", help="at the end, copy the files of the best version there")
    add("--json", action="store_true", help="write the result as JSON to standard output, all else to standard error")
    add_selection(parser, programs=False)


def _settings() -> Iterator[str]:
    """Give a line for each algorithm, with the defaults of its settings."""
    for name in ALGORITHMS.names():
        # A broken extension says so where it is used.
        with suppress(PolicyBridgeError):
            fields = msgspec.structs.fields(cast("Algorithm", ALGORITHMS.load(name)).Settings)
            text = " ".join(f"{field.name}={field.default}" for field in fields)
            yield textwrap.fill(f"  {name:10} {text}", width=100, subsequent_indent=" " * 13)


def run(arguments: argparse.Namespace) -> int:
    """Train. The exit status is 0, 2 for what cannot be done, 130 after an interrupt."""
    return status_of("train", lambda: _run(arguments), "the same command goes on where it was")


def _run(arguments: argparse.Namespace) -> int:
    options = options_of(arguments)
    task = make_task(arguments.task, options)
    algorithm = cast("Algorithm", ALGORITHMS.load(arguments.algo))
    settings = settings_of(algorithm.Settings, pairs(arguments.set))
    cases = RunCases.of(task, arguments.corpus, Selection.of(arguments), arguments.split)
    say = partial(print, flush=True, file=sys.stderr if arguments.json else None)
    arguments.output.mkdir(parents=True, exist_ok=True)
    began = monotonic()
    made_by = {
        "task": arguments.task,
        "options": " ".join(f"{name}={value}" for name, value in sorted(options.items())),
        "algorithm": arguments.algo,
        "settings": msgspec.json.encode(settings).decode(),
        "seed": str(arguments.seed),
        **_split_note(cases, arguments.output, say),
    }
    learnt_from = {"features": ", ".join(map(str, task.features)), "cases": cases.fingerprint}
    title = f"{task.name} by {arguments.algo}"
    recipe = TaskRecipe.of(task, arguments.task, options, arguments.corpus)
    with (
        farm_of(arguments) as farm,
        Record(arguments.output / "run.db", {**made_by, **learnt_from}) as record,
        TrainingServer(arguments.output, host=farm.host) as server,
    ):
        farm.lead(server)
        done = record.iterations()
        run = Training(
            task,
            Collector(recipe, farm),
            server,
            record,
            cases.training,
            cases.validation,
            arguments.seed,
            say,
            None if arguments.minutes is None else began + 60 * arguments.minutes,
            arguments.compiles,
            done[-1].seconds if done else 0.0,
            done[-1].compiles if done else 0,
            arguments.promote,
            finished=lambda run: show(run, title, made_by, arguments.output),
        )
        algorithm.train(run, settings)
        say(f"the best on the validation projects is {task.name}@{run.best().version}")
        report(run, title, made_by, arguments.output)
        _give(run, arguments)
    return 0


def _split_note(cases: RunCases, output: Path, say: Callable[[str], None]) -> Mapping[str, str]:
    """Describe a split that is not by project, and write its rows into the run's folder."""
    if cases.note is None:
        return {}
    written = output / "split.txt"
    cases.split.write(written)
    say(f"split {cases.note}; its parts are in {written}")
    return {"split": cases.note}


def _give(run: Training, arguments: argparse.Namespace) -> None:
    """Copy the best version and print the result, as far as they are asked for."""
    if arguments.export is not None:
        made = arguments.output / "policies" / run.task.name / str(run.best().version)
        shutil.copytree(made, arguments.export, dirs_exist_ok=True)
    if arguments.json:
        print(result_json(run, arguments.output))


def add_task_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a task; see `options_of`."""
    add_compiler(parser)
    add_plugins(parser)
    add_limits(parser)
    add_lto(parser)
    parser.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="of this task alone; repeatable"
    )


def options_of(arguments: argparse.Namespace) -> dict[str, str]:
    """Give the options of a task: those that all commands have, where they were given, and its own.

    Raises:
        InvalidError: ``--option`` has one that is an option of the command.

    """
    own = pairs(arguments.option)
    for name in COMMON:
        if name in own:
            raise InvalidError(f"--option {name}={own[name]}: this is an option of the command: --{name} {own[name]}")
    return {name: str(value) for name in COMMON if (value := getattr(arguments, name)) is not None} | own


def _minutes(text: str) -> float:
    number = float(text)
    # Not NaN either, of which no time is the end.
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no time: give minutes, 0 or more")
    return number


def settings_of(kind: type[S], given: Mapping[str, str]) -> S:
    """Make an algorithm's settings of the words of ``--set``.

    Raises:
        InvalidError: it has no such setting, or a value is out of its range; the message lists the settings.

    """
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(f"{field.name}={field.default}" for field in msgspec.structs.fields(kind))
        raise InvalidError(f"--set: {error}; it takes, with these defaults: {known}") from error


def pairs(words: Sequence[str]) -> dict[str, str]:
    """Read words NAME=VALUE.

    Raises:
        InvalidError: a word is none.

    """
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise InvalidError(f"{word!r} is not NAME=VALUE")
        found[name] = value
    return found

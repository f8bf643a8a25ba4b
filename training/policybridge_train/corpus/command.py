"""``policybridge corpus``: record, add, debian, show."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from policybridge_core.errors import NotFoundError
from policybridge_train.command_line import status_of
from policybridge_train.corpus.adding import Added, is_corpus, missing_sources, read_compile_commands
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.building import record
from policybridge_train.corpus.conversion import Project, convert
from policybridge_train.corpus.debian import command as debian
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.nothing import why_nothing
from policybridge_train.corpus.options import add_front_end, add_output, front_end_of
from policybridge_train.corpus.showing import as_json, shown_progress, tables, tell
from policybridge_train.corpus.writing import CorpusWriter, module_name

_Does = Callable[[argparse.Namespace], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    parser.epilog = (
        "Exit status: 0, of record the build's; 1 if add finds no module; 2 for what cannot be done, or if record "
        "finds no module; 130 after an interrupt."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    recorded = _command(commands, "record", _record, "run a build, and keep its modules and programs")
    add_output(recorded)
    add_front_end(recorded)
    recorded.add_argument("--no-preload", action="store_true", help="note only tools that are found on PATH")
    recorded.add_argument("--project", metavar="NAME", help="default: the name of the folder")
    recorded.add_argument("build", nargs="+", metavar="-- COMMAND", help="the build: make -j8")
    added = _command(commands, "add", _add, "add modules of compile_commands.json, objects or other corpora")
    add_output(added)
    add_front_end(added)
    added.add_argument("--project", metavar="NAME", help="default: the name of the folder of each file")
    added.add_argument("--root", type=Path, metavar="DIR", help="names are paths below it (default: that folder)")
    added.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="compile_commands.json; an object with embedded bitcode, or X.3.import.bc of ThinLTO, or a folder of them;"
        " a corpus",
    )
    shown = _command(commands, "show", _show, "modules, projects, languages, programs and failures of a corpus")
    shown.add_argument("folder", type=Path, metavar="DIR")
    packaged = _command(commands, "debian", debian.run, "make a corpus from Debian's source packages")
    debian.add_arguments(packaged)
    for each in (recorded, added, shown, packaged):
        each.add_argument("--json", action="store_true", help="write the result as JSON to standard output")


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. The exit status is 2 for what cannot be done, 130 after an interrupt."""
    does: _Does = arguments.does
    return status_of("corpus", lambda: does(arguments), "the corpus has the finished modules")


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, does: _Does, summary: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, description=summary)
    command.set_defaults(does=does)
    return command


def _add(arguments: argparse.Namespace) -> int:
    front_end = front_end_of(arguments)
    writer = CorpusWriter(arguments.output)
    try:
        for file in arguments.files:
            _add_one(file, arguments, front_end, writer)
    finally:
        corpus = writer.write()
    tell(writer, corpus, arguments.output, json=arguments.json)
    if not corpus.modules:
        sys.stderr.write(f"policybridge corpus: {' '.join(map(str, arguments.files))}: nothing became a module\n")
    return 0 if corpus.modules else 1


def _add_one(file: Path, arguments: argparse.Namespace, front_end: FrontEnd, writer: CorpusWriter) -> None:
    folder = (file if file.is_dir() else file.parent).resolve()
    root = arguments.root.resolve() if arguments.root else folder
    project = Project(arguments.project or root.name, root)
    added = Added(writer, project.name, root, front_end.level or "O2")
    if is_corpus(file):
        added.corpus(folder)
    elif file.suffix == ".json":
        commands = read_compile_commands(file)
        for unit in missing_sources(commands):
            name = module_name(project.name, os.path.relpath(unit.path, root))
            writer.fail(name, f"the source {unit.path} is not there")
        with shown_progress() as progress:
            convert(commands, project, front_end, writer, jobs=arguments.jobs, progress=progress)
    else:
        added.objects(file)


def _show(arguments: argparse.Namespace) -> int:
    corpus = Corpus.open(arguments.folder)
    if arguments.json:
        print(as_json(corpus, {}))
    else:
        Console().print(*tables(corpus), sep="\n")
    return 0


def _record(arguments: argparse.Namespace) -> int:
    front_end = front_end_of(arguments)
    folder = Path.cwd()
    writer = CorpusWriter(arguments.output)
    # The build's own output must not be in the JSON.
    output = sys.stderr.buffer if arguments.json else None
    status, commands = record(arguments.build, folder, preload=not arguments.no_preload, output=output)
    try:
        project = Project(arguments.project or folder.name, folder)
        with shown_progress() as progress:
            made = convert(commands, project, front_end, writer, jobs=arguments.jobs, progress=progress)
    finally:
        corpus = writer.write()
    tell(writer, corpus, arguments.output, json=arguments.json)
    if not status and not corpus.modules:
        raise NotFoundError(f"nothing became a module: {why_nothing(commands, made.failed)}")
    return status

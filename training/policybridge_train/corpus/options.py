"""Options of all subcommands of ``policybridge corpus``: compiler, level, number of jobs."""

import argparse
import os
from pathlib import Path

from policybridge_train.command_line import count
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.options import add_compiler, add_level, add_limits, compiler_of, limits_of
from policybridge_train.corpus.bitcode import FrontEnd, check_target


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare where the corpus is written."""
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the corpus; an existing one grows")


def add_front_end(parser: argparse.ArgumentParser) -> None:
    """Declare how sources become bitcode."""
    add_compiler(parser)
    add_level(parser, "Oz")
    parser.add_argument(
        "--target", metavar="TRIPLE", help="compile sources for it: aarch64-linux-gnu (default: the build's own)"
    )
    parser.add_argument("--debug-info", action="store_true", help="keep tables of lines")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, metavar="N", help="at a time")
    add_limits(parser, Limits())


def front_end_of(arguments: argparse.Namespace) -> FrontEnd:
    """Give the front end that the arguments choose.

    Raises:
        InvalidError: the clang does not know the target.
        NotFoundError: there is no such clang.

    """
    compiler = compiler_of(arguments)
    # Raises now if the program is no clang.
    _ = compiler.version
    level = None if arguments.level == "own" else arguments.level
    if arguments.target is not None:
        check_target(compiler, arguments.target)
    return FrontEnd(compiler, level, arguments.debug_info, limits_of(arguments), arguments.target)

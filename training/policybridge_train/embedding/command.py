"""``policybridge embed``: a policy as a file of its own."""

import argparse
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from policybridge_client.llvm.bounds import GROWTH_LIMIT
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_train.embedding.c_files import prefix_of, write_header, write_source
from policybridge_train.embedding.hosts import LLVM, MLIR, Host
from policybridge_train.embedding.interface import Embedded, read_policies, read_policy
from policybridge_train.embedding.parts import Building
from policybridge_train.embedding.plugin import build_plugin
from policybridge_train.embedding.release import write_class
from policybridge_train.embedding.toolchain import Toolchain, add_toolchain

_FAILED: Final = 1

_DESCRIPTION: Final = """
Writes a policy as a file that decides without a server: C99, a class for LLVM's ReleaseModeModelRunner, or a plugin for
a stock clang and opt, or a stock mlir-opt. The model is ONNX. Exit status: 0; 1 where the policy cannot be embedded; 2
for a wrong command line.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit status: 0; 1 for what cannot be done; 2 for a wrong command line."
    parser.description = _DESCRIPTION
    add = parser.add_argument
    add("policy", metavar="POLICY", help="NAME, NAME@VERSION or NAME@ALIAS")
    add("--repository", type=Path, metavar="DIR", help="where it is (default: the policies of this package)")
    add("--kind", metavar="KIND", help="of a policy with several models: the decisions, in C (a plugin has all)")
    add("--for", dest="target", required=True, choices=_TARGETS, metavar="TARGET", help="%(choices)s")
    add("-o", "--output", nargs="+", required=True, type=Path, metavar="FILE", help="the files to write")
    add("--prefix", metavar="NAME", help="the prefix of the names in C (default: the policy's name)")
    add_toolchain(parser)
    plugin = parser.add_argument_group("of a plugin")
    plugin.add_argument(
        "--growth-limit", type=_limit, default=GROWTH_LIMIT, metavar="FACTOR", help="as for policybridge run"
    )
    plugin.add_argument(
        "--build", type=Path, metavar="DIR", help="where its own part is built and kept (default: a cache)"
    )
    plugin.add_argument(
        "--sources", type=Path, metavar="DIR", help="the folder clients of the source tree (default: ours)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Embed; return the exit status."""
    try:
        _TARGETS[arguments.target](arguments)
    except (PolicyBridgeError, OSError) as error:
        sys.stderr.write(f"policybridge embed: {error}\n")
        return _FAILED
    return 0


def _limit(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not factor >= 0:
        raise argparse.ArgumentTypeError(f"{text} is no number of 0 or more")
    return factor


def _by_suffix(files: Sequence[Path], *suffixes: str) -> list[Path]:
    found = {file.suffix: file for file in files}
    if len(files) != len(suffixes) or found.keys() != set(suffixes):
        raise InvalidError(
            f"-o takes {' and '.join(f'a file *{each}' for each in suffixes)}, not {' '.join(map(str, files))}"
        )
    return [found[suffix] for suffix in suffixes]


def _read(arguments: argparse.Namespace) -> Embedded:
    return read_policy(arguments.policy, arguments.repository, arguments.kind)


def _c(arguments: argparse.Namespace) -> None:
    policy = _read(arguments)
    header, source = _by_suffix(arguments.output, ".h", ".c")
    prefix = prefix_of(policy, arguments.prefix)
    declared, defined = write_header(policy, prefix), write_source(policy, prefix, header.name)
    header.write_text(declared, encoding="utf-8")
    source.write_text(defined, encoding="utf-8")


def _llvm_release(arguments: argparse.Namespace) -> None:
    policy = _read(arguments)
    file, header, source = _by_suffix(arguments.output, ".hpp", ".h", ".c")
    made = write_class(policy, prefix_of(policy, arguments.prefix), header.name)
    arguments.output = [header, source]
    _c(arguments)
    file.write_text(made, encoding="utf-8")


def _plugin(host: Host, major: str, arguments: argparse.Namespace) -> None:
    if arguments.kind is not None:
        raise InvalidError("--kind is for C; a plugin has all kinds of decisions that the policy makes")
    if len(arguments.output) != 1:
        raise InvalidError(f"-o takes one file, the plugin, not {' '.join(map(str, arguments.output))}")
    # The linker runs in a folder of its own.
    build = arguments.build and arguments.build.absolute()
    building = Building(Toolchain.of(arguments), arguments.growth_limit, build, arguments.sources)
    policies = read_policies(arguments.policy, arguments.repository)
    build_plugin(list(policies.values()), host, major, arguments.output[0], building)


_TARGETS: Final[Mapping[str, Callable[[argparse.Namespace], None]]] = {
    "c": _c,
    "llvm-release": _llvm_release,
    **{f"plugin-{major}": partial(_plugin, LLVM, major) for major in LLVM.majors},
    **{f"mlir-{major}": partial(_plugin, MLIR, major) for major in MLIR.majors},
}

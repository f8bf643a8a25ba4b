"""The options that say where compilers run, for each command that has them."""

import argparse

from policybridge_core.errors import InvalidError
from policybridge_train.command_line import count
from policybridge_train.farms.contract import FARMS, Farm, FarmOptions


def add_farm(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="compilers at a time (default: the cores, of all machines)"
    )
    add_cluster(parser)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Declare the options without ``--jobs``, for a command that has its own."""
    add = parser.add_argument
    add("--ray", metavar="ADDRESS", help="compile by the nodes of this Ray cluster: HOST:PORT, auto; or local")
    add("--farm", metavar="NAME[=ADDRESS]", help=f"compile elsewhere: {', '.join(FARMS.own)}, or yours; see --ray")
    add(
        "--reserve",
        type=count,
        default=FarmOptions().memory,
        metavar="MIB",
        help="with --ray: memory that is set aside for each compiler (default: %(default)s)",
    )


def farm_of(arguments: argparse.Namespace) -> Farm:
    """Make the farm that the options name.

    Raises:
        InvalidError: the options contradict each other.
        PolicyBridgeError: there is no such farm, or it cannot be reached.

    """
    if arguments.ray is not None and arguments.farm is not None:
        raise InvalidError("--ray ADDRESS is short for --farm ray=ADDRESS: give one of them")
    text = f"ray={arguments.ray}" if arguments.ray is not None else arguments.farm or "local"
    name, _, address = text.partition("=")
    FARMS.check(name)
    made: Farm = FARMS.load(name)(FarmOptions(address, arguments.jobs, arguments.reserve))  # type: ignore[operator]
    return made

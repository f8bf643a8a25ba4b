"""``policybridge policies``: rollout, promote, withdraw, rollback."""

import argparse
import re

from policybridge_client.policies import Conditions, RepositoryClient, Rollout
from policybridge_client.version_arguments import add_version, numbered, reference


def add_rollout(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rollout``."""
    add_version(parser)
    parser.add_argument(
        "--share",
        required=True,
        type=_share,
        metavar="PERCENT%",
        help="share of the files of new sessions, such as 10%%",
    )
    parser.add_argument("--alias", default="latest", help="the alias whose sessions are split (default: latest)")
    parser.add_argument(
        "--promote-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help="such as 'text < -0.1%%': the server promotes the version when this is sure, and withdraws it when "
        "this is refuted; repeatable: all must hold",
    )
    parser.add_argument(
        "--withdraw-if",
        action="append",
        default=[],
        metavar="CONDITION",
        help="such as 'failed > 0.5%%': the server withdraws the version when this is sure; repeatable",
    )
    parser.add_argument(
        "--files",
        type=int,
        default=20,
        metavar="N",
        help="files that both versions compile before they are compared (default: 20)",
    )


def add_end(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``promote`` and ``withdraw``."""
    add_version(parser)
    parser.add_argument("--reason", default="", help="for the ledger and the page")


def add_rollback(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``rollback``."""
    add_version(parser)
    parser.add_argument(
        "--to", type=int, metavar="N", help="the version that `latest` is to name (default: the one before)"
    )
    parser.add_argument("--reason", default="", help="for the ledger and the page")
    parser.description = (
        "Let `latest` name the version before, or --to N, for all new sessions, until a newer version is published. "
        "With a version, as in `rollback inliner@7`, only if that is `latest` now."
    )


def roll_out(client: RepositoryClient, arguments: argparse.Namespace) -> tuple[Rollout, str]:
    """Begin or change a roll-out; give it and its description.

    Raises:
        PolicyBridgeError: no version's number is given, or the server refuses it.

    """
    version = numbered(arguments)
    conditions = Conditions(arguments.promote_if, arguments.withdraw_if, arguments.files)
    rollout = client.roll_out(version, arguments.share, alias=arguments.alias, conditions=conditions)
    return rollout, described(version.name, rollout)


def end(client: RepositoryClient, arguments: argparse.Namespace, *, promote: bool) -> tuple[Rollout, str]:
    """End a roll-out; give it and its description.

    Raises:
        PolicyBridgeError: the server refuses it.

    """
    asked = reference(arguments)
    rollout = client.end_rollout(asked.name, promote=promote, reason=arguments.reason, version=asked.version)
    return rollout, described(asked.name, rollout)


def roll_back(client: RepositoryClient, arguments: argparse.Namespace) -> tuple[Rollout, str]:
    """Let `latest` name another version; give the step and what to print.

    Raises:
        PolicyBridgeError: the server refuses it.

    """
    asked = reference(arguments)
    rollout = client.roll_back(asked.name, arguments.to, leaves=asked.version, reason=arguments.reason)
    return rollout, described(asked.name, rollout)


def described(policy: str, rollout: Rollout) -> str:
    """Describe the state of a roll-out in one line."""
    because = f" ({rollout.reason})" if rollout.reason else ""
    because += f"; {rollout.progress}" if rollout.progress else ""
    if rollout.state == "running":
        conditions = [f"promoted if {each}" for each in rollout.promote_if]
        conditions += [f"withdrawn if {each}" for each in rollout.withdraw_if]
        text = "".join(f"; {each}" for each in conditions)
        return (
            f"{policy}@{rollout.alias} is {rollout.version} for {100 * rollout.share:.4g}% of the files, "
            f"{rollout.base} for the others{text}{because}"
        )
    return f"{policy}@{rollout.version} is {rollout.state}; {rollout.alias} is {_named(rollout)}{because}"


def _named(rollout: Rollout) -> int:
    return rollout.version if rollout.state == "promoted" else rollout.base


def _share(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d*)?)(%?)", text)
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: above 0 and at most 100%, such as 10% or 0.1")
    return share

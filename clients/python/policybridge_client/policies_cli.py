"""``policybridge policies``: publish versions, name them, roll them out, look at them and at the replicas."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from policybridge_client.addresses import SERVER, split_addresses
from policybridge_client.credentials import Credentials
from policybridge_client.credentials import add_arguments as add_credentials
from policybridge_client.policies import PolicyDetails, PolicySummary, RepositoryClient
from policybridge_client.rollout_cli import add_end, add_rollback, add_rollout, described, end, roll_back, roll_out
from policybridge_client.version_arguments import InterleavedParser, add_version, numbered, reference
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_core.terminal import as_json, cleaned, complain, leave_reader, say
from policybridge_serdes import PolicyVersion

_CHANGES: Final = (
    "publish",
    "publish-weights",
    "alias",
    "rollout",
    "promote",
    "withdraw",
    "rollback",
    "adopt",
    "retire",
)
"""The subcommands with ``--wait-for``."""

_TOO_FEW: Final = 3

_DIGEST: Final = 19
"""Characters of a digest that are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    parser.epilog = (
        "Exit status: 0; 1 if the server refuses; 2 if a file cannot be read; 3 if too few replicas have the change."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=InterleavedParser)
    publish = _command(commands, "publish", _publish, "publish a folder's files as a version")
    publish.add_argument("policy")
    publish.add_argument("folder", type=Path)
    publish.add_argument("--policy-toml", type=Path, metavar="FILE", help="for the first version of a new policy")
    publish.add_argument("--alias", action="append", default=[], help="name the version; repeatable")
    weights = _command(commands, "publish-weights", _publish_weights, "publish a version with new weights")
    add_version(weights)
    weights.add_argument("file", type=Path, metavar="FILE.safetensors")
    weights.add_argument("--alias", action="append", default=[], help="name the version; repeatable")
    alias = _command(commands, "alias", _alias, "let an alias other than `latest` name a version, also an older one")
    alias.add_argument("policy", metavar="POLICY[@VERSION]")
    alias.add_argument("alias", metavar="ALIAS")
    alias.add_argument("version", nargs="?", metavar="VERSION")
    add_rollout(_command(commands, "rollout", _roll_out, "let a share of the new sessions get a version"))
    add_end(_command(commands, "promote", _promote, "end a roll-out: all new sessions get the version"))
    add_end(_command(commands, "withdraw", _withdraw, "end a roll-out: no new session gets the version"))
    add_rollback(_command(commands, "rollback", _roll_back, "let `latest` name the version before, or another one"))
    add_version(_command(commands, "retire", _retire, "remove a version when its last session has ended"))
    download = _command(commands, "download", _download, "write the files of a version into a new folder")
    add_version(download)
    download.add_argument("folder", type=Path, metavar="FOLDER")
    adopt = _command(commands, "adopt", _adopt, "take a version that replicas keep and the server never had")
    add_version(adopt)
    adopt.add_argument(
        "--from", dest="source", required=True, metavar="ADDR", help="a replica that keeps it, over gRPC"
    )
    _command(commands, "list", _list, "all policies")
    add_version(_command(commands, "show", _show, "one policy and its versions, or one of them"))
    _command(commands, "replicas", _replicas, "the servers that follow this one, and whether they are current")


def _command(
    commands: "argparse._SubParsersAction[InterleavedParser]",
    name: str,
    does: Callable[[RepositoryClient, argparse.Namespace], None],
    summary: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, description=summary)
    command.set_defaults(does=does, wait_for="none")
    command.add_argument(
        "--server",
        default=os.environ.get(SERVER),
        metavar="ADDR",
        help="grpc[s]:HOST:PORT or grpc:unix:PATH; of several with commas between, the first one over gRPC (default: "
        "POLICYBRIDGE_SERVER of the environment)",
    )
    add_credentials(command)
    command.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    command.add_argument("--json", action="store_true", help="print JSON")
    if name in _CHANGES:
        _add_waiting(command)
    return command


def _add_waiting(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--wait-for",
        choices=("none", "most", "all"),
        default="none",
        help="wait until none, most or all replicas have it; exit status 3 if they do not (default: none)",
    )
    command.add_argument(
        "--wait-seconds", type=float, default=30.0, metavar="SECONDS", help="limit of this wait (default: 30)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand.

    The exit status is 1 if the server refuses, 2 if a file cannot be read, 3 if too few replicas have the change.
    """
    client = None
    try:
        client = RepositoryClient(
            _over_grpc(arguments.server), timeout=arguments.timeout, credentials=Credentials.from_arguments(arguments)
        )
        arguments.does(client, arguments)
        sys.stdout.flush()
        return _waited(client, arguments) if arguments.wait_for != "none" else 0
    except PolicyBridgeError as error:
        complain(f"policybridge policies: {error}")
        return 1
    except BrokenPipeError:
        leave_reader()
        return 0
    except (OSError, UnicodeDecodeError) as error:
        complain(f"policybridge policies: {error}")
        return 2
    finally:
        if client is not None:
            client.close()


def _over_grpc(server: str | None) -> str:
    """Choose the first gRPC address of a list of servers."""
    if not server:
        raise InvalidError(f"no server is named: give --server ADDR, or set {SERVER}")
    several = split_addresses(server)
    return next((address for address in several if address.startswith(("grpc:", "grpcs:"))), several[0])


def _waited(client: RepositoryClient, arguments: argparse.Namespace) -> int:
    """Wait for replicas; report those that lack the change."""
    replicas = client.replicas(arguments.wait_for, arguments.wait_seconds)
    if replicas.met:
        return 0
    behind = "".join(f"\n{replica}" for replica in replicas.behind)
    complain(f"policybridge policies: it is done, but not {arguments.wait_for} of the replicas have it:{behind}")
    return _TOO_FEW


def _publish(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    config = arguments.policy_toml.read_text() if arguments.policy_toml else ""
    _print_version(
        arguments, client.publish(arguments.policy, arguments.folder, config=config, aliases=arguments.alias)
    )


def _publish_weights(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    base = reference(arguments)
    _print_version(arguments, client.publish_weights(base, arguments.file.read_bytes(), aliases=arguments.alias))


def _print_version(arguments: argparse.Namespace, version: PolicyVersion) -> None:
    _print(arguments, version, f"{version.name}@{version.version} {version.digest}")


def _alias(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    alias = arguments.alias
    if alias.isdecimal() and arguments.version is not None:
        # `alias inliner 2 stable`: no alias is a number.
        alias, arguments.version = arguments.version, alias
    arguments.version = _number(arguments.version)
    version = numbered(arguments)
    before = client.set_alias(version.name, alias, version.version or 0)
    was = "" if before is None else f", before {before}"
    text = f"{version.name}@{alias} is {version.version}{was}"
    _print(arguments, {"alias": alias, "version": version.version, "previous": before}, text)


def _number(text: str | None) -> int | None:
    if text is not None and not text.isdecimal():
        raise InvalidError(f"{text!r} is not the number of a version")
    return None if text is None else int(text)


def _roll_out(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    _print(arguments, *roll_out(client, arguments))


def _promote(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    _print(arguments, *end(client, arguments, promote=True))


def _withdraw(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    _print(arguments, *end(client, arguments, promote=False))


def _roll_back(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    _print(arguments, *roll_back(client, arguments))


def _retire(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    version = numbered(arguments)
    client.retire(version.name, version.version or 0)
    _print(arguments, {"policy": version.name, "retired": version.version}, f"{version} is retired")


def _download(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    _print_version(arguments, client.download(reference(arguments), arguments.folder))


def _adopt(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    version, credentials = numbered(arguments), Credentials.from_arguments(arguments)
    with (
        TemporaryDirectory() as scratch,
        RepositoryClient(arguments.source, timeout=arguments.timeout, credentials=credentials) as source,
    ):
        files = Path(scratch) / "files"
        source.download(version, files)
        _print_version(arguments, client.publish(version.name, files, adopted=version.version))


def _list(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    policies = client.policies()
    _print(arguments, policies, _table([_policy_row(cleaned(policy)) for policy in policies], _POLICY))


def _show(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    asked = reference(arguments)
    details = client.show(asked.name)
    if asked.version is not None:
        shown = [version for version in details.versions if version.version == asked.version]
        details = msgspec.structs.replace(details, versions=shown)
    _print(arguments, details, _shown(cleaned(details)))


_POLICY: Final = ("POLICY", "LATEST", "VERSIONS", "BACKEND", "DESCRIPTION")
_VERSION: Final = ("VERSION", "ALIASES", "DIGEST", "BYTES", "LOADED", "SESSIONS", "NOT SERVED BECAUSE")


def _policy_row(policy: PolicySummary) -> Sequence[object]:
    about = f"not served: {policy.error}" if policy.error else policy.description
    return policy.name, policy.latest or "-", policy.versions, policy.backend, about


def _shown(details: PolicyDetails) -> str:
    newest = next((version for version in details.versions if version.loaded), None)
    rows = []
    for version in details.versions:
        names = [alias for alias, number in details.aliases.items() if number == version.version]
        names += ["latest"] if version.version == details.summary.latest else []
        loaded = "yes" if version.loaded else "no"
        short = version.digest[:_DIGEST]
        rows.append((version.version, " ".join(names), short, version.bytes, loaded, version.sessions, version.error))
    takes = "" if newest is None else "".join(f"  takes {feature}\n" for feature in newest.features)
    gives = f"  gives {newest.advice}\n" if newest is not None and newest.advice else ""
    heading = f"{details.summary.name} ({details.summary.backend}) {details.summary.description}".rstrip()
    heading += f"\n  not served: {details.summary.error}" if details.summary.error else ""
    rollout = f"  {described(details.summary.name, details.rollout)}\n" if details.rollout else ""
    return f"{heading}\n{takes}{gives}{rollout}{_table(rows, _VERSION)}"


def _replicas(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    replicas = client.replicas()
    text = "\n".join(str(cleaned(replica)) for replica in replicas.replicas) or "no server follows this one"
    _print(arguments, replicas, text)


def _table(rows: Sequence[Sequence[object]], heads: Sequence[str]) -> str:
    lines = [list(map(str, row)) for row in [heads, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _print(arguments: argparse.Namespace, value: object, text: str) -> None:
    say(as_json(value) if arguments.json else text)

"""``policybridge policies``: publish, publish-weights, alias, retire, list, show."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from policybridge_client.policies import PolicyDetails, PolicySummary, RepositoryClient
from policybridge_core.errors import PolicyBridgeError
from policybridge_serdes import PolicyReference, PolicyVersion

_DIGEST: Final = 19
"""Characters of a digest that are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    publish = _command(commands, "publish", _publish, "publish a folder's files as a version")
    publish.add_argument("policy")
    publish.add_argument("folder", type=Path)
    publish.add_argument("--policy-toml", type=Path, metavar="FILE", help="for the first version of a new policy")
    publish.add_argument("--alias", action="append", default=[], help="name the version; repeatable")
    weights = _command(commands, "publish-weights", _publish_weights, "publish a version with new weights")
    weights.add_argument("base", metavar="POLICY[@VERSION]")
    weights.add_argument("file", type=Path, metavar="FILE.safetensors")
    weights.add_argument("--alias", action="append", default=[], help="name the version; repeatable")
    alias = _command(commands, "alias", _alias, "point an alias to a version: promote it, or roll back")
    alias.add_argument("policy")
    alias.add_argument("alias")
    alias.add_argument("version", type=int)
    retire = _command(commands, "retire", _retire, "remove a version when its last session has ended")
    retire.add_argument("policy")
    retire.add_argument("version", type=int)
    _command(commands, "list", _list, "all policies")
    _command(commands, "show", _show, "one policy and its versions").add_argument("policy")


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    does: Callable[[RepositoryClient, argparse.Namespace], None],
    summary: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=summary, description=summary)
    command.set_defaults(does=does)
    command.add_argument("--server", required=True, metavar="ADDR", help="grpc:HOST:PORT or grpc:unix:PATH")
    command.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    command.add_argument("--json", action="store_true", help="print JSON")
    return command


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand. The exit status is 1 if the server refuses, 2 if a file cannot be read."""
    client = None
    try:
        client = RepositoryClient(arguments.server, timeout=arguments.timeout)
        arguments.does(client, arguments)
    except PolicyBridgeError as error:
        sys.stderr.write(f"policybridge policies: {error}\n")
        return 1
    except (OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"policybridge policies: {error}\n")
        return 2
    finally:
        if client is not None:
            client.close()
    return 0


def _publish(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    config = arguments.policy_toml.read_text() if arguments.policy_toml else ""
    _print_version(
        arguments, client.publish(arguments.policy, arguments.folder, config=config, aliases=arguments.alias)
    )


def _publish_weights(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    base = PolicyReference.parse(arguments.base)
    _print_version(arguments, client.publish_weights(base, arguments.file.read_bytes(), aliases=arguments.alias))


def _print_version(arguments: argparse.Namespace, version: PolicyVersion) -> None:
    _print(arguments, version, f"{version.name}@{version.version} {version.digest}")


def _alias(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    before = client.set_alias(arguments.policy, arguments.alias, arguments.version)
    was = "" if before is None else f", before {before}"
    text = f"{arguments.policy}@{arguments.alias} is {arguments.version}{was}"
    _print(arguments, {"alias": arguments.alias, "version": arguments.version, "previous": before}, text)


def _retire(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    client.retire(arguments.policy, arguments.version)
    text = f"{arguments.policy}@{arguments.version} is retired"
    _print(arguments, {"policy": arguments.policy, "retired": arguments.version}, text)


def _list(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    policies = client.policies()
    _print(arguments, policies, _table([_policy_row(policy) for policy in policies], _POLICY))


def _show(client: RepositoryClient, arguments: argparse.Namespace) -> None:
    details = client.show(arguments.policy)
    _print(arguments, details, _shown(details))


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
    return f"{heading}\n{takes}{gives}{_table(rows, _VERSION)}"


def _table(rows: Sequence[Sequence[object]], heads: Sequence[str]) -> str:
    lines = [list(map(str, row)) for row in [heads, *rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _print(arguments: argparse.Namespace, value: object, text: str) -> None:
    print(msgspec.json.encode(value).decode() if arguments.json else text)

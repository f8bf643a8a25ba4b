"""``policybridge top``: watch a server in a terminal."""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from policybridge_client.credentials import Credentials
from policybridge_client.credentials import add_arguments as add_credentials
from policybridge_client.page import PageClient
from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_core.terminal import as_json, complain, say
from policybridge_core.text import printable

_ROWS: Final = 20
"""Most live sessions on the screen."""

_VERSIONS: Final = 5
"""Newest versions of a policy on the screen; older ones only with an alias or a session."""

_PIPED: Final = 200
"""Characters of a line if the output is not a terminal."""

_STATES: Final = {"promoted": "green", "withdrawn": "red", "running": "cyan"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit status: 0 after an interrupt; 1 if the server refuses, or cannot be reached at first."
    parser.description = "Sessions, decisions, latency and roll-outs of a server, as its page shows them."
    parser.add_argument("--server", required=True, metavar="ADDR", help="the server's HTTP address: http[s]:HOST:PORT")
    add_credentials(parser)
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="SECONDS", help="between two requests (default: 1)"
    )
    parser.add_argument("--once", action="store_true", help="show the state once")
    parser.add_argument("--json", action="store_true", help="print the state once, as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Watch until the user interrupts; the exit status is 1 if the server refuses, or cannot be reached at first."""
    try:
        with PageClient(arguments.server, credentials=Credentials.from_arguments(arguments)) as client:
            _watch(client, arguments)
    except PolicyBridgeError as error:
        complain(f"policybridge top: {error}")
        return 1
    except KeyboardInterrupt:
        pass
    return 0


def _watch(client: PageClient, arguments: argparse.Namespace) -> None:
    view = _look(client)
    if arguments.json:
        say(as_json(view))
        return
    console = Console(width=None if sys.stdout.isatty() else _PIPED)
    if arguments.once:
        console.print(_screen(view))
        return
    with Live(_screen(view), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(arguments.interval)
            try:
                view, lost = _look(client), ""
            except UnavailableError as error:
                # A restarting server answers again in a moment.
                lost = str(error)
            live.update(_screen(view, lost), refresh=True)


def _look(client: PageClient) -> dict[str, Any]:
    return {"state": client.get("state"), "history": client.get("history")}


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return seconds


def _screen(view: Mapping[str, Any], lost: str = "") -> RenderableType:
    state, samples = view["state"], view["history"]["samples"]
    parts: list[RenderableType] = [_numbers(state, samples[-1] if samples else {})]
    if lost:
        parts.append(Text(printable(lost), "red"))
    parts += [_policies(state["policies"]), *_rollouts(state["policies"]), _sessions(state)]
    return Group(*parts)


def _numbers(state: Mapping[str, Any], sample: Mapping[str, Any]) -> Text:
    decisions = sum(sample.get("decisions", {}).values())
    latency = sum(sample.get("stages", {}).values())
    text = Text()
    for value, name in (
        (f"{state['sessions']:,}", "sessions"),
        (f"{decisions:,}", "decisions/s"),
        (_duration(latency) if latency else "–", "mean latency"),
    ):
        text.append(value, "bold").append(f" {name}   ", "dim")
    for kind, name in (("failures", "failed decisions"), ("failed", "failed compilations"), ("fallbacks", "fallbacks")):
        total = sum(each[kind] for each in state.get("troubles", ()))
        if total:
            text.append(f"{total:,.0f} {name}   ", "bold red")
    return text


def _duration(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.1f} {unit}"
    return f"{nanoseconds:.0f} ns"


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _policies(policies: list[dict[str, Any]]) -> Table:
    table = _table("POLICY", "ALIASES", "LOADED", "SESSIONS", "NOT SERVED BECAUSE", right=("SESSIONS",))
    for policy in policies:
        if policy["error"]:
            table.add_row(Text(printable(policy["name"])), "", "", "", Text(printable(policy["error"]), "red"))
        for version, aliases in _shown(policy):
            table.add_row(
                Text(printable(f"{policy['name']}@{version['version']}")),
                Text(printable(" ".join(aliases))),
                Text("yes", "green") if version["loaded"] else Text("no", "dim"),
                f"{version['sessions']:,}",
                Text(printable(version["error"]), "red"),
            )
    return table


def _shown(policy: Mapping[str, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    named: dict[int, list[str]] = {}
    for alias, number in policy["aliases"].items():
        named.setdefault(number, []).append(alias)
    if policy["latest"]:
        named.setdefault(policy["latest"], []).insert(0, "latest")
    for index, version in enumerate(policy["versions"]):
        aliases = named.get(version["version"], [])
        if index < _VERSIONS or aliases or version["sessions"]:
            yield version, aliases


def _rollouts(policies: list[dict[str, Any]]) -> Iterator[Text]:
    for policy in policies:
        rollout = policy["rollout"]
        if rollout is None:
            continue
        text = Text(f"{rollout['state']:10}", _STATES.get(rollout["state"], ""))
        text.append(printable(f"{policy['name']}@{rollout['version']}"), "bold")
        share = f" for {100 * rollout['share']:.4g}% of the files" if rollout["state"] == "running" else ""
        text.append(printable(f" to {rollout['alias']}{share}, before {rollout['base']}  {rollout['reason']}"))
        if policy.get("progress"):
            text.append(printable(f"  {policy['progress']}"))
        yield text


def _sessions(state: Mapping[str, Any]) -> Table:
    table = _table("SESSION", "ON", "FILE", "NOW IN")
    for session in state["live"][:_ROWS]:
        on = f"{session['policy']}@{session['version']}"
        cells = (session["id"][:12], on, session["file"], session["context"])
        table.add_row(*(Text(printable(cell)) for cell in cells))
    if state["sessions"] > _ROWS:
        table.add_row(Text(f"… {state['sessions'] - _ROWS:,} more", "dim"))
    return table

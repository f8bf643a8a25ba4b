"""A policy.toml is at most 64 KiB and 16 deep, by whichever way it comes; that is checked before it is parsed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from policybridge_core.errors import PreconditionError, TooLargeError
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.toml import LARGEST, parse_toml
from tests.conftest import RunningServer, ServerFactory
from tests.repositories import answering, write_python
from tests.server.publishing.policies import TOML, Client, client, write_adder
from tests.server.transports.beside import asking

DEEP = {
    "a key of very many parts": ".".join("a" * 30_000) + " = 1",
    "a key of quoted parts": ".".join(['"a"'] * 15_000) + " = 1",
    "a header of very many parts": "[" + " . ".join("a" * 15_000) + "]",
    "arrays in arrays": "a = " + "[" * 30_000 + "]" * 30_000,
    "tables in tables": "a = " + "{a = " * 10_000 + "1" + "}" * 10_000,
    "a string that is not closed before": "b = '\na = " + "[" * 30_000,
    "brackets behind a string with quotes at its end": 'a = ["""a"""", ' + "[" * 30_000 + ' "b"]',
}

SLOW = {
    "a word": "a" * LARGEST,
    "quotes of several lines without an end": '"""' + '\n\\"""' * (LARGEST // 6),
    "quotes of one line without an end": '"' + '\\"' * (LARGEST // 2 - 1),
}
"""A search that begins anew at each character takes a minute for them, with the interpreter held."""


@pytest.fixture
def server(policies: Path, server_factory: ServerFactory) -> Iterator[tuple[RunningServer, Client]]:
    write_python(policies, "inline", answering("observation['x']"), "inline = true")
    running = server_factory(policies, "--allow-publish")
    with client(running) as made:
        yield running, made


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_what_is_nested_too_deep_is_refused_before_it_is_parsed(text: str) -> None:
    with pytest.raises(PreconditionError, match=r"^here: values are nested too deeply in each other; at most 16 deep"):
        parse_toml(text.encode(), "here", PolicyConfig)


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
def test_a_search_for_depth_begins_anew_at_no_character(text: str) -> None:
    with pytest.raises(PreconditionError, match=r"^here: "):
        parse_toml(text.encode(), "here", PolicyConfig)


def test_dots_and_brackets_in_strings_and_comments_are_no_depth() -> None:
    dots = "." * 100 + "[{" * 100
    text = f"""
        backend = "onnx" # {dots}
        description = "\\"{dots}"
        [settings]
        literal = '{dots}'
        long = \"\"\"a
        {dots}\"\"\"
        other = '''a
        {dots}'''
        a.b.c.d = [[[1.5, {{e.f = 1}}]]]
    """
    parsed = parse_toml(text.encode(), "here", PolicyConfig)
    assert parsed.description == '"' + dots
    assert parsed.settings["a"]["b"]["c"]["d"][0][0][1]["e"]["f"] == 1


def test_a_config_of_more_than_64_kib_is_refused_on_every_way(
    server: tuple[RunningServer, Client], tmp_path: Path
) -> None:
    large = TOML + "#" * LARGEST
    files = write_adder(tmp_path / "new", 1)
    for name in ("new", "adder"):
        with pytest.raises(TooLargeError, match=rf"{len(large)} bytes; at most {LARGEST} are taken"):
            server[1].repository.publish(name, files, config=large)


def test_decisions_go_on_while_a_hostile_config_is_judged(server: tuple[RunningServer, Client], tmp_path: Path) -> None:
    files = write_adder(tmp_path / "new", 1)
    keys = "".join(f"k{number} = 1\n" for number in range(6_000))
    with asking(server[0].socket, "inline") as beside:
        before = beside.decisions
        hostile = [f"{text}\nunknown = 1" for text in (f"{TOML}[settings]\n{keys}", *DEEP.values())]
        for number, text in enumerate([*hostile, *SLOW.values()]):
            with pytest.raises(PreconditionError):
                server[1].repository.publish(f"new{number}", files, config=text)
        assert beside.decisions - before > 20


def test_a_file_of_more_than_64_kib_costs_its_policy_alone(policies: Path, server_factory: ServerFactory) -> None:
    write_python(policies, "large", answering("1"), "#" * LARGEST)
    with client(server_factory(policies)) as made:
        assert made.ask()[1] == 100
        with pytest.raises(PreconditionError, match=r"policy\.toml: \d+ bytes; at most 65536 are taken"):
            made.open("large")

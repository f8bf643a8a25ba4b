"""The form of the documentation's code blocks."""

import json
import tomllib
from pathlib import Path

import pytest

from policybridge_server.config import convert_fields, make_config
from policybridge_server.mlbridge.grpc.config import MlBridgeConfig
from policybridge_server.mlbridge.pipes.config import PipeConfig
from policybridge_server.repository.config import PolicyConfig
from policybridge_server.repository.toml import parse_toml
from tests.docs.pages import LANGUAGES, PAGES, REASONS, ROOT, blocks

_README_WORDS = 900
_DOCS_WORDS = 48_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_that_is_not_run_says_why_and_every_block_names_its_language(page: Path) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block} has the language {block.language!r}, not one of {LANGUAGES}"
        assert not block.reason or block.reason.startswith(REASONS), f"{block}: {block.reason!r}, not one of {REASONS}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_toml_and_json_are_well_formed_and_configurations_are_valid(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language == "json":
            json.loads(block.text)
        if block.language == "toml":
            fields = tomllib.loads(block.text)
            name = Path(block.path or "").name
            assert name or block.reason, f"{block} names no file, and does not say that it is a fragment"
            if name == "policy.toml":
                parse_toml(block.text.encode(), str(block), PolicyConfig)
            elif name == "config.toml":
                (tmp_path / name).write_text(block.text)
                make_config(tmp_path / name, {})
            for pipe in fields.get("pipe", []):
                convert_fields(pipe, PipeConfig, str(block))
            if "mlbridge" in fields:
                convert_fields(fields["mlbridge"], MlBridgeConfig, str(block))


def test_the_readme_is_read_in_a_few_minutes() -> None:
    assert _words(ROOT / "README.md") <= _README_WORDS


def test_the_documentation_is_no_longer_than_a_reader_bears() -> None:
    assert sum(map(_words, (ROOT / "docs").glob("*.md"))) <= _DOCS_WORDS


def _words(page: Path) -> int:
    return len(page.read_text(encoding="utf-8").split())

"""The site's own pages are made from the code, and what the code does not say is found."""

import re
from pathlib import Path

import pytest

from policybridge_docs.declarations import entries
from policybridge_docs.gallery.commands import Folder, commands
from policybridge_docs.headers import lines_of
from policybridge_docs.links import ROOT, SOURCES, with_site_links
from policybridge_docs.tables import with_commands_that_break
from policybridge_docs.undocumented import undocumented

HEADER = """\
#ifndef X_H
#define X_H
namespace policybridge {

struct Later;

/// Says how long.
struct Length {
  /// In bytes.
  int bytes = 0;

private:
  int hidden_;
};

/**
 * Measures.
 */
inline int measure(const Length &length) {
  return length.bytes;
}
inline int zero() { return 0; }

int forgotten();
} // namespace policybridge
#endif
"""


def test_a_header_is_read_as_its_comments_and_declarations() -> None:
    length, measure, forgotten = entries(HEADER)
    assert (length.name, length.comment) == ("Length", "Says how long.")
    assert length.text == "struct Length {\n  /// In bytes.\n  int bytes = 0;\n};"
    assert (measure.name, measure.comment) == ("measure, zero", "Measures.")
    assert measure.text.splitlines()[0] == "inline int measure(const Length &length);"
    assert (forgotten.name, forgotten.comment) == ("forgotten", "")


def test_a_declaration_without_a_comment_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"x\.h declares forgotten without a comment"):
        list(lines_of(HEADER, "x.h", "cpp"))


@pytest.mark.parametrize(
    ("text", "page", "wanted"),
    [
        ("[a](../proto/SOCKET.md#x)", "docs/README.md", "[a](reference/socket.md#x)"),
        ("[a](docs/llvm.md)", "README.md", "[a](llvm.md)"),
        ("[a](../docs/rollouts.md)", "proto/SOCKET.md", "[a](../rollouts.md)"),
        ("[a](../LICENSE)", "docs/README.md", f"[a]({SOURCES}LICENSE)"),
        ("[a](gone.md) [b](https://x.org/docs)", "docs/README.md", "[a](gone.md) [b](https://x.org/docs)"),
        ("```text\n[a](../LICENSE)\n```", "docs/README.md", "```text\n[a](../LICENSE)\n```"),
    ],
)
def test_a_link_of_the_repository_leads_to_the_page_on_the_site(text: str, page: str, wanted: str) -> None:
    assert with_site_links(text, page) == wanted


def test_a_table_with_whole_commands_in_its_first_column_may_break_them_and_others_may_not() -> None:
    options = "<table><tr><td><code>--store FILE</code></td><td>where</td></tr></table>"
    commands = options.replace("--store FILE", "policybridge serve --repository policies")
    assert with_commands_that_break(f"{options}<p>{commands}") == f'{options}<p><div class="commands">{commands}</div>'


def test_the_gallery_shows_a_picture_for_each_that_is_kept_and_all_are_small() -> None:
    pictures = sorted((ROOT / "docs" / "gallery").glob("*.webp"))
    page = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\]\(gallery/([\w.]+)\)", page)) == [picture.name for picture in pictures]
    assert sum(picture.stat().st_size for picture in pictures) < 300_000
    assert len(commands()) == 5


def test_what_a_command_of_the_gallery_prints_in_a_terminal_is_kept_and_its_failure_is_told(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.printed("sh -c 'test -t 1 && echo http://127.0.0.1:8000' \\\n    &") == f"http://{folder.address}\n"
    with pytest.raises(RuntimeError, match=r"ended with 3:\nwhy"):
        folder.printed("sh -c 'echo why; exit 3'")


def test_a_public_name_without_a_docstring_is_found(tmp_path: Path) -> None:
    for folder, package in [
        ("core", "core"),
        ("serdes", "serdes"),
        ("server", "server"),
        ("training", "train"),
        ("clients/python", "client"),
    ]:
        root = tmp_path / folder / f"policybridge_{package}"
        root.mkdir(parents=True)
        (root / "__init__.py").write_text('"""A package."""\n')
    (tmp_path / "core" / "policybridge_core" / "__init__.py").write_text(
        '"""A package."""\nfrom enum import Enum\n\n'
        'class Told:\n    """Is told.\n\n    Attributes:\n        size: in bytes.\n\n    """\n\n'
        "    size: int\n    forgotten: int\n    _own: int\n\n    def silent(self) -> None: ...\n\n"
        'class Kind(Enum):\n    """Says it by its names."""\n\n    ONE = 1\n'
    )
    assert undocumented(["policybridge_core"], tmp_path) == [
        "policybridge_core.Told.forgotten",
        "policybridge_core.Told.silent",
    ]

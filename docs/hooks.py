"""What MkDocs calls while it builds the site; see https://www.mkdocs.org/dev-guide/plugins/#events."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from policybridge_docs import commands, errors, grpc, headers, metrics, python_api
from policybridge_docs.links import PAGES, ROOT, with_site_links
from policybridge_docs.tables import with_commands_that_break
from policybridge_docs.undocumented import undocumented
from policybridge_docs.version import version

_MADE: Final[Mapping[str, Callable[[], str]]] = {
    "commands": commands.page,
    "errors": errors.page,
    "metrics": metrics.page,
    "cpp": headers.cpp_page,
    "c": headers.c_page,
    "grpc": grpc.page,
}
"""Pages of the reference, and what makes them."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Refuse to build where a public name has no docstring; put the version of the changelog on every page.

    Raises:
        Abort: there is such a name; mkdocs prints the message and ends.

    """
    if missing := undocumented(python_api.described()):
        raise Abort(f"public names without a docstring: {', '.join(missing)}")
    number, state = version()
    config.site_name = f"PolicyBridge {number}"
    config.copyright = f"PolicyBridge {number}{f', {state}' if state else ''}. Apache 2.0 with LLVM exception."
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for name, text in _pages():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_rest: Any) -> str:
    """Mend the links of a page that lies in docs/."""
    if page.file.generated_by is not None:
        return markdown
    return with_site_links(markdown, f"docs/{page.file.src_uri}")


def on_page_content(content: str, **_rest: Any) -> str:
    """Let long commands in the first column of a table break."""
    return with_commands_that_break(content)


def _pages() -> Iterator[tuple[str, str]]:
    """Give the name and the text of each page that does not lie in docs/."""
    for file, page in PAGES.items():
        if (ROOT / file).is_file():
            yield page, with_site_links((ROOT / file).read_text(encoding="utf-8"), file)
    for name, text in _MADE.items():
        yield f"reference/{name}.md", text()
    yield from python_api.pages()

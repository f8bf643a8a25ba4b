"""A report's page escapes texts, leaves empty tables out, and brings plotly's library once."""

from pathlib import Path

from policybridge_core.report_page import ReportPage


class Drawn:
    def to_html(self, *, full_html: bool, include_plotlyjs: bool) -> str:
        assert not full_html
        return f"<figure>{'the library' if include_plotlyjs else ''}</figure>"


def test_texts_are_escaped_and_stand_in_their_order(tmp_path: Path) -> None:
    page = ReportPage("a < b")
    page.add("p", "x & y")
    page.table(("<name>",), [("\udcff",)], "rows", words=True)
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "<title>a &lt; b</title>" in text
    assert text.index("<p>x &amp; y</p>") < text.index("<h3>rows</h3>") < text.index("<th>&lt;name&gt;</th>")
    assert "<td>\\udcff</td>" in text
    assert text.rstrip().endswith("</body></html>")


def test_a_table_without_rows_is_left_out_with_its_title(tmp_path: Path) -> None:
    page = ReportPage("report")
    page.table(("name",), [], "rows")
    page.write(tmp_path / "page.html")
    assert "rows" not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_first_figure_alone_brings_the_library(tmp_path: Path) -> None:
    page = ReportPage("report")
    page.draw([Drawn()])
    page.draw([Drawn(), Drawn()])
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert text.count("<figure>") == 3
    assert text.count("the library") == 1

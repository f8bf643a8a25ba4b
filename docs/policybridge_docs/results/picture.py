"""The picture at the top of README: the demo's bytes of text by library, before and after, from results/demo.json."""

from typing import Final

from policybridge_docs.links import ROOT
from policybridge_docs.results.figures import Figure, Results

FILE: Final = ROOT / "docs" / "gallery" / "demo.svg"

LIBRARIES: Final = ("libcxx", "libtsan", "libcxxabi", "libunwind", "musl")

KEYS: Final = frozenset(
    f"demo:{name}"
    for name in (
        "all.change",
        *(f"{library}.{part}" for library in LIBRARIES for part in ("plain-text", "text", "change")),
    )
)
"""The figures that the picture shows."""

_LEFT: Final = 96
_BARS: Final = 300
_ROW: Final = 44
_BEFORE: Final = "#90a4ae"
_AFTER: Final = "#00897b"


def drawn(results: Results) -> str:
    """Give the picture as SVG, in colours that are seen on a light and on a dark page."""
    figures = results.figures
    most = max(figures[f"{name}.plain-text"].value for name in LIBRARIES)
    rows = "".join(_row(name, number, figures, most) for number, name in enumerate(LIBRARIES))
    total = figures["all.change"].number()
    width, height = _LEFT + _BARS + 254, 40 + _ROW * len(LIBRARIES)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="16" role="img">\n'
        f"<title>Bytes of text by library: plain -Oz, and with the policy; {total} % in all</title>\n"
        f'<rect x="{_LEFT}" y="10" width="12" height="12" fill="{_BEFORE}"/>'
        f'<text x="{_LEFT + 18}" y="21" fill="#78909c">clang -Oz</text>'
        f'<rect x="{_LEFT + 120}" y="10" width="12" height="12" fill="{_AFTER}"/>'
        f'<text x="{_LEFT + 138}" y="21" fill="#78909c">with the policy: {total} % in all, bytes of text</text>\n'
        f"{rows}</svg>\n"
    )


def _row(name: str, number: int, figures: dict[str, Figure], most: float) -> str:
    """Draw two bars of one library."""
    before, after = figures[f"{name}.plain-text"], figures[f"{name}.text"]
    top = 38 + number * _ROW
    bars = "".join(
        f'<rect x="{_LEFT}" y="{top + offset}" width="{_BARS * each.value / most:.1f}" height="15" fill="{colour}"/>'
        for each, offset, colour in ((before, 0, _BEFORE), (after, 17, _AFTER))
    )
    change = f"{before.number()} → {after.number()}, {figures[f'{name}.change'].number()} %"
    end = _LEFT + _BARS * before.value / most + 8
    return (
        f'<text x="{_LEFT - 8}" y="{top + 21}" text-anchor="end" fill="#78909c">{name}</text>{bars}'
        f'<text x="{end:.1f}" y="{top + 21}" fill="#78909c">{change}</text>\n'
    )

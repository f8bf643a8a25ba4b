"""The changelog is short: a line for each change that users see."""

from tests.docs.pages import ROOT

LONGEST = 200


def test_each_change_is_one_line() -> None:
    _, _, changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## ")
    for line in changes.splitlines()[1:]:
        assert not line.startswith(" "), f"one line for each change, without a second one: {line!r}"
        assert len(line) <= LONGEST, f"at most {LONGEST} characters: {line!r}"

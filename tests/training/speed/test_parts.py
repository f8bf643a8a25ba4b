"""Which accepted moves are given up where a program's text is too large."""

from policybridge_train.speed.parts import Region, too_much


def test_what_saves_least_for_its_bytes_is_given_up_until_the_text_fits() -> None:
    best, poor, worst = (
        Region(frozenset("a"), 900, 100),
        Region(frozenset("bc"), 200, 100),
        Region(frozenset("d"), 10, 60),
    )
    smaller = Region(frozenset("e"), 0, -100)
    regions = [best, poor, worst, smaller]
    assert too_much(regions, 20) == ({"d"}, 60)
    assert too_much(regions, 61) == ({"b", "c", "d"}, 160)
    assert too_much(regions, 1000) == ({"a", "b", "c", "d"}, 260)


def test_nothing_is_given_up_where_no_function_has_grown() -> None:
    assert too_much([Region(frozenset("a"), 900, 0)], 16) == (set(), 0)

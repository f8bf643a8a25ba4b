"""Each SerDes alone: one observation encoded and decoded in its session form, in this process."""

import argparse
import time
from collections.abc import Callable
from statistics import median

import msgspec

from policybridge_bench.options import words
from policybridge_bench.payloads import PAYLOADS, payload
from policybridge_serdes import SERDES, Values, load_serdes

_SHARE = 0.05


def run(arguments: argparse.Namespace) -> int:
    """Measure all SerDes in turn, in every round; times are of encode and decode together."""
    names = words(arguments.serdes or "all", SERDES.names())
    seen: dict[str, list[tuple[float, float]]] = {}
    for name in words(arguments.payloads, list(PAYLOADS)):
        observation = payload(name).observations()[0]
        for _ in range(arguments.rounds):
            for serdes in names:
                codec = load_serdes(serdes).codec(payload(name).signature.features)
                times = _time(codec.encode, codec.decode, observation, arguments.seconds * _SHARE)
                seen.setdefault(f"{serdes} {name}", []).append(times)
    rows = {name: {"encode": _middle(both, 0), "decode": _middle(both, 1)} for name, both in seen.items()}
    for name, row in rows.items():
        total = row["encode"] + row["decode"]
        print(f"{name:24} encode {row['encode']:9.2f} µs   decode {row['decode']:9.2f} µs   both {total:9.2f} µs")
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1))
    return 0


def _middle(times: list[tuple[float, float]], which: int) -> float:
    return median(both[which] for both in times)


def _time(
    encode: Callable[[Values], bytes], decode: Callable[[bytes], Values], values: Values, seconds: float
) -> tuple[float, float]:
    data = encode(values)
    return _each(lambda: encode(values), seconds), _each(lambda: decode(data), seconds)


def _each(call: Callable[[], object], seconds: float) -> float:
    """Give the µs of one call: the mean of a run that is long enough for the clock."""
    count, spent = 1, 0.0
    while spent < seconds:
        count *= 2
        started = time.perf_counter()
        for _ in range(count):
            call()
        spent = time.perf_counter() - started
    return spent / count * 1e6

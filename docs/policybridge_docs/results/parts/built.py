"""Parts that build whole programs and packages, and the demo."""

import json
import math
import subprocess
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from policybridge_bench.processes import module
from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.running import Made, clang, run_module
from policybridge_train.scoring.statistics import change

_SIDES: Final = ("plain", "tuned")
_LINKED: Final = ("text", "file")
_BY_POLICY: Final = ("text", "code", "file")
# Of LTO.
_KINDS: Final = ("none", "full", "thin", "thin-1")
_LINKED_BY_POLICY: Final = ("libwoff2enc.so",)
_LINKED_BY_STORE: Final = ("libwoff2enc.so", "libwoff2dec.so", "libgraphite2.so", "libre2.so")


def demo(_: Namespace) -> Made:
    """Run the demo without its tuning."""
    with TemporaryDirectory() as name:
        file = Path(name) / "demo.json"
        run_module("policybridge_demo", "--tune", 0, "--json", file)
        told = json.loads(file.read_bytes())
    figures = {key: figure for name, sums in told["libraries"].items() for key, figure in _sums(name, sums)}
    return Made("make demo", figures | dict(_sums("all", told["total"])), _zig(), decided="inliner")


def _zig() -> str:
    version = subprocess.run([*module("ziglang"), "version"], capture_output=True, text=True, check=True).stdout
    return f"zig {version.strip()}"


def _sums(name: str, sums: Mapping[str, float]) -> Iterator[tuple[str, Figure]]:
    yield f"{name}.modules", Figure(sums["modules"], "modules")
    yield f"{name}.decisions", Figure(sums["decisions"], "decisions")
    yield f"{name}.plain-text", Figure(sums["plain_text"], "bytes")
    yield f"{name}.text", Figure(sums["text"], "bytes")
    yield f"{name}.change", Figure(100 * (sums["text"] / sums["plain_text"] - 1), "%", 2, signed=True)


def packages(options: Namespace) -> Made:
    """Build Debian packages with tuned stores, run their tests, and count instructions: theirs, and the compiler's.

    What an earlier call has built in ``--packages`` is not built again.
    """
    places = ["--plugins", options.plugins, "--work", options.packages]
    figures: dict[str, Figure] = {}
    sums: dict[str, Counter[str]] = {"c": Counter(), "cpp": Counter()}
    with TemporaryDirectory() as name:
        built, compiles = Path(name) / "built.json", Path(name) / "compiles.json"
        run_module("tests.measures.packages", *places, "--json", built)
        run_module("tests.measures.compile_instructions", *places, "--json", compiles)
        for package, its in json.loads(built.read_bytes()).items():
            plain, tuned, key = its["plain"], its["tuned"], its["language"].replace("+", "p")
            figures |= dict(_linked(package, plain, tuned))
            figures[f"{package}.instructions"] = Figure(tuned["instructions"] / plain["instructions"], digits=3)
            sums[key].update(packages=1, **{f"{side}.{what}": its[side][what] for side in _SIDES for what in _LINKED})
        for package, counts in json.loads(compiles.read_bytes()).items():
            for way in ("plugin", "store"):
                figures[f"{package}.{way}"] = Figure(counts[way] / counts["plain"], digits=3)
    for key, its in sums.items():
        plain, tuned = ({what: its[f"{side}.{what}"] for what in _LINKED} for side in _SIDES)
        figures |= dict(_linked(key, plain, tuned)) if its else {}
        figures[f"{key}.packages"] = Figure(its["packages"], "packages")
    return Made("python -m tests.measures.packages && python -m tests.measures.compile_instructions", figures, clang())


def _linked(key: str, plain: Mapping[str, int], tuned: Mapping[str, int]) -> Iterator[tuple[str, Figure]]:
    for what in _LINKED:
        yield f"{key}.{what}", Figure(100 * (tuned[what] / plain[what] - 1), "%", 2, signed=True)


def link_time(options: Namespace) -> Made:
    """Link a program with LTO after the bundled policy has decided before linking.

    What an earlier call has built in ``--linked`` is not built again.
    """
    command = ["tests.measures.link_time", *_named(_LINKED_BY_POLICY)]
    changes = {key: _change(sizes["none"], sizes["inliner pre-link"]) for key, sizes in _texts(options, command)}
    figures = {f"{key}.pre-link": change for key, change in changes.items()}
    return Made(f"python -m {' '.join(command)} --work DIR", figures, clang(), decided="inliner")


def packages_policy(options: Namespace) -> Made:
    """Build Debian packages with the bundled policy, without LTO and with it, and run their tests.

    What an earlier call has built in ``--packages`` is not built again.
    """
    places = ["--plugins", options.plugins, "--work", options.packages]
    figures: dict[str, Figure] = {}
    for kind in _KINDS:
        with TemporaryDirectory() as name:
            built = Path(name) / "built.json"
            run_module("tests.measures.packages_policy", "--lto", kind, *places, "--json", built)
            figures |= dict(_by_policy(kind, json.loads(built.read_bytes())))
    return Made("python -m tests.measures.packages_policy --lto KIND --work DIR", figures, clang(), decided="size")


def _by_policy(kind: str, measured: Mapping[str, Any]) -> Iterator[tuple[str, Figure]]:
    held_out: dict[str, dict[str, Any]] = {}
    for name, its in measured.items():
        if its["part"] == "held-out":
            held_out.setdefault(f"{its['language'].replace('+', 'p')}.held-out", {})[name] = its
    for group, packages in held_out.items():
        yield f"{group}.packages", Figure(len(packages), "packages")
        for what in _BY_POLICY:
            ratios = {name: its["policy"][what] / its["plain"][what] for name, its in packages.items()}
            yield f"{group}.{kind}.{what}", geometric_mean(ratios)
    for what in _BY_POLICY:
        worst = max(its["policy"][what] / its["plain"][what] for its in measured.values())
        yield f"worst.{kind}.{what}", Figure(100 * (worst - 1), "%", 2, signed=True)


def programs_policy(options: Namespace) -> Made:
    """Check packages' programs for growth by the bundled policies, without LTO.

    What an earlier call has built in ``--built`` is not built again.
    """
    places = ["--plugins", options.plugins, "--work", options.built]
    figures: dict[str, Figure] = {}
    with TemporaryDirectory() as name:
        built = Path(name) / "built.json"
        run_module("tests.measures.programs_policy", *places, "--json", built)
        measured = json.loads(built.read_bytes())
    for language, texts in _by_language(measured).items():
        figures |= dict(_counted(language, texts))
    return Made("python -m tests.measures.programs_policy --work DIR", figures, clang(), decided="size")


def _by_language(measured: Mapping[str, Any]) -> Mapping[str, Mapping[str, tuple[int, int]]]:
    """Give the bytes of text of each program, plain and with the policy, by the language of its package."""
    apart: dict[str, dict[str, tuple[int, int]]] = {}
    for package, its in measured.items():
        texts = apart.setdefault(its["language"].replace("+", "p"), {})
        for program in its["programs"]:
            texts[f"{package}/{program['name']}"] = program["before"]["text"], program["after"]["text"]
    return apart


def _counted(language: str, texts: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, Figure]]:
    counts = Counter(
        "larger" if after > before else "equal" if after == before else "smaller" for before, after in texts.values()
    )
    yield f"{language}.programs", Figure(len(texts), "programs")
    for what in ("smaller", "equal", "larger"):
        yield f"{language}.{what}", Figure(counts[what], "programs")
    ratios = {name: after / before for name, (before, after) in texts.items()}
    yield f"{language}.text", geometric_mean(ratios)
    yield f"{language}.worst", Figure(100 * (max(ratios.values()) - 1), "%", 2, signed=True)


def link_tuned(options: Namespace) -> Made:
    """Link programs with LTO by stores that were tuned for them, with builds as those of `link_time`."""
    command = ["tests.measures.link_time", "--tuned", *_named(_LINKED_BY_STORE)]
    figures = {key: _change(sizes["none"], sizes["tuned"]) for key, sizes in _texts(options, command)}
    return Made(f"python -m {' '.join(command)} --work DIR", figures, clang())


def rust(options: Namespace) -> Made:
    """Build Rust programs, which LLD links plainly and by the bundled policy, with builds as those of `link_time`."""
    command = ["tests.measures.rust"]
    figures: dict[str, Figure] = {}
    for key, sizes in _texts(options, command):
        figures[key] = _change(sizes["none"], sizes["size"])
        if key.endswith(".fat"):
            figures[f"{key}.rustc"] = _change(sizes["rustc"], sizes["size"])
    return Made(f"python -m {' '.join(command)} --work DIR", figures, clang(), decided="size")


def _named(programs: Sequence[str]) -> list[str]:
    return [word for name in programs for word in ("--program", name)]


def _texts(options: Namespace, command: Sequence[str]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Give the bytes of text of each program and kind of LTO, by the way that it was built."""
    there = module(*command, "--work", options.linked)
    told = json.loads(subprocess.run(there, stdout=subprocess.PIPE, text=True, check=True).stdout)
    for program, modes in told.items():
        for mode, sizes in modes.items():
            yield f"{program}.{mode}", {way: size["text"] for way, size in sizes.items()}


def _change(before: int, after: int) -> Figure:
    return Figure(100 * (after / before - 1), "%", 2, signed=True)


def geometric_mean(ratios: Mapping[str, float]) -> Figure:
    """Give the geometric mean, with the interval of a bootstrap over packages, and over programs named PACKAGE/PATH."""
    # The mean of logarithms; `change` tells each of its values less 1.
    logarithms = [math.log(ratio) for ratio in ratios.values()]
    packages = [name.partition("/")[0] for name in ratios]
    found = change([1.0] * len(ratios), logarithms, packages).mean
    assert found is not None  # noqa: S101 - each is compared with 1
    mean, low, high = (100 * math.expm1(each + 1) for each in (found.value, found.low, found.high))
    return Figure(mean, "%", 2, signed=True, low=low, high=high)

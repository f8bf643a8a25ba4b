"""Counts the lines of the product by package, now and at an earlier commit: ``python -m tests.measures.product_lines``.

Counted as by wc are Python, C and C++ outside tests/ and docs/, without stubs and without the tests and fuzzers of the
native clients. product_lines.toml lists the files of features that came after that commit. The rest is the same product
then and now.
"""

import argparse
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

SINCE: Final = "c431464091"
"""The last commit before the work on issue 25."""

_FEATURES: Final = Path(__file__).with_suffix(".toml")
_CODE: Final = re.compile(r".+\.(py|c|cpp|h)")
_NOT_PRODUCT: Final = re.compile(r"(tests|docs)/.*|.*_pb2(_grpc)?\.py|clients/c(pp)?/(.+/)?(tests|fuzzing)/.*")


def lines_of(repository: Path, commit: str) -> Mapping[str, int]:
    """Give the lines of each product file of a commit."""
    listed = _git(repository, "ls-tree", "-r", "-z", commit).decode().split("\0")[:-1]
    names = {path: head.split()[2] for head, _, path in (row.partition("\t") for row in listed) if _is_product(path)}
    data = _git(repository, "cat-file", "--batch", given="".join(f"{name}\n" for name in names.values()).encode())
    return dict(zip(names, _counted(data), strict=True))


def _is_product(path: str) -> bool:
    return bool(_CODE.fullmatch(path)) and not _NOT_PRODUCT.fullmatch(path)


def _counted(data: bytes) -> Iterator[int]:
    start = 0
    while start < len(data):
        head = data.index(b"\n", start)
        end = head + 1 + int(data[start:head].split()[2])
        yield data.count(b"\n", head + 1, end)
        start = end + 1


def _git(repository: Path, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", repository, *words], input=given, stdout=subprocess.PIPE, check=True).stdout


def package_of(path: str) -> str:
    """Give the folder by which a file is counted: two levels below clients/, else one."""
    return "/".join(path.split("/")[: 2 if path.startswith("clients/") else 1])


def by_feature(lines: Mapping[str, int], features: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
    """Give the lines of each feature's files."""
    return {
        feature: sum(count for path, count in lines.items() if any(fnmatchcase(path, each) for each in patterns))
        for feature, patterns in features.items()
    }


def main(words: Sequence[str] | None = None) -> int:
    """Print a table of packages, and one of features."""
    parser = argparse.ArgumentParser(prog="python -m tests.measures.product_lines", description=__doc__)
    parser.add_argument(
        "--since", default=SINCE, metavar="COMMIT", help="compare with this commit (default: %(default)s)"
    )
    parser.add_argument("--commit", default="HEAD", help="count it (default: %(default)s)")
    options = parser.parse_args(words)
    then, now = (lines_of(Path.cwd(), commit) for commit in (options.since, options.commit))
    features: Mapping[str, Sequence[str]] = tomllib.loads(_FEATURES.read_text())["features"]
    patterns = [each for its in features.values() for each in its]
    new = {path: count for path, count in now.items() if any(fnmatchcase(path, each) for each in patterns)}
    columns = [_sums(lines) for lines in (then, now, new)]
    print(f"{'package':<16} {options.since[:8]:>8} {options.commit[:8]:>8} {'features':>8} {'the rest':>8}")
    for package in [*sorted({*map(package_of, (*then, *now))}), "all"]:
        before, after, added = (column[package] for column in columns)
        print(f"{package:<16} {before:>8,} {after:>8,} {added:>8,} {after - added:>8,}")
    for feature, count in by_feature(now, features).items():
        print(f"{count:>8,} {feature}")
    return 0


def _sums(lines: Mapping[str, int]) -> Counter[str]:
    counted = Counter(all=sum(lines.values()))
    for path, count in lines.items():
        counted[package_of(path)] += count
    return counted


if __name__ == "__main__":
    raise SystemExit(main())

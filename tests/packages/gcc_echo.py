"""Compile real sources with stock GCC and with a policy that echoes GCC's own decision, and compare the objects.

Needs gcc-12, gcc-12-plugin-dev, dpkg-dev, cmake and ninja. ``make gcc-echo`` runs it: it fetches Debian's sources of
the packages and builds the plugin. One line a package and level is printed; any difference makes the status 1.
"""

import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from json import loads
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_train.corpus.debian.apt import Apt

ROOT: Final = Path(__file__).parents[2]
WORK: Final = Path(os.environ.get("WORK", ROOT / ".cache" / "gcc-echo"))
PACKAGES: Final = ("zlib", "bzip2", "tinyxml2", "pugixml", "lz4", "zopfli", "libzstd")
LEVELS: Final = ("-O2", "-O3 -g", "-O2 -funroll-loops", "-O3 -funroll-all-loops")
COMPILERS: Final = {".c": "gcc-12", ".cpp": "g++-12", ".cc": "g++-12"}

ECHO: Final = """
class Policy:
    def evaluate(self, observation, session):
        return observation["unrolling_default"]
"""


def fetch(packages: Sequence[str]) -> None:
    """Unpack Debian's sources of the packages into WORK."""
    apt = Apt.prepare(WORK / "apt")
    for package in packages:
        if not (WORK / package).is_dir():
            words = ["dpkg-source", "--no-check", "-x", apt.download(package, WORK).name, package]
            subprocess.run(words, cwd=WORK, check=True, capture_output=True)


def build_plugin() -> Path:
    """Build the plugin; give its path."""
    built = ROOT / ".cache" / "native"
    configure: list[str | Path] = ["cmake", "-S", ROOT / "clients", "-B", built, "-G", "Ninja", "-DPOLICYBRIDGE_GCC=12"]
    build: list[str | Path] = ["cmake", "--build", built, "--target", "policybridge_unroll_gcc12"]
    for command in (configure, build):
        subprocess.run(command, check=True, capture_output=True)
    return built / "lib" / "policybridge_unroll_gcc12.so"


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve the echo; give the server's address."""
    policy = folder / "echo" / "1" / "policy.py"
    policy.parent.mkdir(parents=True)
    policy.write_text(ECHO)
    (folder / "echo" / "policy.toml").write_text('backend = "python"\n')
    address = f"socket:{folder}/server.sock"
    listen = ["--repository", str(folder), "--allow-python", "--socket", address.removeprefix("socket:")]
    command = [sys.executable, "-m", "policybridge_client.cli", "serve", *listen]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            if not (server.stdout and server.stdout.readline().startswith("ready")):
                sys.exit("the server does not start")
            yield address
        finally:
            server.terminate()


def compare(source: Path, root: Path, level: str, plugin: Path, address: str) -> Counter[str]:
    """Compile one source both ways, and count the outcome."""
    includes = [f"-I{folder}" for folder in (root, root / "include", root / "src", root / "lib", root / "lib/common")]
    # With -g, GCC writes its options into the object, the plugin's among them, unless told not to.
    flags = ["-w", "-gno-record-gcc-switches", "-D_FILE_OFFSET_BITS=64", *includes, *level.split()]
    with TemporaryDirectory() as made:
        plain, echoed, stats = (Path(made) / name for name in ("plain.o", "echo.o", "stats"))
        command = [COMPILERS[source.suffix], *flags, "-c", str(source), "-o"]
        if subprocess.run([*command, plain], capture_output=True, check=False).returncode:
            return Counter(unusable=1)
        names = {"SERVER": address, "POLICY": "echo", "FALLBACK": "error", "STATS": str(stats)}
        environment = {**os.environ, **{f"POLICYBRIDGE_{name}": value for name, value in names.items()}}
        subprocess.run([*command, echoed, f"-fplugin={plugin}"], env=environment, check=True)
        same = plain.read_bytes() == echoed.read_bytes()
        if not same:
            warnings.warn(f"{source} differs at {level}", stacklevel=1)
        return Counter(files=1, same=int(same), decisions=loads(stats.read_text())["decisions"])


def main(packages: Sequence[str]) -> int:
    """Compare every source of the packages at every level."""
    WORK.mkdir(parents=True, exist_ok=True)
    fetch(packages)
    plugin = build_plugin()
    total: Counter[str] = Counter()
    with TemporaryDirectory(prefix="pb-") as folder, serving(Path(folder)) as address:
        for package in packages:
            root = WORK / package
            sources = sorted(path for path in root.rglob("*") if path.suffix in COMPILERS and path.is_file())
            for level in LEVELS:
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    counts = pool.map(lambda source: compare(source, root, level, plugin, address), sources)  # noqa: B023
                    found = sum(counts, Counter[str]())
                total += found
                print(
                    f"{package} {level}: {found['same']} of {found['files']} objects the same,"
                    f" {found['decisions']:,} decisions, {found['unusable']} files left out",
                    flush=True,
                )
    print(f"in all {total['same']} of {total['files']} objects the same, {total['decisions']:,} decisions")
    return 0 if total["same"] == total["files"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PACKAGES))

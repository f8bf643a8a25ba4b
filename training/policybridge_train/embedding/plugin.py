"""A plugin for a stock LLVM with the policy inside: the sources of our plugin, and C in the server's place."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_client.decisions.passes import ALTERNATIVES
from policybridge_core.errors import PreconditionError, UnsupportedError
from policybridge_serdes import ElementType, TensorSpec
from policybridge_train.embedding.c_files import write_header, write_source
from policybridge_train.embedding.interface import Embedded
from policybridge_train.embedding.text import quoted
from policybridge_train.embedding.toolchain import Toolchain
from policybridge_train.tasks.inline import InlineForSize
from policybridge_train.tasks.passes import PassesForSize
from policybridge_train.tasks.tiling import Tiling

_PREFIX: Final = "embedded_policy"
_PACKAGES: Final = {"cmake": "cmake", "ninja": "ninja-build"}
_CHECKOUT: Final = Path(__file__).parents[3] / "clients"
_OPTIONS: Final = ("-DPOLICYBRIDGE_GRPC=OFF", "-DPOLICYBRIDGE_ONNX=OFF", "-DPOLICYBRIDGE_LAUNCHER=OFF")
_LIBRARIES: Final = ("policybridge_plugin", "policybridge_internal")


@dataclass(frozen=True)
class Question:
    """The decisions of one kind, as a compiler asks for them.

    Attributes:
        zero: what an advice of 0 means.
        features: by name.
        varying: further features, which it has at some options and in shapes that these give.
        choices: how many the advice can name; ``None``: any number.

    """

    zero: str
    features: Mapping[str, TensorSpec]
    varying: tuple[str, ...] = ()
    choices: int | None = None


@dataclass(frozen=True)
class Host:
    """A kind of compiler that a plugin is for.

    Attributes:
        majors: for which there is a plugin.
        sources: of the plugin, in the folder ``clients``.
        library: linked with the policy; its name ends with the major.
        entry: the function that the compiler calls.
        variable: of CMake, with the majors.
        header: a header that the plugin needs, in LLVM's folder of headers, and the package that has it.
        questions: by the name of the advice; the first is for policies that declare no kind.

    """

    majors: tuple[str, ...]
    sources: str
    library: str
    entry: str
    variable: str
    header: tuple[str, str]
    questions: Mapping[str, Question]


def _named(*names: str) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, ElementType.INT64) for name in names)


LLVM: Final = Host(
    majors=("19", "22"),
    sources="llvm",
    library="policybridge-embedded",
    entry="llvmGetPassPluginInfo",
    variable="POLICYBRIDGE_LLVM",
    header=("llvm/IR/Module.h", "llvm-{}-dev"),
    questions={
        InlineForSize.advice.name: Question(
            "0 leaves a call",
            {spec.name: spec for spec in (*InlineForSize.features, *_named("site", "caller", "callee"))},
            varying=("callee_embedding", "caller_embedding"),
        ),
        PassesForSize.advice.name: Question(
            "0 keeps LLVM's passes",
            {spec.name: spec for spec in (*_named("function"), *PassesForSize.features)},
            choices=len(ALTERNATIVES),
        ),
    },
)
MLIR: Final = Host(
    majors=("22",),
    sources="mlir",
    library="policybridge-mlir-embedded",
    entry="mlirGetPassPluginInfo",
    variable="POLICYBRIDGE_MLIR",
    header=("mlir/Pass/Pass.h", "libmlir-{}-dev"),
    questions={
        Tiling.advice.name: Question(
            "the place of a size", {spec.name: spec for spec in (*_named("operation"), *Tiling.features)}
        )
    },
)


@dataclass(frozen=True)
class Building:
    """How a plugin is built.

    Attributes:
        toolchain: the compilers.
        growth_limit: how much the policy may add to a module, as a factor of its instructions.
        build: where the plugin's own part is built and kept; absent: a folder of the user's cache.
        sources: the folder ``clients`` of our source tree; absent: that of this checkout.

    """

    toolchain: Toolchain
    growth_limit: float
    build: Path | None = None
    sources: Path | None = None


def build_plugin(policies: Sequence[Embedded], host: Host, major: str, output: Path, building: Building) -> None:
    """Write the plugin for a ``major`` of its host to ``output``, which is replaced as a whole.

    ``policies`` are the models of one version, for different kinds of decisions.

    Raises:
        UnsupportedError: the compiler does not ask for the policy's decisions, or the advice is not one int64, or the
            policy needs a feature that the compiler does not have.
        PreconditionError: a tool, a header or the plugin's sources are missing, or a compiler fails.

    """
    models = [_Model(policy, f"{_PREFIX}{f'_{n}' * (n > 0)}", host, major) for n, policy in enumerate(policies)]
    code = "\n".join([model.code() for model in models] + [_table(models, building.growth_limit)])
    tools = building.toolchain
    sources = _sources(building.sources, host)
    libraries = _build_libraries(tools, sources, building.build or _cache(tools, sources, host, major), host, major)
    with tempfile.TemporaryDirectory(prefix="pb-embed-") as scratch:
        folder = Path(scratch)
        for model in models:
            (folder / model.header).write_text(write_header(model.policy, model.prefix))
        (folder / "policy.c").write_text(code)
        tools.compile_c(["-c", "policy.c", "-o", "policy.o"], folder)
        exports = f"-Wl,--version-script={sources / 'cpp' / 'llvm' / 'exports.map'}"
        entry = (f"-Wl,-u,{host.entry}", "-Wl,-s")
        words = ["-shared", "-o", "plugin.so", "policy.o", *entry, *map(str, libraries), exports]
        tools.run([tools.cxx, *words], folder)
        _move(folder / "plugin.so", output)


class _Model:
    """A model in the plugin, and the names of its C."""

    def __init__(self, policy: Embedded, prefix: str, host: Host, major: str) -> None:
        self.policy = policy
        self.prefix = prefix
        self.header = f"{prefix}.h"
        self.kinds = policy.version.config.decides or tuple(host.questions)[:1]
        compiler = f"{host.sources}-{major}"
        for kind in self.kinds:
            if kind not in host.questions:
                raise UnsupportedError(
                    f"{policy.version} decides {kind}; {compiler} asks for {', '.join(host.questions)}"
                )
            _check_question(policy, host.questions[kind], compiler)

    def code(self) -> str:
        """Write the definitions, and functions of one type for all models."""
        prefix = self.prefix
        return f"""{write_source(self.policy, prefix, self.header)}
static void {prefix}_fill_untyped(void *observation) {{ {prefix}_fill(observation); }}
static int {prefix}_decide_untyped(const void *observation, void *advice) {{
  return {prefix}_decide(observation, advice);
}}
"""

    def rows(self) -> list[str]:
        """Give the model's rows of the table of kinds."""
        prefix = self.prefix
        features = f"(const struct {_PREFIX}_tensor *){prefix}_features, {len(self.policy.members)}"
        functions = f"{prefix}_fill_untyped, {prefix}_decide_untyped, {prefix}_status_text"
        size = f"sizeof(struct {prefix}_observation)"
        return [f"  {{{quoted(kind)}, {features}, {size}, {functions}}}" for kind in self.kinds]


def _check_question(policy: Embedded, question: Question, compiler: str) -> None:
    """Refuse a policy that the plugin would refuse in the compiler, after minutes of building."""
    advice = policy.advice
    if advice.type is not ElementType.INT64 or advice.count != 1:
        raise UnsupportedError(f"{policy.version} gives {advice}; the plugin takes one int64_t: {question.zero}")
    if question.choices is not None and policy.choices > question.choices:
        raise UnsupportedError(
            f"{policy.version} chooses among {policy.choices}; {compiler} has the numbers 0 to {question.choices - 1}"
        )
    for feature in policy.members:
        if feature.spec.name in question.varying:
            continue
        wanted, asked = feature.spec, question.features.get(feature.spec.name)
        if asked is None and feature.fill is None:
            raise UnsupportedError(
                f"{policy.version} needs {wanted}, which {compiler} does not have; a question has "
                f"{', '.join(question.features)}"
            )
        if asked is not None and (asked.type, asked.count) != (wanted.type, wanted.count):
            raise UnsupportedError(f"{policy.version} needs {wanted}; a question of {compiler} has {asked}")


def _table(models: Sequence[_Model], growth_limit: float) -> str:
    """Write the tables of kinds and of the scope, and the policy's name; embedded_policy_symbols.h declares them."""
    stored = models[0].policy.version
    version = stored.policy
    rows = [row for model in models for row in model.rows()]
    table = ",\n".join(rows)
    scope = [
        f"  {{{quoted(label)}, {quoted(value)}}}" for label, values in stored.config.scope.items() for value in values
    ]
    scopes = ",\n".join(scope or ["  {0, 0}"])
    return f"""
struct {_PREFIX}_kind {{
  const char *name;
  const struct {_PREFIX}_tensor *features;
  size_t feature_count, observation_size;
  void (*fill)(void *);
  int (*decide)(const void *, void *);
  const char *(*status_text)(int);
}};
struct {_PREFIX}_label {{
  const char *label, *value;
}};
extern const struct {_PREFIX}_kind {_PREFIX}_kinds[];
extern const struct {_PREFIX}_label {_PREFIX}_scope[];
extern const size_t {_PREFIX}_scope_count;
extern const size_t {_PREFIX}_kind_count;
extern const char {_PREFIX}_name[], {_PREFIX}_digest[];
extern const uint64_t {_PREFIX}_version;
extern const double {_PREFIX}_growth_limit;

const struct {_PREFIX}_kind {_PREFIX}_kinds[] = {{
{table}
}};
const size_t {_PREFIX}_kind_count = {len(rows)};
const struct {_PREFIX}_label {_PREFIX}_scope[] = {{
{scopes}
}};
const size_t {_PREFIX}_scope_count = {len(scope)};
const char {_PREFIX}_name[] = {quoted(version.name)}, {_PREFIX}_digest[] = {quoted(version.digest)};
const uint64_t {_PREFIX}_version = {version.version};
const double {_PREFIX}_growth_limit = {"PB_INFINITY" if growth_limit == float("inf") else repr(growth_limit)};
"""


def _sources(given: Path | None, host: Host) -> Path:
    folder = (given or _CHECKOUT).absolute()
    if not (folder / "cpp" / host.sources / "embedded_advisor.cpp").is_file():
        raise PreconditionError(
            f"the plugin's sources are not in {folder}; name the source tree's folder clients by --sources"
        )
    return folder


def _cache(tools: Toolchain, sources: Path, host: Host, major: str) -> Path:
    """Give the folder for these compilers and this content of the sources, so that others are built anew."""
    content = hashlib.sha256(f"{sources} {tools.c} {tools.cxx}".encode())
    for file in sorted((sources / "cpp").rglob("*")):
        if file.suffix in (".cpp", ".h", ".txt", ".map"):
            content.update(file.read_bytes())
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "policybridge" / "embed" / f"{host.sources}-{major}-{content.hexdigest()[:16]}"


def _build_libraries(tools: Toolchain, sources: Path, folder: Path, host: Host, major: str) -> list[Path]:
    """Build what does not depend on the policy; a later call finds it built."""
    for tool, package in _PACKAGES.items():
        if shutil.which(tool) is None:
            raise PreconditionError(f"{tool} is not installed (Debian: {package}); the plugin is built with it")
    _check_headers(host, major)
    target = f"{host.library}-{major}"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        if not (folder / "build.ninja").is_file():
            compilers = (f"-DCMAKE_C_COMPILER={tools.c}", f"-DCMAKE_CXX_COMPILER={tools.cxx}")
            where = ["cmake", "-S", str(sources), "-B", str(folder), "-G", "Ninja"]
            tools.run([*where, *compilers, f"-D{host.variable}={major}", *_OPTIONS])
        tools.run(["cmake", "--build", str(folder), "--target", target, *_LIBRARIES])
    return [folder / "lib" / f"lib{name}.a" for name in (target, *_LIBRARIES)]


def _check_headers(host: Host, major: str) -> None:
    header, package = host.header[0], host.header[1].format(major)
    asked = shutil.which(f"llvm-config-{major}")
    if asked is None:
        raise PreconditionError(f"LLVM's headers are not installed (Debian: llvm-{major}-dev)")
    folder = subprocess.run([asked, "--includedir"], capture_output=True, text=True, check=False).stdout.strip()
    if not (Path(folder) / header).is_file():
        raise PreconditionError(f"{header} is not in {folder} (Debian: {package})")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from building in the folder meanwhile."""
    with (folder / ".embed.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _move(made: Path, output: Path) -> None:
    """Put the file in its place at once: a compiler may have the old one loaded. A device is written to instead."""
    if output.exists() and not output.is_file():
        shutil.copyfile(made, output)
        return
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        shutil.copy(made, beside)
        beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)

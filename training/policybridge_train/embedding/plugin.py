"""A plugin for a stock LLVM with the policy inside: our plugin's own part, and C in the server's place."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from policybridge_core.errors import UnsupportedError
from policybridge_serdes import ElementType
from policybridge_train.embedding.c_files import write_header, write_source
from policybridge_train.embedding.hosts import Host, Question
from policybridge_train.embedding.interface import Embedded
from policybridge_train.embedding.parts import Building, built_parts, installed_parts
from policybridge_train.embedding.text import quoted

_PREFIX: Final = "embedded_policy"


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
    libraries, exports = installed_parts(building, host, major) or built_parts(building, host, major)
    with tempfile.TemporaryDirectory(prefix="pb-embed-") as scratch:
        folder = Path(scratch)
        for model in models:
            (folder / model.header).write_text(write_header(model.policy, model.prefix))
        (folder / "policy.c").write_text(code)
        tools.compile_c(["-c", "policy.c", "-o", "policy.o"], folder)
        options = (f"-Wl,-u,{host.entry}", "-Wl,-s", f"-Wl,--version-script={exports}")
        words = ["-shared", "-o", "plugin.so", "policy.o", *map(str, libraries), *options]
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
    scope = _scope_rows(models)
    scopes = ",\n".join(scope or ["  {0, 0, 0}"])
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
  const char *kind, *label, *value;
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


def _scope_rows(models: Sequence[_Model]) -> list[str]:
    """Give the rows of the scope: what all models have in common without a kind, the rest with that of its model."""
    scopes = [model.policy.version.config.scope for model in models]
    shared = {label: values for label, values in scopes[0].items() if all(each.get(label) == values for each in scopes)}
    named = [("", shared)]
    for model, scope in zip(models, scopes, strict=True):
        own = {label: values for label, values in scope.items() if label not in shared}
        named += [(kind, own) for kind in model.kinds]
    return [
        f"  {{{quoted(kind)}, {quoted(label)}, {quoted(value)}}}"
        for kind, scope in named
        for label, values in scope.items()
        for value in values
    ]


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

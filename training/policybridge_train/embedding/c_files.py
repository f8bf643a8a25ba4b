"""The header and the source of a policy in C99."""

from collections.abc import Sequence
from typing import Final

from policybridge_core.version import version
from policybridge_forms import Scores
from policybridge_train.embedding import arithmetic
from policybridge_train.embedding.body import Body
from policybridge_train.embedding.instructions import write_instructions
from policybridge_train.embedding.interface import Embedded, Feature
from policybridge_train.embedding.rows import Row
from policybridge_train.embedding.text import c_type, comment, identifier, included, literal, quoted

MARK: Final = "policybridge-embedded"
"""The start of the identity in each file, for strings(1)."""

_STATUS: Final = {
    "OK": "there is advice",
    "NAN": "the policy gave NaN, or a negative probability",
    "NO_LEGAL_CHOICE": "the mask allows no choice at all",
    "ILLEGAL_CHOICE": "the policy's own choice is not legal",
    "BAD_INDEX": "an index is beyond its table",
}


def prefix_of(policy: Embedded, given: str | None) -> str:
    """Give what all names in the files begin with."""
    return identifier(given or policy.version.policy.name)


def write_header(policy: Embedded, prefix: str) -> str:
    """Write the declarations: the observation, the advice, and the functions."""
    upper = prefix.upper()
    statuses = "\n".join(
        f"  {upper}_{name} = {number}{',' if number + 1 < len(_STATUS) else ''} /* {text} */"
        for number, (name, text) in enumerate(_STATUS.items())
    )
    return f"""\
/* {comment(policy.identity)}
   Made by policybridge {version()}; do not edit. */
#ifndef {upper}_POLICY_H
#define {upper}_POLICY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* The features at one decision. */
struct {prefix}_observation {{
{_members(policy.members)}
}};

struct {prefix}_advice {{
  {c_type(policy.advice.type.dtype)} {identifier(policy.advice.name)}[{max(policy.advice.count, 1)}];
}};

enum {prefix}_status {{
{statuses}
}};

/* One feature of the observation. */
struct {prefix}_tensor {{
  const char *name;
  const char *type;  /* as LLVM writes it: int64_t, float, ... */
  size_t offset;     /* in struct {prefix}_observation, in bytes */
  size_t size;       /* in bytes */
  int has_default;   /* whether {prefix}_fill gives it a value that stands for one that is not known */
}};

extern const struct {prefix}_tensor {prefix}_features[];
extern const size_t {prefix}_feature_count;
extern const size_t {prefix}_observation_size;
extern const size_t {prefix}_advice_size;

/* The element type of the advice. */
extern const char {prefix}_advice_type[];

/* "{MARK}: NAME@VERSION DIGEST" */
extern const char {prefix}_identity[];

/* Set every feature to its default, or to 0 where it has none. */
void {prefix}_fill(struct {prefix}_observation *observation);

/* Decide. Gives a member of enum {prefix}_status; without {upper}_OK the advice is left as it is. It needs no memory
   but the stack, changes nothing else, and may be called by several threads at once. */
int {prefix}_decide(const struct {prefix}_observation *observation, struct {prefix}_advice *advice);

/* Describe a status. */
const char *{prefix}_status_text(int status);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _members(features: Sequence[Feature]) -> str:
    if not features:
        return "  char unused;"
    lines = []
    for each in features:
        kind, size = c_type(each.spec.type.dtype), max(each.spec.count, 1)
        lines.append(f"  {kind} {each.member}[{size}];" + _note(each))
    return "\n".join(lines)


def _note(feature: Feature) -> str:
    return "" if feature.member == feature.spec.name else f" /* {comment(feature.spec.name)} */"


def write_source(policy: Embedded, prefix: str, include: str | None) -> str:
    """Write the definitions; ``include`` is the header's name, absent where the header stands before them.

    Raises:
        UnsupportedError: its form cannot be written in C.

    """
    body = Body(prefix)
    result = write_instructions(policy, body)
    if policy.content.head.scores is Scores.ADVICE:
        _advise(policy, body, result)
    else:
        _choose(policy, body, result)
    body.line(f"return {prefix.upper()}_OK;")
    unused = "" if policy.members and any("observation->" in line for line in body.lines) else "  (void)observation;\n"
    statements = "\n".join(body.lines)
    parts = [
        f"/* {comment(policy.identity)}\n   Made by policybridge {version()}; do not edit. */",
        f"#include {included(include)}" if include else "",
        "#include <string.h>\n",
        arithmetic.MACROS,
        _description(policy, prefix),
        arithmetic.functions(body.helpers, prefix),
        *body.constants,
        *body.functions,
        f"int {prefix}_decide(const struct {prefix}_observation *observation, struct {prefix}_advice *advice) {{\n"
        f"{unused}{statements}\n}}\n",
    ]
    return "\n".join(part for part in parts if part)


def _advise(policy: Embedded, body: Body, result: Row) -> None:
    """Write what gives the output as the advice; NaN is none."""
    name, upper = identifier(policy.advice.name), body.prefix.upper()
    read = result["i"]
    if policy.advice.type.dtype.kind == "f":
        with body.loop("i", policy.advice.count):
            body.line(f"if ({read} != {read}) return {upper}_NAN;")
    with body.loop("i", policy.advice.count):
        body.line(f"advice->{name}[i] = {read};")


def _choose(policy: Embedded, body: Body, result: Row) -> None:
    """Write the head without exploration: the first of the best legal choices."""
    scores, upper, count = policy.content.head.scores, body.prefix.upper(), policy.choices
    legal = f"observation->{policy.mask.member}[i] != 0" if policy.mask else None
    advice = f"advice->{identifier(policy.advice.name)}[0] = ({c_type(policy.advice.type.dtype)})"
    if scores is Scores.CHOICE:
        body.line(f"int64_t choice = (int64_t){result['0']};")
        if policy.mask:
            body.line("int any = 0;")
            with body.loop("i", count):
                body.line(f"if ({legal}) any = 1;")
            body.line(f"if (!any) return {upper}_NO_LEGAL_CHOICE;")
        body.line(f"if (choice < 0 || choice >= {count}) return {upper}_ILLEGAL_CHOICE;")
        if policy.mask:
            body.line(f"if (observation->{policy.mask.member}[choice] == 0) return {upper}_ILLEGAL_CHOICE;")
        body.line(f"{advice}choice;")
        return
    body.line(f"size_t best = {count};")
    score = result["i"]
    with body.loop("i", count):
        if legal:
            body.line(f"if (!({legal})) continue;")
        wrong = f"{score} != {score}" + (f" || {score} < 0" if scores is Scores.PROBABILITIES else "")
        body.line(f"if ({wrong}) return {upper}_NAN;")
        body.line(f"if (best == {count} || {score} > {result['best']}) best = i;")
    body.line(f"if (best == {count}) return {upper}_NO_LEGAL_CHOICE;")
    body.line(f"{advice}best;")


def _description(policy: Embedded, prefix: str) -> str:
    """Write the tables for programs: names, types, defaults, the identity."""
    upper = prefix.upper()
    rows = [
        f"  {{{quoted(each.spec.name)}, {quoted(each.spec.type.value)}, "
        f"offsetof(struct {prefix}_observation, {each.member}), {each.spec.size}, {int(each.fill is not None)}}}"
        for each in policy.members
    ] or ["  {0, 0, 0, 0, 0}"]
    table = ",\n".join(rows)
    cases = "\n".join(f"    case {upper}_{name}: return {quoted(text)};" for name, text in _STATUS.items())
    fills = "\n".join(_fill(each) for each in policy.members if each.fill is not None)
    return f"""\
const char {prefix}_identity[] = {quoted(f"{MARK}: {policy.identity}")};
const char {prefix}_advice_type[] = {quoted(policy.advice.type.value)};

const struct {prefix}_tensor {prefix}_features[] = {{
{table}
}};
const size_t {prefix}_feature_count = {len(policy.members)};
const size_t {prefix}_observation_size = sizeof(struct {prefix}_observation);
const size_t {prefix}_advice_size = {policy.advice.size};

void {prefix}_fill(struct {prefix}_observation *observation) {{
  memset(observation, 0, sizeof *observation);
{fills}
}}

const char *{prefix}_status_text(int status) {{
  switch (status) {{
{cases}
  }}
  return "no status of a policy";
}}
"""


def _fill(feature: Feature) -> str:
    if feature.fill is None:
        raise AssertionError("only a feature with a fill value is filled")
    values = feature.fill
    return "\n".join(
        f"  observation->{feature.member}[{index}] = {literal(value, values.dtype)};"
        for index, value in enumerate(values)
    )

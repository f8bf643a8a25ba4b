"""The parts of ``make results``: each runs commands of the product and gives their figures."""

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Final

from policybridge_docs.results.parts.built import (
    demo,
    link_time,
    link_tuned,
    packages,
    packages_policy,
    programs_policy,
    rust,
)
from policybridge_docs.results.parts.faster import cycles, profiled
from policybridge_docs.results.parts.here import decisions, here
from policybridge_docs.results.parts.running import Made
from policybridge_docs.results.parts.scored import chosen, passes, scores, sqlite, tuned
from policybridge_docs.results.parts.speed import embedded, speed
from policybridge_docs.results.parts.targets import targets
from policybridge_docs.results.parts.tried import attacks, differential, echoes, kills, mutants

PARTS: Final[Mapping[str, Callable[[Namespace], Made]]] = {
    "scores": scores,
    "demo": demo,
    "speed": speed,
    "embedded": embedded,
    "tuned": tuned,
    "kills": kills,
    "mutants": mutants,
    "passes": passes,
    "chosen": chosen,
    "packages": packages,
    "packages_policy": packages_policy,
    "programs_policy": programs_policy,
    "sqlite": sqlite,
    "echoes": echoes,
    "attacks": attacks,
    "differential": differential,
    "link_time": link_time,
    "link_tuned": link_tuned,
    "rust": rust,
    "here": here,
    "decisions": decisions,
    "targets": targets,
    "cycles": cycles,
    "profiled": profiled,
}

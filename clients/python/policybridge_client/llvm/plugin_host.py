"""Answering the questions of a compiler that has the plugin ``policybridge-inliner``, over its ``pipe:`` connection."""

import math
import re
from collections.abc import Sequence
from contextlib import closing
from time import perf_counter
from typing import Final

from policybridge_client.answers import Answers
from policybridge_client.llvm.asked import asking_variables, serve
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.growth import Growth
from policybridge_client.llvm.inliner import Defaults
from policybridge_client.llvm.process import Channel, CompilerProcess
from policybridge_client.llvm.responder import Patience, Responder
from policybridge_client.llvm.statistics import FAILED, CompilationStatistics, Report
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_client.llvm.tasks import INLINE, Task
from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_serdes import PolicyReference, SessionOptions

CLIENT: Final = "policybridge-inliner-"
"""The beginning of the label ``client`` of the plugin's sessions."""

_TIMEOUT: Final = 600.0
"""Seconds for all answers together, which are made without a server."""

_ASKING: Final = ("server", "policy", "decides", "evaluate", "fallback", "stats", "explore", "label", "option")
"""Settings that tell whom the plugin asks, and how. The others stay as they are: they change the questions."""

_SETTING: Final = re.compile(rf"--?policybridge-({'|'.join(_ASKING)})(=.*)?", re.DOTALL)
_BEFORE: Final = ("-mllvm", "-Xclang")

_TASK: Final = Task("plugin", INLINE.compilers, (), lambda _, advice: advice.tobytes())
"""All kinds of decisions, as they were advised: the plugin itself refuses illegal advice."""


def run_with_plugin(
    compiler: CompilerCommand, kinds: Sequence[str], answers: Answers, surroundings: Surroundings
) -> Report:
    """Run a compiler whose command loads the plugin, and answer its questions of these kinds.

    Raises:
        InvalidError: the command gives a setting of the plugin and its value as two words.
        OSError: the compiler cannot be started.

    """
    begun, statistics = perf_counter(), CompilationStatistics()
    words = _without_asking(compiler.words)
    error: PolicyBridgeError | None = None
    with Channel() as channel:
        variables = {**asking_variables(compiler.kind, channel.folder), **_settings(channel.base, kinds)}
        with CompilerProcess(words, surroundings, variables) as process:
            responder = Responder(
                _TASK,
                lambda signature, context: answers.open(PolicyReference("any"), signature, SessionOptions(context)),
                Defaults(),
                statistics,
                patience=Patience(_TIMEOUT),
                growth=Growth(math.inf),
                go_on=False,
            )
            try:
                with closing(responder):
                    serve(process, channel, lambda event: responder.answer(event, channel.reply))
                status = process.wait()
            except PolicyBridgeError as failure:
                error, status = failure, FAILED
    return Report(words, _TASK.name, status, perf_counter() - begun, statistics, error=error)


def _settings(base: str, kinds: Sequence[str]) -> dict[str, str]:
    given = {"server": f"pipe:{base}", "policy": "any", "decides": ",".join(kinds), "fallback": "error"}
    given["evaluate"] = "there"
    empty = dict.fromkeys(("stats", "explore", "labels", "options"), "")
    return {f"POLICYBRIDGE_{name.upper()}": value for name, value in {**empty, **given}.items()}


def _without_asking(words: Sequence[str]) -> list[str]:
    """Return the command without the options that tell whom to ask: an option wins over its variable."""
    kept: list[str] = []
    for word in words:
        setting = _SETTING.fullmatch(word)
        if setting is None:
            kept.append(word)
            continue
        if setting[2] is None:
            raise InvalidError(f"give {word} and its value as one word: {word}=VALUE")
        while kept and kept[-1] in _BEFORE:
            kept.pop()
    return kept

r"""LLVM's interactive stream, as a compiler writes it (llvm/lib/Analysis/InteractiveModelRunner.cpp).

    {"features":[spec, …],"advice":spec}\n      once per module; several may follow each other
    {"context":"name"}\n                        a module or function starts
    {"observation":N}\n<packed tensors>\n       answered by the advice tensor's bytes alone

PolicyBridge's own clients add lines that LLVM never writes. Where tensors vary in size, an observation starts with
``{"observation":N,"bytes":B}\n``, B being the payload's size in bytes. The outcome of the compilation is the line
``{"outcome":{"values":{name:number},"status":"…","contexts":{context:{name:number}}}}\n``. Decisions that the client
made by the policy's form are ``{"decided":N,"nanoseconds":T}\n``, N observations, N advices and a newline; with
``"chances":true`` N log-probabilities precede the newline. It asks for a form by ``{"form":"sha256:…"}\n``, and ends
the session by ``{"end":true}\n``.
"""

from policybridge_serdes.interactive.decoding import MOST_DECIDED, OutcomeFields
from policybridge_serdes.interactive.events import CHANCE_BYTES, Context, Decided, End, Event, FormWanted, Header
from policybridge_serdes.interactive.lines import (
    context_line,
    decided_lines,
    end_line,
    form_line,
    header_line,
    observation_lines,
    outcome_fields,
    outcome_line,
)
from policybridge_serdes.interactive.reader import MAX_LINE, InteractiveReader, read_context, read_observation

__all__ = [
    "CHANCE_BYTES",
    "MAX_LINE",
    "MOST_DECIDED",
    "Context",
    "Decided",
    "End",
    "Event",
    "FormWanted",
    "Header",
    "InteractiveReader",
    "OutcomeFields",
    "context_line",
    "decided_lines",
    "end_line",
    "form_line",
    "header_line",
    "observation_lines",
    "outcome_fields",
    "outcome_line",
    "read_context",
    "read_observation",
]

"""Portable forms: a policy version as a flat file that a client evaluates by itself. docs/forms.md specifies it.

`Form.read` reads the bytes and checks them against every bound; `Form.evaluate` decides.
"""

from policybridge_forms.drawing import Drawing
from policybridge_forms.evaluating import Evaluator, Status
from policybridge_forms.form import Form
from policybridge_forms.parts import Feature, Forest, Head, Instruction, Operand, Scores, Space
from policybridge_forms.words import Aggregate, Function, Opcode

__all__ = [
    "Aggregate",
    "Drawing",
    "Evaluator",
    "Feature",
    "Forest",
    "Form",
    "Function",
    "Head",
    "Instruction",
    "Opcode",
    "Operand",
    "Scores",
    "Space",
    "Status",
]

"""What may be chosen for a function's passes, and what never.

The plugin's table, ``clients/cpp/src/pass_choices.def``, is the same. ``docs/passes.md`` says why each may be chosen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from policybridge_core.errors import InvalidError

Action = Literal["skip", "add", "set", "keep"]
"""Skip a pass, add passes, set a switch; or keep a function as it is where one of these is chosen for all."""

IR_PASSES: Final = (
    "AlignmentFromAssumptionsPass", "DivRemPairsPass", "DropUnnecessaryAssumesPass", "Float2IntPass",
    "InferAlignmentPass", "InstCombinePass", "InstSimplifyPass", "LICMPass", "LoopDeletionPass",
    "LoopDistributePass", "LoopLoadEliminationPass", "LoopRotatePass", "LoopSinkPass", "LoopUnrollPass",
    "LoopVectorizePass", "SLPVectorizerPass", "SROAPass", "SimplifyCFGPass", "TailCallElimPass",
    "VectorCombinePass",
)  # fmt: skip
"""Passes between inlining and code generation that may be skipped, by their classes."""

CODEGEN_PASSES: Final = (
    "block-placement", "branch-folder", "break-false-deps", "codegenprepare", "consthoist",
    "dead-mi-elimination", "early-ifcvt", "early-machinelicm", "early-tailduplication", "expand-memcmp",
    "loop-reduce", "lrshrink", "machine-cp", "machine-cse", "machine-latecleanup", "machine-scheduler",
    "machine-sink", "machinelicm", "mergeicmps", "opt-phis", "partially-inline-libcalls", "peephole-opt",
    "post-RA-sched", "postra-machine-sink", "shrink-wrap", "stack-slot-coloring",
    "tailduplication", "twoaddressinstruction", "x86-avoid-sfb", "x86-cf-opt", "x86-cmov-conversion",
    "x86-domain-reassignment", "x86-execution-domain-fix", "x86-fixup-bw-insts", "x86-fixup-leas", "x86-isel",
    "x86-optimize-leas", "x86-partial-reduction",
)  # fmt: skip
"""Passes of code generation that may be skipped, as ``-opt-bisect-limit`` prints them."""

PIPELINES: Final = (
    "adce", "aggressive-instcombine", "bdce", "consthoist", "constraint-elimination", "correlated-propagation",
    "dse", "early-cse<memssa>", "gvn", "gvn-hoist", "instcombine", "jump-threading",
    "loop(indvars)", "loop(loop-deletion)", "loop(loop-idiom)", "loop(loop-reduce)", "loop-mssa(licm)",
    "loop-mssa(loop-simplifycfg)", "lower-switch,simplifycfg", "memcpyopt", "mergereturn,simplifycfg",
    "mldst-motion", "nary-reassociate", "newgvn", "reassociate", "reg2mem,sroa,instcombine,simplifycfg",
    "sccp", "separate-const-offset-from-gep", "simplifycfg<hoist-common-insts;sink-common-insts>",
    "simplifycfg<switch-to-lookup>", "sink", "slsr", "tailcallelim",
)  # fmt: skip
"""Passes that may be added to a function, as ``opt -passes=`` has them."""

MODULE_PIPELINES: Final = ("iroutliner",)
"""Passes that may be added to a module, at its last point alone; functions may be kept from them."""

SWITCHES: Final = (
    "ext-tsp", "no-small-tables", "split-conditions", "list-burr", "hoist-geps", "no-cmov",
    "aggressive-cse", "no-edge-splits", "ilp-schedule", "split-for-size", "reverse-assignment",
    "spare-callee-saved", "basic-regalloc", "tail-merge",
)  # fmt: skip
"""Options of LLVM that code generation reads for each function."""

_NO_LICM: Final = ("skip early-machinelicm", "skip machinelicm")
_SIZE: Final = (*_NO_LICM, "skip loop-reduce", "set ext-tsp")
_TIGHT_BASE: Final = (
    *_SIZE, "set no-small-tables", "set split-conditions", "set split-for-size", "set reverse-assignment",
    "skip x86-fixup-leas", "skip x86-optimize-leas",
)  # fmt: skip
_GVN: Final = ("add gvn-hoist@early",)
_LIST: Final = ("set list-burr",)
_TIGHT: Final = (*_TIGHT_BASE, *_GVN, *_LIST)

ALTERNATIVES: Final[Mapping[str, tuple[str, ...]]] = {
    "keep": (),
    "no-licm": _NO_LICM,
    "no-lsr": ("skip loop-reduce",),
    "ext-tsp": ("set ext-tsp",),
    "size": _SIZE,
    "no-licm-lsr": (*_NO_LICM, "skip loop-reduce"),
    "no-licm-ext-tsp": (*_NO_LICM, "set ext-tsp"),
    "no-lsr-ext-tsp": ("skip loop-reduce", "set ext-tsp"),
    "size-no-placement": (*_NO_LICM, "skip loop-reduce", "skip block-placement"),
    "size-no-cse": (*_SIZE, "skip machine-cse"),
    "size-no-sink": (*_SIZE, "skip machine-sink"),
    "size-no-prepare": (*_SIZE, "skip codegenprepare"),
    "size-no-cmov": (*_SIZE, "skip x86-cmov-conversion"),
    "size-no-isel": (*_SIZE, "skip x86-isel"),
    "size-gvn-hoist": (*_SIZE, "add gvn-hoist@early"),
    "size-retired": _SIZE,  # It added gvn-sink.
    "size-sink": (*_SIZE, "add sink@last"),
    "size-lower-switch": (*_SIZE, "add lower-switch,simplifycfg@last"),
    "tight": _TIGHT,
    "tight-no-gvn": (*_TIGHT_BASE, *_LIST),
    "tight-no-list": (*_TIGHT_BASE, *_GVN),
    "tight-no-cse": (*_TIGHT, "skip machine-cse"),
    "tight-aggressive-cse": (*_TIGHT, "set aggressive-cse"),
    "tight-spare": (*_TIGHT, "set spare-callee-saved"),
    "tight-no-cse-spare": (*_TIGHT, "skip machine-cse", "set spare-callee-saved"),
    "tight-no-sink": (*_TIGHT, "skip machine-sink"),
    "tight-no-prepare": (*_TIGHT, "skip codegenprepare"),
    "tight-no-isel-prepare": (*_TIGHT, "skip x86-isel", "skip codegenprepare"),
    "tight-loop-reduce": (*_TIGHT, "add loop(loop-reduce)@last"),
}
"""The alternatives of a policy for a function, numbered from 0: the actions and names of choices."""

POINTS: Final = ("early", "last")
"""Where passes may be added: when inlining has ended, and before code generation begins."""

NEVER: Final[Mapping[str, str]] = {
    "Canonicalize Freeze Instructions in Loops": "strength reduction takes loops in the form that it makes",
    "ControlHeightReductionPass": "it acts on profiles alone",
    "Fixup Statepoint Caller Saved": "garbage collection needs it",
    "InjectTLIMappings": "it only tells the vectoriser of vector functions",
    "LCSSAPass": "later loop passes need its form, and lose code without it",
    "Local Dynamic TLS Access Clean-up": "it is part of a way to reach thread-local variables",
    "LoopSimplifyPass": "later loop passes need its form, and lose code without it",
    "LowerConstantIntrinsicsPass": "it lowers intrinsics that must not reach code generation",
    "Merge disjoint stack slots": "it removes markers that later passes do not know",
    "TLS Variable Hoist": "it is part of a way to reach thread-local variables",
    "WarnMissedTransformationsPass": "it only warns",
    "X86 Atom pad short functions": "it only pads for one processor",
    "fixup-statepoint-caller-saved": "garbage collection needs it",
    "gvn-sink": "it orders values by their addresses, so the same decisions give objects that differ",
    "interleaved-access": "it lowers what the vectoriser has left for it",
    "ipra": "callers cannot tell which registers change in sanitized functions and in the large code model",
    "remove-loads-into-fake-uses": "it only serves debug information",
    "stack-coloring": "it removes markers that later passes do not know",
}
"""Optional passes that may not be skipped, passes that may not be added, retired switches, and why."""

ALL_FUNCTIONS: Final = "e3b0c44298fc1c14"
"""The key of a choice for all functions of a module: that of the empty name."""

_ACTIONS: Final[tuple[Action, ...]] = ("skip", "add", "set", "keep")
_MOST_RUNS: Final = 1_000_000


@dataclass(frozen=True)
class PassChoice:
    """One choice about the passes of a function, or of all functions of a module.

    Attributes:
        key: `function_key` of the function's name; `ALL_FUNCTIONS` for all.
        action: see `Action`.
        name: with ``skip`` a pass, or ``PASS.N`` for its Nth run on the function, from 0; with ``add`` a pipeline and
            where, ``PIPELINE@early`` or ``PIPELINE@last``; with ``set`` a switch; with ``keep`` one of all these.
        function: its name, for people.

    Raises:
        InvalidError: there is no such choice, or it is one that may never be made.

    """

    key: str
    action: Action
    name: str
    function: str = ""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def identity(self) -> tuple[str, Action, str]:
        """What makes two choices the same."""
        return self.key, self.action, self.name


def checked_action(word: str) -> Action | None:
    """Return ``word`` as an action; ``None`` if it is none."""
    return next((action for action in _ACTIONS if word == action), None)


def _check(choice: PassChoice) -> None:
    name, of_all = choice.name, choice.key == ALL_FUNCTIONS
    match choice.action:
        case "skip":
            _check_skipped(name)
        case "add":
            _check_added(name, of_all=of_all)
        case "set":
            if name in NEVER:
                raise InvalidError(f"{name} is never set: {NEVER[name]}")
            if name not in SWITCHES:
                raise InvalidError(f"no switch is called {name!r}")
        case "keep":
            _check_kept(name, of_all=of_all)


def _check_kept(name: str, *, of_all: bool) -> None:
    if of_all:
        raise InvalidError("keep exempts one function from a choice for all; it is not for all functions")
    if "@" in name:
        _check_added(name, of_all=True)
    elif name not in SWITCHES:
        _check_skipped(name)


def _check_skipped(name: str) -> None:
    wanted, dot, run = name.partition(".")
    if wanted in NEVER:
        raise InvalidError(f"{wanted} is never skipped: {NEVER[wanted]}")
    if wanted not in IR_PASSES and wanted not in CODEGEN_PASSES:
        raise InvalidError(f"no pass that may be skipped is called {wanted!r}")
    if dot and not (run.isascii() and run.isdigit() and len(run) < len(str(_MOST_RUNS))):
        raise InvalidError(f"behind a pass comes nothing, or a dot and which of its runs, not {name!r}")


def _check_added(name: str, *, of_all: bool) -> None:
    pipeline, _, point = name.rpartition("@")
    if pipeline in NEVER:
        raise InvalidError(f"{pipeline} is never added: {NEVER[pipeline]}")
    if pipeline not in (*PIPELINES, *MODULE_PIPELINES) or point not in POINTS:
        known = "one of the documented pipelines with @early or @last"
        raise InvalidError(f"passes that may be added are {known}, not {name!r}")
    if pipeline in MODULE_PIPELINES and not of_all:
        raise InvalidError(f"{pipeline} is added to a module, not to one function")
    if pipeline in MODULE_PIPELINES and point != "last":
        raise InvalidError(f"{pipeline} is added @last alone")

"""Policies that choose each function's passes in a session with stock compilers, beside inlining or alone."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from policybridge_client.decisions import function_key
from policybridge_client.decisions.passes import ALTERNATIVES, PassChoice
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.conftest import RunningServer
from tests.native.conftest import MAJORS, ROOT, Target, build_grpc
from tests.native.llvm.plugins import emit_demo
from tests.native.llvm.stores import Made, Tuner
from tests.native.llvm.test_pass_choices import ALIKE, COROUTINE, LOOPS, MODES, THROWING
from tests.onnx_models import make_model, write_onnx
from tests.repositories import answering, write_python

BOTH = 'decides = ["inlining_decision", "pass_choice"]'
NUMBERS = {name: number for number, name in enumerate(ALTERNATIVES)}

POLICY = """
class Policy:
    def evaluate(self, observation, session):
        return observation["inlining_default"]

    def pass_choice(self, observation, session):
        return {number}
"""

INLINED = """
static int twice(int x) { return get(x) + get(x + 1); }
int use(int x) { return twice(x) + twice(x + 1); }
"""
"""Calls that the policy is asked about."""


NETWORK = """
decides = ["pass_choice"]

[head]
advice = "pass_choice"

[settings.pack.observation]
features = ["loops"]
"""


def _network() -> onnx.ModelProto:
    """Score `ext-tsp` by the number of loops, `keep` by a half, and all others by nothing."""
    weights, bias = np.zeros((1, len(NUMBERS)), np.float32), np.zeros(len(NUMBERS), np.float32)
    weights[0, NUMBERS["ext-tsp"]], bias[NUMBERS["keep"]] = 1, 0.5
    nodes = [
        helper.make_node("MatMul", ["observation", "weights"], ["product"]),
        helper.make_node("Add", ["product", "bias"], ["logits"]),
    ]
    return make_model(
        nodes,
        {"observation": (onnx.TensorProto.FLOAT, ["batch", 1])},
        {"logits": (onnx.TensorProto.FLOAT, ["batch", len(NUMBERS)])},
        {"weights": weights, "bias": bias},
    )


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "keep", POLICY.format(number=0), BOTH)
    write_python(repository, "size", POLICY.format(number=NUMBERS["size"]), BOTH)
    write_python(repository, "no-isel", POLICY.format(number=NUMBERS["size-no-isel"]), BOTH)
    write_python(repository, "wild", POLICY.format(number=len(ALTERNATIVES)), BOTH)
    write_python(repository, "failing", POLICY.format(number='observation["no such feature"]'), BOTH)
    write_python(repository, "passes", POLICY.format(number=NUMBERS["size"]), 'decides = ["pass_choice"]')
    write_python(repository, "undeclared", answering('observation["inlining_default"]'))
    write_onnx(repository, "network", _network(), NETWORK)
    key = int(function_key("sum"), 16)
    one = f'{NUMBERS["size"]} if int(observation["function"][0]) % 2**64 == {key} else 0'
    write_python(repository, "one", POLICY.format(number=one), BOTH)
    return repository


@pytest.fixture(params=MAJORS)
def tuner(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Tuner:
    return Tuner.of(native, request.param, tmp_path)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep the demo's modules, translated once."""
    return tmp_path_factory.mktemp("demo")


def written(tuner: Tuner, name: str = "loops.c") -> Path:
    texts = {"loops.c": LOOPS + INLINED, "throwing.cpp": THROWING, "coroutine.cpp": COROUTINE}
    source = tuner.folder / name
    source.write_text(texts[name])
    return source


def stats(made: Made) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((made.folder / "stats.json").read_text())
    return read


def batches(ledger: Path, session: str) -> Iterator[DecisionBatch]:
    with LedgerReader(ledger) as reader:
        yield from reader.trajectory(reader.session(session)).batches


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["loops.c", "throwing.cpp", "coroutine.cpp"])
def test_a_policy_that_keeps_all_passes_gives_the_plain_object(
    tuner: Tuner, server: RunningServer, name: str, mode: str
) -> None:
    source = written(tuner, name)
    flags = [*mode.split(), *(["-std=c++20"] if name == "coroutine.cpp" else [])]
    plain = tuner.plain(source, *flags)
    made = tuner.compile(source, *flags, server=server.socket, policy="keep")
    assert (made.status == 0, made.output) == (bool(plain), plain)
    if plain:
        told = stats(made)
        assert told["passes"]["advice"] == {"keep": told["passes"]["decisions"]}
        assert told["fallback"] is None


@pytest.mark.parametrize("level", ["-Oz", "-O2 -g"])
@pytest.mark.parametrize(
    "path", ["libc/musl/src/stdio/vfprintf.c", "libunwind/src/libunwind.cpp", "libcxx/src/filesystem/operations.cpp"]
)
def test_a_real_library_whose_passes_a_policy_keeps_is_the_plain_object(
    tuner: Tuner, server: RunningServer, demo: Path, path: str, level: str
) -> None:
    module = emit_demo(tuner.major, path, demo)
    flags = ["-x", "ir", *level.split()]
    made = tuner.compile(module, *flags, server=server.socket, policy="keep")
    assert made.output == tuner.plain(module, *flags)
    assert stats(made)["passes"]["decisions"] > 0


def test_a_policys_choice_gives_the_object_of_a_store_with_the_same_choices(
    tuner: Tuner, server: RunningServer
) -> None:
    source = written(tuner)
    chosen = [("", *choice.split(" ", 1)) for choice in ALTERNATIVES["size"]]
    store = tuner.choose("loops.c", chosen)  # type: ignore[arg-type]
    made = tuner.compile(source, server=server.socket, policy="size")
    assert stats(made)["passes"]["advice"] == {"size": stats(made)["passes"]["decisions"]}
    assert made.output == tuner.compile(source, decisions=store).output != tuner.plain(source)


def test_a_network_chooses_by_the_features_of_each_function(tuner: Tuner, server: RunningServer) -> None:
    source = written(tuner)
    store = tuner.choose("loops.c", [(name, "set", "ext-tsp") for name in ("sum", "other", "fill", "mix")])
    made = tuner.compile(source, server=server.socket, policy="network")
    assert stats(made)["passes"]["advice"] == {"ext-tsp": 4, "keep": 3}
    assert made.output == tuner.compile(source, decisions=store).output


def test_a_session_that_explores_draws_among_the_alternatives(tuner: Tuner, server: RunningServer) -> None:
    source = written(tuner)
    made = tuner.compile(source, server=server.socket, policy="network", explore="epsilon=1,seed=7")
    drawn = stats(made)["passes"]["advice"]
    assert set(drawn) <= set(NUMBERS)
    assert len(drawn) > 2
    again = tuner.compile(source, server=server.socket, policy="network", explore="epsilon=1,seed=7")
    assert (stats(again)["passes"]["advice"], again.output) == (drawn, made.output)


def test_a_choice_for_one_function_leaves_the_others_to_llvm(tuner: Tuner, server: RunningServer) -> None:
    source = written(tuner)
    chosen = [("sum", *choice.split(" ", 1)) for choice in ALTERNATIVES["size"]]
    store = tuner.choose("loops.c", chosen)  # type: ignore[arg-type]
    made = tuner.compile(source, server=server.socket, policy="one")
    assert stats(made)["passes"]["advice"]["size"] == 1
    assert made.output == tuner.compile(source, decisions=store).output


@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_one_session_has_the_decisions_of_both_kinds_in_the_ledger(
    native: Target, tmp_path: Path, server: RunningServer, ledger: Path, transport: str
) -> None:
    if transport == "grpc":
        build_grpc(native)
    tuner = Tuner.of(native, "22", tmp_path)
    made = tuner.compile(written(tuner), server=getattr(server, transport), policy="size")
    told = stats(made)
    (session,) = told["sessions"]
    inlining, passes = batches(ledger, session)
    assert (inlining.signature.advice.name, passes.signature.advice.name) == ("inlining_decision", "pass_choice")
    assert (len(inlining.steps), len(passes.steps)) == (told["decisions"], told["passes"]["decisions"])
    assert passes.steps[0] == inlining.steps[-1] + 1
    # A function that LLVM does not optimise is not asked about.
    assert passes.contexts.tolist() == ["sum", "other", "choose", "fill", "mix", "use", "twice"]
    assert passes.advices["pass_choice"].tolist() == [[NUMBERS["size"]]] * 7
    with LedgerReader(ledger) as reader:
        outcome = reader.session(session).outcome
    assert outcome is not None
    assert (outcome.status, outcome.values["passes_asked"]) == ("ok", 7)


def test_the_observation_counts_what_the_function_has_where_inlining_has_ended(
    tuner: Tuner, server: RunningServer, ledger: Path
) -> None:
    (session,) = stats(tuner.compile(written(tuner), server=server.socket, policy="keep"))["sessions"]
    passes = list(batches(ledger, session))[-1]
    names = [spec.name for spec in passes.signature.features.specs]
    rows = {
        context: {name: int(passes.observations[name][index][0]) for name in names}
        for index, context in enumerate(passes.contexts.tolist())
    }
    assert {name: row["function"] % 2**64 for name, row in rows.items()} == {
        name: int(function_key(name), 16) for name in rows
    }
    assert (rows["choose"]["switches"], rows["choose"]["switch_cases"], rows["choose"]["loops"]) == (1, 4, 0)
    assert (rows["fill"]["loops"], rows["fill"]["loop_depth"], rows["fill"]["top_level_loops"]) == (2, 2, 1)
    assert (rows["mix"]["loop_wide_constants"], rows["fill"]["loop_wide_constants"]) == (1, 0)
    assert (rows["sum"]["loop_calls"], rows["sum"]["arguments"], rows["sum"]["minsize"]) == (1, 2, 1)
    assert (rows["use"]["local"], rows["use"]["blocks"], rows["use"]["loop_instructions"]) == (0, 1, 0)


@pytest.mark.parametrize(("level", "sizes"), [("-Oz", (1, 1)), ("-Os", (0, 1)), ("-O2", (0, 0))])
def test_the_observation_tells_the_attributes_of_a_function_and_whether_the_module_alone_can_call_it(
    tuner: Tuner, server: RunningServer, ledger: Path, level: str, sizes: tuple[int, int]
) -> None:
    source = tuner.folder / "local.c"
    own = "static __attribute__((noinline)) int own(int x) { return get(x) * 7; }"
    source.write_text(f"int get(int);\n{own}\nint open(int x) {{ return own(x) + own(x + 1); }}\n")
    (session,) = stats(tuner.compile(source, level, server=server.socket, policy="keep"))["sessions"]
    passes = list(batches(ledger, session))[-1]
    told = {
        context: tuple(int(passes.observations[name][row][0]) for name in ("local", "minsize", "optsize"))
        for row, context in enumerate(passes.contexts.tolist())
    }
    assert told == {"own": (1, *sizes), "open": (0, *sizes)}


def test_functions_that_exist_later_keep_llvms_passes(tuner: Tuner, server: RunningServer) -> None:
    source = tuner.folder / "alike.c"
    source.write_text(ALIKE)
    flags = ("-Oz", "-mllvm", "-ir-outliner")
    chosen = [(kind, choice) for kind, _, choice in (each.partition(" ") for each in ALTERNATIVES["size-no-isel"])]
    before, all_ = (
        tuner.compile(
            source,
            *flags,
            decisions=tuner.choose("alike.c", [(name, kind, choice) for name in names for kind, choice in chosen]),
        )
        for names in (("f0", "f1", "f2", "f3"), ("",))
    )
    made = tuner.compile(source, *flags, server=server.socket, policy="no-isel")
    assert stats(made)["passes"]["advice"] == {"size-no-isel": 4}
    assert made.output == before.output
    assert len({made.output, all_.output, tuner.plain(source, *flags)}) == 3


def test_functions_whose_names_hold_any_bytes_are_asked_about(
    tuner: Tuner, server: RunningServer, ledger: Path
) -> None:
    source = tuner.folder / "odd.c"
    source.write_bytes(b'int f(int x) __asm__("odd\\377");\nint f(int x) { return x * 77777; }\n')
    told = stats(tuner.compile(source, server=server.socket, policy="size"))
    assert (told["passes"]["advice"], told["fallback"]) == ({"size": 1}, None)
    (session,) = told["sessions"]
    (passes,) = batches(ledger, session)
    assert passes.contexts.tolist() == ["odd%FF"]
    assert int(passes.observations["function"][0][0]) % 2**64 == int(
        function_key(b"odd\xff".decode(errors="surrogateescape")), 16
    )


def test_a_policy_that_declares_nothing_is_asked_about_inlining_alone(
    tuner: Tuner, server: RunningServer, ledger: Path
) -> None:
    told = stats(tuner.compile(written(tuner), server=server.socket, policy="undeclared"))
    assert "passes" not in told
    (session,) = told["sessions"]
    assert {batch.signature.advice.name for batch in batches(ledger, session)} == {"inlining_decision"}


@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_a_policy_of_passes_alone_is_not_asked_about_inlining_and_llvm_decides_it(
    native: Target, tmp_path: Path, server: RunningServer, ledger: Path, transport: str
) -> None:
    if transport == "grpc":
        build_grpc(native)
    tuner = Tuner.of(native, "22", tmp_path)
    source = written(tuner)
    made = tuner.compile(source, server=getattr(server, transport), policy="passes")
    told = stats(made)
    assert (told["decisions"], told["passes"]["advice"], told["fallback"]) == (0, {"size": 7}, None)
    assert made.output == tuner.compile(source, server=server.socket, policy="size").output
    (session,) = told["sessions"]
    assert {batch.signature.advice.name for batch in batches(ledger, session)} == {"pass_choice"}


def test_a_module_that_nobody_asks_about_leaves_no_session(tuner: Tuner, server: RunningServer, ledger: Path) -> None:
    source = tuner.folder / "empty.c"
    source.write_text("int none(int x) { return x; }\n")
    before = _sessions(ledger)
    told = stats(tuner.compile(source, server=server.socket, policy="undeclared"))
    assert (told["sessions"], told["fallback"], _sessions(ledger)) == ([], None, before)


def _sessions(ledger: Path) -> int:
    if not ledger.exists():
        return 0
    with LedgerReader(ledger) as reader:
        return len(list(reader.sessions(Query())))


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("wild", f"advises passes by the number {len(ALTERNATIVES)}, and this plugin has the numbers 0 to"),
        ("failing", "no such feature"),
    ],
)
def test_without_advice_about_passes_llvms_own_stand_and_are_counted(
    tuner: Tuner, server: RunningServer, policy: str, why: str
) -> None:
    source = written(tuner)
    made = tuner.compile(source, server=server.socket, policy=policy)
    assert (made.status, made.output) == (0, tuner.plain(source))
    assert why in made.said
    told = stats(made)
    assert (told["passes"], told["fallback"]["decisions"]) == ({"decisions": 0, "advice": {}, "defaults": 7}, 7)
    failed = tuner.compile(source, server=server.socket, policy=policy, fallback="error")
    assert (failed.status, failed.output) == (1, b"")
    assert why in failed.said


def test_the_alternatives_of_the_plugin_of_python_and_of_the_page_are_the_same() -> None:
    text = (ROOT / "clients" / "cpp" / "src" / "pass_choices.def").read_text()
    macros: dict[str, str] = dict(re.findall(r"^#define ([A-Z_]+) (.*)$", text.replace("\\\n", " "), re.M))
    rows = "\n".join(line for line in text.splitlines() if line.startswith("ALTERNATIVE("))
    # The last macro first, because it holds those before it.
    for macro in reversed(macros):
        rows = re.sub(rf"\b{macro}\b", macros[macro], rows)
    table = {
        name: tuple(filter(None, "".join(re.findall(r'"([^"]*)"', made)).split(" + ")))
        for name, made in re.findall(r'^ALTERNATIVE\("([^"]+)", (.*)\)$', rows, re.M)
    }
    assert table == dict(ALTERNATIVES)
    for choices in table.values():
        for choice in choices:
            PassChoice("0" * 16, *choice.split(" ", 1))  # type: ignore[arg-type]
    page = (ROOT / "docs" / "passes.md").read_text()
    told = {name: int(number) for number, name in re.findall(r"(\d+), `([^`]+)`", page)}
    assert told
    assert told.items() <= NUMBERS.items()


@pytest.mark.parametrize("decides", ["pass_choice", "inlining_decision"])
def test_the_kinds_that_are_asked_for_can_be_narrowed(tuner: Tuner, server: RunningServer, decides: str) -> None:
    told = stats(tuner.compile(written(tuner), server=server.socket, policy="size", decides=decides))
    assert (told["decisions"] > 0, "passes" in told) == (decides == "inlining_decision", decides == "pass_choice")
    assert told["fallback"] is None


def test_a_kind_of_decision_that_is_not_known_is_told(tuner: Tuner, server: RunningServer) -> None:
    source = written(tuner)
    made = tuner.compile(source, server=server.socket, policy="size", decides="passes")
    assert made.output == tuner.plain(source)
    assert "-policybridge-decides or POLICYBRIDGE_DECIDES is inlining_decision, pass_choice or both" in made.said

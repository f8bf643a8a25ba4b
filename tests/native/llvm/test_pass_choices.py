"""Choices of passes by function in stock compilers: an echo changes nothing, a choice changes its functions alone."""

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from policybridge_client.decisions import function_key
from policybridge_client.decisions.passes import CODEGEN_PASSES, IR_PASSES, MODULE_PIPELINES, NEVER, PIPELINES, SWITCHES
from policybridge_train.objects.elf import ObjectFile
from tests.client.compilers import write_source
from tests.native.conftest import MAJORS, ROOT, Target
from tests.native.llvm.plugins import emit, emit_demo, need
from tests.native.llvm.stores import Made, Tuner

LOOPS = """
int get(int);
void put(int *, int);
int sum(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] & 1 ? a[i] * 3 : get(i + s); return s; }
int other(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] & 1 ? a[i] * 3 : get(i + s); return s; }
int choose(int x) {
  switch (x) { case 1: return get(4); case 2: return get(7); case 3: return get(9); case 5: return 2; }
  return get(x);
}
void fill(int *a, int n) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) { a[i] += a[j] * 77777 + get(j); put(a + i, 77777); }
}
void mix(unsigned long *a, int n) {
  for (int i = 0; i < n; i++) a[i] = (a[i] ^ 0x123456789abcdefUL) + (unsigned)get(i);
}
__attribute__((optnone, noinline)) int plain(int *a) { int s = 0; for (int i = 0; i < 8; i++) s += a[i]; return s; }
"""

THROWING = """
#include <stdexcept>
#include <string>
#include <vector>
int get(int);
struct Guard { int n; ~Guard() { get(n); } };
int risky(const std::vector<int> &v) {
  int s = 0;
  for (int x : v) {
    Guard g{x};
    try { if (get(x) > 3) throw std::runtime_error("no"); s += x; } catch (const std::exception &e) { s -= get(1); }
  }
  return s;
}
"""

COROUTINE = """
#include <coroutine>
int get(int);
struct Task {
  struct promise_type {
    int value = 0;
    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(int v) { value = v; return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> handle;
};
Task count(int n) { for (int i = 0; i < n; i++) co_yield get(i); }
int drive(int n) {
  Task t = count(n);
  int s = 0;
  while (!t.handle.done()) { t.handle.resume(); s += t.handle.promise().value; }
  t.handle.destroy();
  return s;
}
"""

UNWINDING = """
#include <stdexcept>
namespace {
struct Guard { int *n; int by; ~Guard() { *n += by; } };
int deep(int a, int b) { if (a > b * 3) throw std::runtime_error("deep"); return a * b + 1; }
int middle(int a, int b, int c) {
  int n = 0;
  { Guard g{&n, c}; n += deep(a, b); }
  return n * a + deep(b, c) * c + deep(c, a) + a * b * c;
}
int outer(int a, int b, int c, int d) {
  int s = a + b * 7 + c * 11 + d * 13;
  for (int i = 0; i < 20; i++) {
    int before = s;
    try { s = s * 31 + middle(a + i, b, c) + d; }
    catch (const std::exception &) { s = before * 17 + a + b + c + d + i; }
  }
  return s;
}
int expected(int a, int b, int c, int d) {
  int s = a + b * 7 + c * 11 + d * 13;
  for (int i = 0; i < 20; i++) {
    int x = a + i;
    bool throws = x > b * 3 || b > c * 3 || c > x * 3;
    s = throws ? s * 17 + a + b + c + d + i
               : s * 31 + ((x * b + 1 + c) * x + (b * c + 1) * c + (c * x + 1) + x * b * c) + d;
  }
  return s;
}
}
int main(int argc, char **) { return outer(argc, 2 + argc, 5, 9) != expected(argc, 2 + argc, 5, 9); }
"""
"""Registers that live across calls which throw, at four depths."""

REGULAR = "libc/musl/src/regex/regcomp.c"
"""Each switch changes its code."""

_BODY = "t ^= get(t, 1); t += x * 5 - y; t ^= get(t + 2, 3); t -= get(t, x); t ^= get(y, t);"
ALIKE = "int get(int, int);\n" + "\n".join(
    f"int f{n}(int x, int y) {{ int t = x * {n + 3}; {_BODY} return t * {n + 11}; }}" for n in range(4)
)
"""What an outliner makes a function of."""

NO_FIXPOINT = """
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-pc-linux-gnu"

@g_1724 = internal global i8 -27
@crc32_context = external global i32
@crc32_tab = external global [256 x i32]

define i32 @main() {
  %1 = load i8, ptr @g_1724, align 1
  %2 = sext i8 %1 to i64
  call void @crc32_8bytes(i64 %2)
  ret i32 0
}

define i64 @func_1() {
  br label %1

1:
  %2 = phi i8 [ 0, %0 ], [ %5, %4 ]
  store i8 %2, ptr @g_1724, align 1
  %3 = icmp sgt i8 %2, -14
  br i1 %3, label %4, label %split

4:
  %5 = add i8 %2, 1
  br label %1

split:
  ret i64 0
}

define void @crc32_8bytes(i64 %0) {
  %2 = trunc i64 %0 to i8
  call void @crc32_byte(i8 %2)
  %3 = lshr i64 %0, 8
  %4 = trunc i64 %3 to i8
  store volatile i8 %4, ptr null, align 1
  ret void
}

define void @crc32_byte(i8 %0) {
  %2 = load i32, ptr @crc32_context, align 4
  %.tr = trunc i32 %2 to i8
  %.narrow = xor i8 %0, %.tr
  %3 = zext i8 %.narrow to i64
  %4 = getelementptr i32, ptr @crc32_tab, i64 %3
  %5 = load i32, ptr %4, align 4
  store i32 %5, ptr @crc32_context, align 4
  ret void
}
"""
"""One iteration of InstCombine on `main` leaves work if it is inlined at -O2 and has no phi nodes."""

NOT_REACHED = [
    ("", "skip", "SimplifyCFGPass.9999"),
    ("", "skip", "block-placement.9999"),
    ("", "skip", "loop-reduce.9999"),
]
"""Choices that make LLVM ask about every pass and let all run."""

MODES = (
    "-Oz",
    "-O3 -g",
    "-Os -fsanitize=address,undefined",
    "-Oz -fsanitize=thread -g",
    "-Oz -mllvm -opt-bisect-limit=90",
    "-Oz -flto=thin",
)


@pytest.fixture(params=MAJORS)
def tuner(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Tuner:
    return Tuner.of(native, request.param, tmp_path)


def written(tuner: Tuner, name: str) -> Path:
    texts = {"loops.c": LOOPS, "throwing.cpp": THROWING, "coroutine.cpp": COROUTINE}
    source = tuner.folder / name
    source.write_text(texts[name])
    return source


def with_log(tuner: Tuner, source: Path, *flags: str, **settings: str) -> tuple[Made, list[list[str]]]:
    """Compile and log the passes; give the lines of the log, which are words, without the first."""
    log = tuner.folder / "passes"
    made = tuner.compile(source, *flags, passes=str(log), **settings)
    return made, [line.split("\t") for line in log.read_text().split("\n")[1:-1]]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["loops.c", "throwing.cpp", "coroutine.cpp"])
def test_where_all_passes_run_the_object_is_that_of_a_plain_compilation(tuner: Tuner, name: str, mode: str) -> None:
    source = written(tuner, name)
    flags = [*mode.split(), *(["-std=c++20"] if name == "coroutine.cpp" else [])]
    plain = tuner.plain(source, *flags)
    # clang 22 itself crashes where a bisection ends within the passes of a coroutine.
    assert plain or "bisect" in mode
    level = re.search("-O[sz]", mode)
    store = tuner.choose(name, NOT_REACHED, level=level[0][1:] if level else "O2")
    for made in (tuner.compile(source, *flags, decisions=store), with_log(tuner, source, *flags, decisions=store)[0]):
        assert (made.status == 0, made.output) == (bool(plain), plain)


def test_the_numbers_of_a_bisection_are_those_of_a_compilation_without_the_plugin(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    flags = ["-Oz", "-mllvm", "-opt-bisect-limit=100"]
    store = tuner.choose("loops.c", NOT_REACHED)
    told = tuner.compile(source, *flags, decisions=store).said
    words = [f"clang-{tuner.major}", *flags, "-c", str(source), "-o", str(tuner.folder / "plain.o")]
    plain = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    bisected = [line for line in told.splitlines() if line.startswith("BISECT")]
    assert bisected == [line for line in plain.splitlines() if line.startswith("BISECT")]
    assert len(bisected) > 100


@pytest.mark.parametrize("path", ["libunwind/src/libunwind.cpp", "libcxx/src/filesystem/operations.cpp"])
def test_a_real_library_asked_about_every_pass_is_the_plain_object(
    tuner: Tuner, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    module = emit_demo(tuner.major, path, tmp_path_factory.getbasetemp())
    made, log = with_log(
        tuner, module, "-Oz", "-x", "ir", decisions=tuner.choose(module.name, NOT_REACHED), module=module.name
    )
    assert (made.status, made.output) == (0, tuner.plain(module, "-Oz", "-x", "ir"))
    assert len(log) > 1000


def test_a_skipped_pass_runs_on_all_functions_but_that_one(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    choices = [("fill", "skip", name) for name in ("early-machinelicm", "SimplifyCFGPass", "loop-reduce")]
    made, log = with_log(tuner, source, decisions=tuner.choose("loops.c", choices))
    assert (made.status, made.said) == (0, "")
    assert made.store["applied"] == made.store["passes"] == 3
    assert made.output != tuner.plain(source)
    skipped = Counter((function, name) for _, _, name, _, ran, _, function in log if ran == "0" and function != "plain")
    assert {*skipped} == {(function, name) for function, _, name in choices}
    assert {key for key, *_, function in log if function == "fill"} == {function_key("fill")}


def test_a_loops_pass_is_skipped_on_a_function_behind_one_that_llvm_removes_last(tuner: Tuner) -> None:
    loop = "(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i * 5] * get(i); return s; }\n"
    source = tuner.folder / "removed.c"
    own = "static __attribute__((noinline)) int"
    # Clang emits static functions in the order of their uses.
    use = "int use(int *a, int n) { return (__builtin_constant_p(n) ? removed(a, n) : n) + after(a, n); }\n"
    source.write_text(f"int get(int);\nint before{loop}{own} removed{loop}{own} after{loop}{use}")
    made, log = with_log(tuner, source, decisions=tuner.choose("removed.c", [("after", "skip", "loop-reduce")]))
    asked = {(function, ran) for _, _, name, _, ran, _, function in log if name == "loop-reduce"}
    assert asked == {("before", "1"), ("after", "0")}
    assert made.output != tuner.plain(source)


def test_one_run_of_a_pass_is_skipped_by_its_number(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    store = tuner.choose("loops.c", [("sum", "skip", "SimplifyCFGPass.1")])
    _, log = with_log(tuner, source, decisions=store)
    runs = [(nth, ran) for _, _, name, nth, ran, _, function in log if (name, function) == ("SimplifyCFGPass", "sum")]
    assert ("0", "1") in runs
    assert ("1", "0") in runs


def test_a_skip_for_all_functions_turns_no_decision_about_inlining(tuner: Tuner) -> None:
    source, names = write_source(tuner.folder), ("SROAPass", "InstCombinePass", "SimplifyCFGPass")
    tuner.logged(source)
    sites = tuner.folder / "sites"
    # The first line counts the choices of a store.
    _, *before = sites.read_bytes().splitlines()
    store = tuner.choose(source.name, [("", "skip", name) for name in names])
    _, log = with_log(tuner, source, decisions=store, sites=str(sites))
    assert {(name, ran) for _, _, name, _, ran, *_ in log if name in names} == {(name, "0") for name in names}
    assert sites.read_bytes().splitlines()[1:] == before
    assert len(before) > 20


def test_a_choice_for_all_functions_leaves_out_those_that_keep_llvms_way(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    choices = [("", "skip", "early-machinelicm"), ("sum", "keep", "early-machinelicm")]
    made, log = with_log(tuner, source, decisions=tuner.choose("loops.c", choices))
    ran = {function: ran for _, _, name, _, ran, _, function in log if name == "early-machinelicm"}
    assert (ran["sum"], ran["other"], ran["fill"]) == ("1", "0", "0")
    assert made.store["applied"] == 2


@pytest.mark.parametrize(
    ("choices", "flags"),
    [
        ([("", "skip", "loop-reduce")], ["-disable-lsr"]),
        ([("", "skip", "early-machinelicm"), ("", "skip", "machinelicm")], ["-disable-machine-licm"]),
    ],
)
def test_a_choice_for_all_functions_gives_the_object_of_llvms_own_switch(
    tuner: Tuner, choices: list[tuple[str, str, str]], flags: list[str]
) -> None:
    source = written(tuner, "loops.c")
    switched = tuner.plain(source, "-Oz", *(word for flag in flags for word in ("-mllvm", flag)))
    assert switched != tuner.plain(source)
    assert tuner.compile(source, decisions=tuner.choose("loops.c", choices)).output == switched


def test_ext_tsp_block_placement_is_set_for_one_function_alone(native: Target, tmp_path: Path) -> None:
    tuner = Tuner.of(native, "22", tmp_path)
    source = tmp_path / "lines.c"
    part = """
    if (n > 3) { if (get(n)) s += get(1); else goto bad; }
    for (int i = 0; i < n; i++) {
      if (a[i] == 4) { s += get(i); if (s > 9) goto bad; }
      else if (a[i] == 7) { if (get(s)) goto out; } else s ^= get(a[i]);
    }
    """
    # Eight of them are a chain of more than 24 blocks.
    body = f"{8 * part} out: return s + get(2); bad: get(7);"
    texts = [f"int {name}(int *a, int n) {{ int s = {n}; {body} return -1; }}" for n, name in enumerate(("one", "two"))]
    source.write_text("int get(int);\n" + "\n".join(texts))
    flags = ["-mllvm", "-enable-ext-tsp-block-placement", "-mllvm", "-apply-ext-tsp-for-size"]
    split_at_128 = tuner.plain(source, "-Oz", *flags)
    flags += ["-mllvm", "-ext-tsp-chain-split-threshold=24"]
    everywhere, plain = tuner.plain(source, "-Oz", *flags), tuner.plain(source)
    assert len({everywhere, plain, split_at_128}) == 3
    assert tuner.compile(source, decisions=tuner.choose("lines.c", [("", "set", "ext-tsp")])).output == everywhere
    one = tuner.compile(source, decisions=tuner.choose("lines.c", [("one", "set", "ext-tsp")])).output
    both = tuner.choose("lines.c", [("one", "set", "ext-tsp"), ("two", "set", "ext-tsp")])
    assert len({one, everywhere, plain}) == 3
    assert tuner.compile(source, decisions=both).output == everywhere


def options_of(switch: str) -> list[str]:
    """Give the options of a switch, by the plugin's table, as arguments of clang."""
    text = (ROOT / "clients" / "cpp" / "src" / "pass_choices.def").read_text()
    (words,) = re.findall(rf'^SWITCH\("{switch}", "[^"]*",\s+"([^"]+)"\)', text, re.M)
    return [word for option in words.split() for word in ("-mllvm", f"-{option}")]


@pytest.fixture(scope="module")
def regular(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Tuner], tuple[Path, bytes]]:
    """Give the module `REGULAR` and its plain object at -Oz, which is made once for each compiler."""
    plain: dict[str, bytes] = {}

    def made(tuner: Tuner) -> tuple[Path, bytes]:
        module = emit_demo(tuner.major, REGULAR, tmp_path_factory.getbasetemp())
        if tuner.major not in plain:
            plain[tuner.major] = tuner.plain(module, "-x", "ir", "-Oz")
        return module, plain[tuner.major]

    return made


@pytest.mark.parametrize("switch", sorted(set(SWITCHES) - {"ext-tsp", "hoist-geps"}))
def test_a_switch_for_all_functions_gives_the_object_of_its_options(
    tuner: Tuner, regular: Callable[[Tuner], tuple[Path, bytes]], switch: str
) -> None:
    module, plain = regular(tuner)
    flags = ("-x", "ir", "-Oz")
    expected = tuner.plain(module, *flags, *options_of(switch))
    store = tuner.choose(module.name, [("", "set", switch)])
    made = tuner.compile(module, *flags, decisions=store, module=module.name)
    assert made.store["applied"] == 1
    assert made.output == expected != plain


def test_addresses_behind_a_large_part_of_an_object_are_hoisted(tuner: Tuner) -> None:
    source = tuner.folder / "object.c"
    source.write_text("""
extern struct { char part[4096]; int a, b, c, d; } object;
int get(int);
int sum(int n) {
  int s = object.a * n;
  if (get(s)) { object.b = s; object.c += get(object.d); }
  object.a = s ^ object.d; object.d = get(object.c); object.b += s;
  return s + object.a + object.b;
}
""")
    expected = tuner.plain(source, "-Oz", *options_of("hoist-geps"))
    made = tuner.compile(source, decisions=tuner.choose("object.c", [("", "set", "hoist-geps")]))
    assert made.output == expected != tuner.plain(source)


def test_switches_that_one_pass_reads_are_set_together_and_for_their_function_alone(
    tuner: Tuner, tmp_path_factory: pytest.TempPathFactory
) -> None:
    module = emit_demo(tuner.major, REGULAR, tmp_path_factory.getbasetemp())
    flags = ("-x", "ir", "-Oz")
    switches = ("no-small-tables", "list-burr", "reverse-assignment")
    options = [word for switch in switches for word in options_of(switch)]
    all_, plain = (ObjectFile(tuner.plain(module, *flags, *words)).functions for words in (options, ()))
    one = max(plain, key=lambda name: abs(all_[name] - plain[name]))
    store = tuner.choose(module.name, [(one, "set", switch) for switch in switches])
    made = ObjectFile(tuner.compile(module, *flags, decisions=store, module=module.name).output).functions
    assert made == plain | {one: all_[one]} != plain


def test_loads_that_are_hardened_against_speculation_keep_llvms_own_passes(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    choices = [("", "skip", "codegenprepare"), ("", "add", "loop-mssa(licm)@last"), ("", "set", "basic-regalloc")]
    hardened = ["-Oz", "-mspeculative-load-hardening"]
    made = tuner.compile(source, *hardened, decisions=tuner.choose("loops.c", choices))
    assert made.output == tuner.plain(source, *hardened)
    assert made.said == f"policybridge: chosen.db: 0 of 3 decisions applied to {source}\n"


@pytest.mark.parametrize("level", ["-Oz", "-O2"])
def test_exceptions_pass_functions_whose_registers_a_switch_changes(tuner: Tuner, level: str) -> None:
    source = tuner.folder / "unwinding.cpp"
    source.write_text(UNWINDING)
    store = tuner.choose("unwinding.cpp", [("", "set", "basic-regalloc")], level=level[1:])
    made = tuner.compile(source, level, "-fno-inline", decisions=store)
    expected = tuner.plain(source, level, "-fno-inline", *options_of("basic-regalloc"))
    assert made.output == expected != tuner.plain(source, level, "-fno-inline")
    (tuner.folder / "unwinding.o").write_bytes(made.output)
    program = tuner.folder / "unwinding"
    link = [f"clang++-{tuner.major}", str(tuner.folder / "unwinding.o"), "-o", str(program)]
    subprocess.run(link, check=True)
    assert subprocess.run([program], check=False).returncode == 0


@pytest.mark.parametrize("point", ["early", "last"])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_pipeline_can_be_added_and_leaves_modules_that_llvm_verifies(
    tuner: Tuner, pipeline: str, point: str
) -> None:
    source = written(tuner, "loops.c")
    store = tuner.choose("loops.c", [("", "add", f"{pipeline}@{point}")])
    made = tuner.compile(source, "-Oz", "-Xclang", "-llvm-verify-each", decisions=store)
    assert (made.status, made.said) == (0, "")
    assert made.store["applied"] == 1


def test_passes_are_not_added_to_functions_that_the_source_excludes_from_optimisation(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    store = tuner.choose("loops.c", [("plain", "add", "reg2mem,sroa,instcombine,simplifycfg@last")])
    assert tuner.compile(source, decisions=store).output == tuner.plain(source)


def test_an_added_pass_that_leaves_work_for_another_iteration_does_not_end_the_compiler(tuner: Tuner) -> None:
    source = tuner.folder / "again.ll"
    source.write_text(NO_FIXPOINT)
    store = tuner.choose("again.ll", [("", "add", "reg2mem,sroa,instcombine,simplifycfg@early")], level="O2")
    made = tuner.compile(source, "-O2", decisions=store)
    assert made.status == 0, made.said
    assert made.store["applied"] == 1


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("throwing.cpp", ["-Oz"]),
        ("coroutine.cpp", ["-Oz", "-std=c++20"]),
        ("loops.c", ["-Oz", "-fsanitize=address"]),
        ("loops.c", ["-Oz", "-g"]),
        ("loops.c", ["-Oz", "-mllvm", "-opt-bisect-limit=100000"]),
    ],
)
def test_choices_apply_beside_exceptions_coroutines_sanitizers_debug_information_and_a_bisection(
    tuner: Tuner, name: str, flags: list[str]
) -> None:
    source = written(tuner, name)
    choices = [("", "skip", "early-machinelicm"), ("", "skip", "InstCombinePass"), ("", "add", "gvn@early")]
    made, log = with_log(tuner, source, *flags, "-Xclang", "-llvm-verify-each", decisions=tuner.choose(name, choices))
    assert made.status == 0
    assert made.store["applied"] == 3
    assert {ran for *_, pass_name, _, ran, _, _ in log if pass_name in ("early-machinelicm", "InstCombinePass")} == {
        "0"
    }


def test_choices_for_a_function_that_a_sanitizer_makes_behind_the_last_pass_count_as_applied(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    made = "asan.module_ctor"
    group = [(made, "add", "gvn-hoist@early"), (made, "set", "ext-tsp"), (made, "skip", "machinelicm")]
    sanitized = tuner.compile(source, "-Oz", "-fsanitize=address", decisions=tuner.choose("loops.c", group))
    assert (sanitized.said, sanitized.store["applied"]) == ("", 3)
    plain = tuner.compile(source, "-Oz", decisions=tuner.choose("loops.c", [("sum", "skip", "machinelicm"), *group]))
    assert plain.store["applied"] == 1


def test_before_a_thin_link_passes_are_added_and_the_bitcode_changes(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    store = tuner.choose("loops.c", [("", "add", "reg2mem,sroa,instcombine,simplifycfg@last")])
    made = tuner.compile(source, "-Oz", "-flto=thin", decisions=store)
    assert (made.status, made.said, made.store["applied"]) == (0, "", 1)
    assert made.output != tuner.plain(source, "-Oz", "-flto=thin")


def test_the_outliner_of_a_module_leaves_out_the_functions_that_are_kept(tuner: Tuner) -> None:
    source = tuner.folder / "alike.c"
    source.write_text(ALIKE)
    outlined = tuner.compile(source, decisions=tuner.choose("alike.c", [("", "add", "iroutliner@last")]))
    assert outlined.output == tuner.plain(source, "-Oz", "-mllvm", "-ir-outliner") != tuner.plain(source)
    kept = [(f"f{n}", "keep", "iroutliner@last") for n in range(4)]
    all_kept = tuner.compile(source, decisions=tuner.choose("alike.c", [("", "add", "iroutliner@last"), *kept]))
    assert all_kept.output == tuner.plain(source)


def test_returns_are_not_merged_behind_a_call_that_must_be_a_tail_call(tuner: Tuner) -> None:
    source = tuner.folder / "musttail.c"
    source.write_text(
        "int get(int);\nint f(int x) { if (x > 3) __attribute__((musttail)) return get(x); return get(9) + x; }\n"
        "int g(int x) { if (x > 3) return get(x) * 2; return get(9) + x; }\n"
    )
    store = tuner.choose("musttail.c", [(name, "add", "mergereturn,simplifycfg@last") for name in ("f", "g")])
    made = tuner.compile(source, "-Oz", "-Xclang", "-llvm-verify-each", decisions=store)
    assert (made.status, made.said, made.store["applied"]) == (0, "", 2)


def test_functions_that_are_gone_are_told_in_one_line(tuner: Tuner) -> None:
    source = written(tuner, "loops.c")
    choices = [("sum", "skip", "block-placement"), ("nowhere", "skip", "block-placement")]
    made = tuner.compile(source, decisions=tuner.choose("loops.c", choices))
    assert made.said == f"policybridge: chosen.db: 1 of 2 decisions applied to {source}\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("skip LCSSAPass", "LCSSAPass is never skipped: later loop passes need its form"),
        ("skip LoopSimplifyPass.2 f", "LoopSimplifyPass is never skipped"),
        ("skip NoSuchPass f", "no pass that may be skipped is called 'NoSuchPass'"),
        ("skip", "no pass that may be skipped is called ''"),
        ("skip SimplifyCFGPass.x f", "behind a pass comes nothing, or a dot and which of its runs"),
        ("skip SimplifyCFGPass.9999999999999999999 f", "behind a pass comes nothing, or a dot and which of its runs"),
        ("add structurizecfg@early f", "passes that may be added are one of the documented pipelines"),
        ("add gvn-sink@early f", "gvn-sink is never added: it orders values by their addresses"),
        ("add gvn f", "passes that may be added are one of the documented pipelines"),
        ("add gvn@late f", "passes that may be added are one of the documented pipelines"),
        ("add iroutliner@early", "iroutliner is added @last alone"),
        ("set disable-everything", "no switch is called 'disable-everything'"),
        ("keep block-placement", "keep exempts one function from a choice for all"),
        ("set ipra", "ipra is never set: callers cannot tell which registers change"),
        ("add " + "a" * 100_000, "passes that may be added are one of the documented pipelines"),
    ],
)
def test_a_choice_that_may_not_be_made_is_told_and_llvm_decides(tuner: Tuner, line: str, message: str) -> None:
    source = written(tuner, "loops.c")
    store = tuner.folder / "broken.db"
    heading = f"module llvm={tuner.major} level=Oz by=site digest=- path=loops.c"
    store.write_text(f"policybridge-decisions 1\n{heading}\ne3b0c44298fc1c14 {line}\n")
    made = tuner.compile(source, decisions=str(store))
    assert (made.status, made.output) == (0, tuner.plain(source))
    wrong = 3 + line.count("\n")
    assert made.said.startswith(f"policybridge: all decisions are the compiler's own: {store}, line {wrong}: {message}")
    assert made.said.count("\n") == 1
    assert len(made.said) < 500


def test_the_tables_of_the_plugin_and_of_python_are_the_same() -> None:
    text = (ROOT / "clients" / "cpp" / "src" / "pass_choices.def").read_text()
    passes = re.findall(r'^PASS\((\w+), "([^"]+)", "([^"]*)"\)$', text, re.M)
    assert tuple(name for stage, name, _ in passes if stage == "ir") == IR_PASSES
    assert tuple(name for stage, name, _ in passes if stage == "codegen") == CODEGEN_PASSES
    pipelines = re.findall(r'^PIPELINE\((\w+), "([^"]+)"\)$', text, re.M)
    assert tuple(name for scope, name in pipelines if scope == "function") == PIPELINES
    assert tuple(name for scope, name in pipelines if scope == "module") == MODULE_PIPELINES
    assert dict(re.findall(r'^NEVER\("([^"]+)", "([^"]+)"\)$', text, re.M)) == NEVER


@pytest.mark.parametrize("level", ["-Oz", "-O3"])
def test_each_optional_pass_that_llvm_asks_about_may_be_skipped_or_is_known_to_be_never(
    tuner: Tuner, tmp_path_factory: pytest.TempPathFactory, level: str
) -> None:
    known = {*IR_PASSES, *CODEGEN_PASSES, *NEVER}
    module = emit_demo(tuner.major, "libcxx/src/filesystem/operations.cpp", tmp_path_factory.getbasetemp())
    for source, flags in ((written(tuner, "loops.c"), []), (module, ["-x", "ir"])):
        _, log = with_log(tuner, source, level, *flags)
        assert {name.replace("%20", " ") for _, _, name, *_ in log} <= known


def test_in_opt_choices_apply_from_the_end_of_inlining_on(tuner: Tuner) -> None:
    module = emit(tuner.major, written(tuner, "loops.c"), tuner.folder / "module.bc")
    store = tuner.choose(
        "loops.c", [("", "add", "reg2mem,sroa,instcombine,simplifycfg@early"), ("", "skip", "SROAPass")]
    )
    words = [need(f"opt-{tuner.major}"), "-passes=default<Oz>", str(module), "-o", "-"]
    loading = [f"-load-pass-plugin={tuner.path}", f"-policybridge-decisions={store}", "-verify-each"]
    chosen = subprocess.run([*words, *loading], capture_output=True, check=True)
    assert chosen.stderr == b""
    assert chosen.stdout != subprocess.run(words, capture_output=True, check=True).stdout

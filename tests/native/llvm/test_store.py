"""A store of decisions in stock compilers: it applies where it was made for, and never breaks a build."""

import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from policybridge_client.decisions import Decision, Heading, Section, Store, site_key, write_store
from tests.client.compilers import write_source
from tests.native.conftest import MAJORS, Target
from tests.native.llvm.plugins import built_plugin, emit, emit_demo, need
from tests.native.llvm.stores import Tuner, flipped

ENDLESS = """
int sink(int);
static int odd(int);
static int even(int x) { return x ? odd(x - sink(x)) + odd(x - 1) + sink(1) + sink(2) : sink(x); }
static int odd(int x) { return x ? even(x - sink(x)) + even(x - 1) + sink(3) + sink(4) : sink(x + 1); }
int parity(int x) { return even(x) + odd(x) + even(x + 1) + odd(x + 2); }
"""

FORCED = """
int sink(int);
__attribute__((noinline)) static int never(int x) { return sink(x) + 1; }
static inline __attribute__((always_inline)) int always(int x) { return sink(sink(sink(sink(sink(sink(x)))))); }
static int itself(int x) { return x ? sink(itself(x - 1)) + sink(x) : 0; }
static int many(int x, ...) {
  __builtin_va_list l; __builtin_va_start(l, x); int y = __builtin_va_arg(l, int); return y; }
int all(int x) { return never(x) + always(x) + itself(x) + many(x, 2) + never(x + 1) + always(x + 1) + many(x, 3); }
"""

ODD_NAMES = """
define internal i32 @"a b%\\09c\\0Ad\\FF\\C3\\A9"(i32 %x) minsize optsize {
  %1 = mul i32 %x, 3
  %2 = call i32 @sink(i32 %1)
  %3 = call i32 @sink(i32 %2)
  ret i32 %3
}
declare i32 @sink(i32)
define i32 @"caller \\01 %41"(i32 %x) minsize optsize {
  %1 = call i32 @"a b%\\09c\\0Ad\\FF\\C3\\A9"(i32 %x)
  %2 = call i32 @"a b%\\09c\\0Ad\\FF\\C3\\A9"(i32 %1)
  ret i32 %2
}
"""


@pytest.fixture(params=MAJORS)
def tuner(request: pytest.FixtureRequest, native: Target, tmp_path: Path) -> Tuner:
    return Tuner.of(native, request.param, tmp_path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def test_a_store_without_decisions_gives_the_plain_object(tuner: Tuner, source: Path) -> None:
    store = tuner.write({}, "module.c")
    for flags in (("-Oz",), ("-Os", "-g"), ("-O2",), ("-O3", "-g")):
        plain = tuner.plain(source, *flags)
        for made in (tuner.compile(source, *flags, decisions=store), tuner.logged(source, *flags)):
            assert (made.status, made.said) == (0, "")
            assert made.output == plain


@pytest.mark.parametrize("path", ["libunwind/src/libunwind.cpp", "libcxx/src/filesystem/operations.cpp"])
def test_numbers_on_calls_change_neither_objects_nor_bitcode(tuner: Tuner, demo: Path, path: str) -> None:
    module = emit_demo(tuner.major, path, demo)
    for flags in ([], ["-emit-llvm"]):
        words = ["-Oz", "-x", "ir", *flags]
        made = tuner.logged(module, *words)
        assert (made.status, made.said, made.output) == (0, "", tuner.plain(module, *words))
        assert len(made.sites) > 20


def test_decisions_apply_and_change_the_object(tuner: Tuner, source: Path) -> None:
    log = tuner.logged(source).sites
    decisions = flipped(log, "middle")
    store = tuner.write(decisions, "module.c", digest=log.digest)
    made = tuner.logged(source, decisions=store)
    assert (made.status, made.said) == (0, "")
    assert made.output != tuner.plain(source)
    again = made.sites
    assert (again.applied, again.of) == (len(decisions), len(decisions))
    taken = dict(zip(again.keys, again.taken.tolist(), strict=True))
    assert {key: taken[key] for key in decisions} == decisions
    # What was to be inlined was inlined.
    assert (again.taken == again.inlined).all()
    assert made.store == {
        "path": store, "module": str(source), "exact": True, "applied": len(decisions), "unmatched": 0, "passes": 0
    }  # fmt: skip
    # The log's cost is not empty: LLVM could have decided otherwise.
    assert (log.numbers["cost"] > log.numbers["threshold"]).tolist() == (~log.default).tolist()


def test_what_differs_from_llvms_own_decisions_makes_the_same_object_again(tuner: Tuner, source: Path) -> None:
    log = tuner.logged(source).sites
    made = tuner.logged(source, decisions=tuner.write(flipped(log, ""), "module.c"))
    final = made.sites
    rows = zip(final.keys, final.default, final.taken, strict=True)
    store = tuner.write({key: bool(taken) for key, own, taken in rows if own != taken}, "module.c")
    again = tuner.compile(source, decisions=store)
    assert (again.said, again.output) == ("", made.output)


def test_a_site_is_named_by_caller_origin_callee_number_and_occurrence(tuner: Tuner, source: Path) -> None:
    log = tuner.logged(source).sites
    numbers = zip(log.numbers["number"], log.numbers["occurrence"], strict=True)
    rows = zip(log.keys, log.caller, log.origin, log.callee, numbers, strict=True)
    named = {key: site_key(caller, origin, callee, int(n), int(nth)) for key, caller, origin, callee, (n, nth) in rows}
    assert len(named) == len(log)
    assert [*named.keys()] == [*named.values()]
    assert {"middle0", "tiny"} <= {*log.callee}
    # A call that comes by inlining keeps its origin.
    other = tuner.logged(source, decisions=tuner.write(flipped(log, ""), "module.c")).sites
    came = [caller for caller, origin in zip(other.caller, other.origin, strict=True) if origin == "middle0" != caller]
    assert {*came} == {"module0"}


def test_an_edit_elsewhere_in_the_file_keeps_the_other_decisions(tuner: Tuner, source: Path) -> None:
    log = tuner.logged(source).sites
    decisions = flipped(log, "middle")
    store = tuner.write(decisions, "module.c", digest=log.digest)
    text = source.read_text().replace("middle3(x + 1)", "middle3(added(x) + sink(x))")
    source.write_text("int added(int x) { return x * 5; }\n" + text)
    made = tuner.logged(source, decisions=store)
    assert (made.status, made.said) == (0, "")
    assert (made.sites.applied, made.sites.of) == (len(decisions), len(decisions))
    assert made.output != tuner.plain(source)
    assert made.store["exact"] is False


def test_sites_that_are_gone_are_told_in_one_line_and_llvm_decides_the_others(tuner: Tuner, source: Path) -> None:
    log = tuner.logged(source).sites
    known = flipped(log, "middle2")
    store = tuner.write({**known, "0" * 16: True, "f" * 16: False}, "module.c")
    made = tuner.logged(source, decisions=store)
    count = len(known)
    assert made.said == f"policybridge: tuned.db: {count} of {count + 2} decisions applied to {source}\n"
    assert made.output == tuner.compile(source, decisions=tuner.write(known, "module.c")).output


def test_a_section_for_another_level_changes_nothing_and_one_line_says_so(tuner: Tuner, source: Path) -> None:
    decisions = flipped(tuner.logged(source).sites, "middle")
    made = tuner.compile(source, decisions=tuner.write(decisions, "module.c", level="Os"))
    assert (made.status, made.output) == (0, tuner.plain(source))
    assert made.said.endswith("module.c at -Os, and none at -Oz\n")
    assert made.said.count("\n") == 1


def test_a_section_for_another_file_changes_nothing(tuner: Tuner, source: Path) -> None:
    decisions = flipped(tuner.logged(source).sites, "middle")
    stores = [
        tuner.write(decisions, "other.c", "other.db"),
        tuner.write({"0" * 16: True}, "other/module.c", "unknown.db"),
    ]
    for store in stores:
        made = tuner.compile(source, decisions=store)
        assert (made.status, made.said, made.output) == (0, "", tuner.plain(source))


def test_a_module_is_found_by_its_digest_or_by_the_name_that_an_option_gives(tuner: Tuner, source: Path) -> None:
    log = tuner.logged(source).sites
    decisions = flipped(log, "middle")
    by_digest = tuner.compile(source, decisions=tuner.write(decisions, "moved/renamed.c", digest=log.digest))
    assert by_digest.output != tuner.plain(source)
    store = tuner.write(decisions, "corpus/one")
    by_name = tuner.compile(source, decisions=store, module="somewhere/corpus/one")
    assert (by_name.said, by_name.output) == ("", by_digest.output)


def test_a_section_without_decisions_keeps_those_of_another_module_of_the_source_from_its_own_alone(
    tuner: Tuner, source: Path
) -> None:
    log = tuner.logged(source).sites
    heading = Heading(int(tuner.major), "Oz", "site", log.digest, "module.c")
    other, edited = replace(heading, digest="0" * 16), replace(heading, digest="1" * 16)
    flips = tuple(Decision(key, inline) for key, inline in flipped(log, "middle").items())
    for empty, tuned, applies in ((heading, other, False), (other, heading, True), (other, edited, True)):
        write_store(Store([Section(empty), Section(tuned, flips)]), tuner.folder / "tuned.db")
        made = tuner.compile(source, decisions=str(tuner.folder / "tuned.db"))
        assert (made.status, made.said) == (0, "")
        assert (made.output != tuner.plain(source)) == applies


def test_a_module_without_functions_has_no_level_and_nothing_is_said_about_decisions_at_another(
    tuner: Tuner, tmp_path: Path
) -> None:
    source = tmp_path / "module.c"
    store = tuner.write({"0123456789abcdef": True}, "module.c")
    for text, said in (("int table = 3;\n", False), ("int table(void) { return 3; }\n", True)):
        source.write_text(text)
        made = tuner.compile(source, "-O2", decisions=store)
        assert ("module.c at -Oz, and none at -O2" in made.said) == said


def test_a_file_with_initialisers_that_was_renamed_is_found_by_its_digest(tuner: Tuner, source: Path) -> None:
    old, new = (source.with_name(name) for name in ("old.cpp", "new.cpp"))
    for file in (old, new):
        # clang names the function that initialises after the file.
        file.write_text(source.read_text() + "int begun = sink(1);\n")
    log = tuner.logged(old).sites
    store = tuner.write(flipped(log, "middle"), "old.cpp", digest=log.digest)
    made = tuner.compile(new, decisions=store)
    assert made.store["exact"], made.said
    assert made.output != tuner.plain(new)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: a store of decisions begins with the line 'policybridge-decisions 1'"),
        (b"policybridge-decisions 2\n", "line 1: a store of decisions begins with"),
        (b"\x7fELF\0\0\0" * 1000, "line 1: a store of decisions begins with"),
        (b"policybridge-decisions 1\n0123456789abcdef inline\n", "line 2: before the first decision comes a line"),
        (b"policybridge-decisions 1\nmodule path=module.c\n", "line 2: a module has llvm=, level="),
        (b"policybridge-decisions 1\nmodule level=Oz by=si", "line 2: the line of a module does not end"),
        (b"policybridge-decisions 1\nHEADING\n0123456789abcdef inline\n0123456789ab", "line 4: the file ends within"),
        (b"policybridge-decisions 1\nHEADING\n0123456789abcdef maybe\n", "line 3: a decision is 16 hexadecimal digits"),
        (b"policybridge-decisions 1\nHEADING\n" + b"\0" * 300000 + b"\n", "line 3: a decision is 16 hexadecimal"),
        (b"policybridge-decisions 1\nHEADING\n<<<<<<< mine\n", "line 3: a decision is 16 hexadecimal digits"),
    ],
)  # fmt: skip
def test_a_broken_store_is_told_and_llvm_decides(tuner: Tuner, source: Path, content: bytes, message: str) -> None:
    store = tuner.folder / "broken.db"
    heading = f"module llvm={tuner.major} level=Oz by=site digest=- path=module.c".encode()
    store.write_bytes(content.replace(b"HEADING", heading))
    made = tuner.compile(source, decisions=str(store))
    assert (made.status, made.output) == (0, tuner.plain(source))
    assert made.said.startswith(f"policybridge: all decisions are the compiler's own: {store}, {message}")
    assert made.said.count("\n") == 1
    strict = tuner.compile(source, decisions=str(store), fallback="error")
    assert (strict.status, strict.output) == (1, b"")
    assert f"error: policybridge: no decisions: {store}, {message}" in strict.said


def test_a_store_that_is_no_regular_file_is_told_and_llvm_decides(tuner: Tuner, source: Path) -> None:
    os.mkfifo(tuner.folder / "pipe")
    (tuner.folder / "unreadable").symlink_to("unreadable")
    for name, why in (
        ("none", "there is no store of decisions at "),
        ("pipe", "is not a regular file"),
        (".", "is not a regular file"),
        ("unreadable", "symbolic links"),
    ):
        made = tuner.compile(source, decisions=str(tuner.folder / name))
        assert (made.status, made.output) == (0, tuner.plain(source))
        assert made.said.count("policybridge: all decisions are the compiler's own: ") == 1
        assert why in made.said


def test_calls_that_llvm_must_or_cannot_inline_stay_as_they_are(tuner: Tuner) -> None:
    source = tuner.folder / "forced.c"
    source.write_text(FORCED)
    log = tuner.logged(source).sites
    decisions = {key: not own for key, own in zip(log.keys, log.default.tolist(), strict=True)}
    made = tuner.logged(source, decisions=tuner.write(decisions, "forced.c"))
    assert made.status == 0
    again = made.sites
    assert not any(
        taken for name, taken in zip(again.callee, again.taken, strict=True) if name in ("never", "itself", "many")
    )
    costs = zip(log.callee, log.numbers["cost"].tolist(), strict=True)
    assert {name for name, cost in costs if math.isnan(cost)} >= {"never"}
    assert b"always" not in made.output


def test_a_store_that_inlines_everything_ends_at_the_growth_limit(tuner: Tuner) -> None:
    source = tuner.folder / "endless.c"
    source.write_text(ENDLESS)
    decisions: dict[str, bool] = {}
    for _ in range(4):
        store = tuner.write(decisions, "endless.c")
        made = tuner.logged(source, decisions=store)
        assert made.status == 0
        decisions |= dict.fromkeys(made.sites.keys, True)
    assert len(made.output) < 200_000


def test_names_may_hold_any_bytes(tuner: Tuner) -> None:
    module = tuner.folder / "odd.ll"
    module.write_text(ODD_NAMES)
    first = tuner.logged(module, "-Oz", "-x", "ir").sites
    assert {*first.callee} == {"a b%\tc\nd\udcffé"}
    assert {*first.caller} == {"caller \x01 %41"}
    path = "folder with % spaces/odd.ll"
    store = tuner.write(dict.fromkeys(first.keys, False) | {first.keys[0]: not first.default[0]}, path)
    made = tuner.compile(module, "-Oz", "-x", "ir", decisions=store, module=path)
    assert (made.status, made.said) == (0, "")
    assert made.output != tuner.plain(module, "-Oz", "-x", "ir")


def test_both_plugins_together_apply_a_store(tuner: Tuner, native: Target, source: Path) -> None:
    passes = built_plugin(native, "passes", tuner.major)
    store = tuner.write(flipped(tuner.logged(source).sites, "middle"), "module.c")
    alone = tuner.compile(source, decisions=store)
    both = tuner.compile(source, "-Oz", f"-fpass-plugin={passes}", decisions=store)
    assert (both.status, both.said, both.output) == (0, "", alone.output)


@pytest.mark.parametrize("mode", ["-flto", "-flto=thin", "-ffat-lto-objects"])
def test_what_is_kept_for_linking_holds_no_numbers(tuner: Tuner, source: Path, mode: str) -> None:
    flags = ["-Oz", "-flto", mode] if "fat" in mode else ["-Oz", mode]
    made = tuner.logged(source, *flags)
    assert (made.status, made.said, made.output) == (0, "", tuner.plain(source, *flags))
    assert len(made.sites) > 8


def test_each_module_of_a_thin_link_has_its_own_decisions(tuner: Tuner) -> None:
    for name in ("one", "two"):
        source = write_source(tuner.folder, f"{name}.c")
        (tuner.folder / f"{name}.o").write_bytes(tuner.plain(source, "-Oz", "-flto=thin"))
    resolutions = [f"-r={name}.o,{name}{n},px" for name in ("one", "two") for n in range(8)]
    undefined = [f"-r={name}.o,sink," for name in ("one", "two")]
    link = [need(f"llvm-lto2-{tuner.major}"), "run", "-O2", *resolutions, *undefined, "one.o", "two.o"]
    subprocess.run([*link, "-o", "plain"], cwd=tuner.folder, check=True)
    logging = {**os.environ, "POLICYBRIDGE_SITES": "%m.sites"}
    asking = [*link, f"-load-pass-plugin={tuner.path}", "-o", "asking"]
    subprocess.run(asking, cwd=tuner.folder, env=logging, check=True)
    for task in (1, 2):
        assert (tuner.folder / f"asking.{task}").read_bytes() == (tuner.folder / f"plain.{task}").read_bytes()
    assert len([*tuner.folder.glob("*.sites")]) == 2


@pytest.mark.parametrize("passes", ["inliner-wrapper", "default<Oz>", "lto<O2>", "thinlto<O2>", "lto-pre-link<O2>"])
def test_in_every_pipeline_of_opt_the_bitcode_is_that_of_a_plain_run(tuner: Tuner, source: Path, passes: str) -> None:
    module = emit(tuner.major, source, tuner.folder / "module.bc")
    words = [need(f"opt-{tuner.major}"), f"-passes={passes}", str(module), "-o", "-"]
    plain = subprocess.run(words, capture_output=True, check=True).stdout
    log = tuner.folder / "sites"
    loading = [f"-load-pass-plugin={tuner.path}", f"-policybridge-sites={log}"]
    assert subprocess.run([*words, *loading], capture_output=True, check=True).stdout == plain
    assert log.read_text().count("\n") > 8


@pytest.mark.parametrize("passes", ["inliner-wrapper", "module-inline", "default<Oz>"])
def test_where_no_advisor_of_ours_asks_the_bitcode_is_that_of_a_plain_run(
    tuner: Tuner, source: Path, passes: str
) -> None:
    module = emit(tuner.major, source, tuner.folder / "module.bc")
    words = [need(f"opt-{tuner.major}"), f"-passes={passes}", str(module), "-o", "-"]
    plain = subprocess.run(words, capture_output=True, check=True).stdout
    loading = [*words, f"-load-pass-plugin={tuner.path}"]
    unreachable = ["-policybridge-server=socket:none", "-policybridge-policy=x"]
    assert subprocess.run([*loading, *unreachable], capture_output=True, check=True).stdout == plain
    if passes == "module-inline":
        log = f"-policybridge-sites={tuner.folder / 'sites'}"
        assert subprocess.run([*loading, log], capture_output=True, check=True).stdout == plain


def test_compiling_without_optimisation_asks_nothing(tuner: Tuner, source: Path) -> None:
    made = tuner.logged(source, "-O0", decisions=tuner.write({"0" * 16: True}, "module.c"))
    assert (made.status, made.said, made.output) == (0, "", tuner.plain(source, "-O0"))


def test_a_real_library_compiles_under_a_store_that_turns_every_decision(tuner: Tuner, demo: Path) -> None:
    module = emit_demo(tuner.major, "libunwind/src/libunwind.cpp", demo)
    log = tuner.logged(module, "-Oz", "-x", "ir").sites
    assert log.path.endswith("libunwind.cpp")
    store = tuner.write(flipped(log, ""), log.path)
    made = tuner.logged(module, "-Oz", "-x", "ir", decisions=store)
    assert made.status == 0
    assert 0 < made.sites.applied <= made.sites.of == len({*log.keys})

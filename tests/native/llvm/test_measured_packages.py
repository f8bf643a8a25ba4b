"""tests.measures.packages builds a package without and with a tuned store, and counts what its tests execute."""

from dataclasses import replace
from pathlib import Path

import pytest

from policybridge_core.errors import PreconditionError
from policybridge_train.corpus.debian.command import default_list
from policybridge_train.corpus.parts import Part, part_of
from tests.conftest import RunningServer
from tests.measures import packages_policy, programs_policy
from tests.measures.compile_instructions import instructions, ways
from tests.measures.packages import Bench, Package, Recipe, read_recipes
from tests.native.conftest import Target
from tests.native.llvm.plugins import built_plugin, need
from tests.repositories import answering, write_python

_SOURCE = """
int shown(int);
static int twice(int v) { return shown(v) + shown(v + 1) + shown(v - 1); }
int one(int v) { return twice(v) ^ twice(3); }
int two(int v) { return twice(2 * v) + v; }
int shown(int v) { return v * 7; }
static int step(int v) {
  int s = v;
  for (int i = 0; i < v; ++i)
    s += shown(s ^ i) * shown(s + i) + (s << shown(i));
  return s;
}
int main(int count, char **words) { return one(step(count)) == two(step(words[0][0])); }
"""
_RECIPE = Recipe(
    language="c",
    configure="echo configured > by",
    build="$CC $CFLAGS -c program.c && $CC $LDFLAGS -o program program.o",
    linked=["program"],
    check="cat by && ./program",
    count="$COUNT ./program",
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("policies")
    write_python(repository, "never", answering("0"))
    return repository


@pytest.fixture
def package(tmp_path: Path) -> Package:
    for tool in ("clang-22", "valgrind", "strip", "size"):
        need(tool)
    source = tmp_path / "tiny" / "source"
    source.mkdir(parents=True)
    (source / "program.c").write_text(_SOURCE, encoding="utf-8")
    (source.parent / "source.done").touch()
    return Package("tiny", _RECIPE, tmp_path)


@pytest.fixture
def bench(native: Target, package: Package) -> Bench:
    return Bench(package, built_plugin(native, "inliner", "22"), 4)


def with_recipe(bench: Bench, recipe: Recipe) -> Bench:
    return replace(bench, package=replace(bench.package, recipe=recipe))


def test_a_package_is_built_tuned_tested_and_counted_and_a_later_call_repeats_no_step(bench: Bench) -> None:
    found = bench.measure()
    assert found.tuned.text <= found.plain.text < found.plain.file
    assert min(found.plain.instructions, found.tuned.instructions) > 1000
    nothing = Recipe("c", "false", "false", ["program"], "false", "false")
    assert with_recipe(bench, nothing).measure() == found


def test_a_package_whose_own_tests_fail_is_told_with_its_log(bench: Bench) -> None:
    recipe = Recipe("c", _RECIPE.configure, _RECIPE.build, ["program"], "echo broken && false", _RECIPE.count)
    with pytest.raises(PreconditionError, match=r"ended with 1; see .*plain\.log"):
        with_recipe(bench, recipe).measure()
    assert "broken" in (bench.package.work / "tiny/plain.log").read_text(encoding="utf-8")


def test_a_program_that_the_build_does_not_make_is_named(bench: Bench) -> None:
    recipe = Recipe("c", _RECIPE.configure, _RECIPE.build, ["another"], _RECIPE.check, _RECIPE.count)
    with pytest.raises(PreconditionError, match=r"the build has made no .*another"):
        with_recipe(bench, recipe).measure()


@pytest.mark.parametrize("kind", packages_policy.KINDS)
def test_a_package_is_built_without_lto_or_with_it_and_only_a_policy_that_is_there_decides(
    native: Target, package: Package, server: RunningServer, kind: packages_policy.Kind
) -> None:
    need("ld.lld-22")
    bench = packages_policy.Bench(package, kind, "never", built_plugin(native, "inliner", "22"), server.socket)
    found = bench.measure()
    for size in (found.plain, found.policy):
        assert size.code < size.text < size.file
    with pytest.raises(PreconditionError, match=f"missing-{kind}.log"):
        replace(bench, policy="missing").measure()


def test_a_compile_executes_more_instructions_with_the_plugin(bench: Bench) -> None:
    folder, store = bench.package.work / "tiny/source", bench.package.work / "empty.db"
    store.write_text("policybridge-decisions 1\n", encoding="ascii")
    counts = {
        way: instructions(["clang-22", "-Oz", "-c", "program.c", "-o", "/dev/null", *more], folder)
        for way, more in ways(bench.plugin, store).items()
    }
    assert counts["plain"] > 1_000_000
    assert counts["plugin"] > counts["plain"]
    assert counts["store"] > counts["plain"]


def test_each_package_names_its_language_and_what_is_linked() -> None:
    recipes = read_recipes()
    assert {recipe.language for recipe in recipes.values()} == {"c", "c++"}
    assert all(recipe.linked for recipe in recipes.values())
    assert all("$COUNT " in recipe.count for recipe in recipes.values() if recipe.count)


def test_packages_whose_programs_are_measured_are_held_out_and_in_no_other_list() -> None:
    others = {*read_recipes(), *(wanted.name for wanted in default_list())}
    recipes = programs_policy.read_recipes()
    assert {part_of(name) for name in recipes} == {Part.HELD_OUT}
    assert not others & recipes.keys()


def test_programs_of_a_package_are_checked_once_and_a_copy_counts_as_none(
    native: Target, package: Package, server: RunningServer
) -> None:
    plugins = built_plugin(native, "inliner", "22").parent
    bench = programs_policy.Bench(package.work, plugins, "never", server.socket, 1)
    build = "$CC $CFLAGS -c program.c && $CC -o program program.o && mkdir -p installed && cp program installed"
    found = bench.measure("tiny", programs_policy.Built("c", build))
    assert [Path(program.name).name for program in found.programs] == ["program"]
    assert bench.measure("tiny", programs_policy.Built("c", "false")) == found
    with pytest.raises(PreconditionError, match="the plain build ended with status 1"):
        replace(bench, policy="missing").measure("tiny", programs_policy.Built("c", "false"))

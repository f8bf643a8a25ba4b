"""Who can be compared, and how each is named."""

from pathlib import Path

import pytest

from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError
from policybridge_train.compiling.compilation import Plain
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.decider import Compilation
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.policy import ByPolicy
from policybridge_train.compiling.store import ByStore
from policybridge_train.farms.local import LocalFarm
from policybridge_train.scoring import contenders
from policybridge_train.scoring.contenders import Contender, Settings
from policybridge_train.scoring.repeating import in_shell

_EMPTY = "policybridge-decisions 1\n"


def parse_contender(text: str, settings: Settings) -> Contender:
    return contenders.parse_contender(text, settings, LocalFarm())


def compilation(contender: Contender, compiler: Compiler, module: Module) -> Compilation:
    return contender.decider.compilation(CompileTool(compiler), module, Path("x.o"))


def test_a_contender_is_known_by_its_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a store").write_text(_EMPTY)
    settings = Settings(server="socket:s.sock")
    assert parse_contender("default", settings).decider == Plain()
    assert parse_contender("flag:-mllvm,-x=3", settings).decider == Plain(("-mllvm", "-x=3"))
    stored, served = parse_contender("a store", settings), parse_contender("inliner@7", settings)
    assert isinstance(stored.decider, ByStore)
    assert stored.argument == str(tmp_path / "a store")
    assert isinstance(served.decider, ByPolicy)
    assert served.decider.server == f"socket:{tmp_path}/s.sock"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("inliner", InvalidError, "--server"),
        ("flag:", InvalidError, "flag:-mllvm"),
        ("away.db", NotFoundError, "no store at away.db"),
        ("a/b", NotFoundError, "no store at a/b"),
        ("broken", InvalidError, "broken"),
    ],
)
def test_what_is_no_contender_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kind: type[PolicyBridgeError], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken").write_text("no store")
    with pytest.raises(kind, match=said):
        parse_contender(text, Settings())


def test_flags_stand_in_the_command(tmp_path: Path) -> None:
    compiler = Compiler.find("zig")
    module = Module("a b.c", tmp_path, ("-Oz", "-triple", "x86_64-linux"))
    made = compilation(parse_contender("flag:-mllvm,-inline-threshold=15", Settings()), compiler, module)
    assert in_shell(made.again).endswith(
        f"-Oz -triple x86_64-linux -mllvm -inline-threshold=15 -o x.o -x ir '{tmp_path}/a b.c.bc'"
    )
    assert made.way == "plain"


def test_a_store_by_site_needs_the_plugin_and_says_so(tmp_path: Path) -> None:
    section = "module llvm={} level=Oz by=site digest=- path=lib/a.c\n0123456789abcdef inline f g\n"
    compiler, store = Compiler.find("zig"), tmp_path / "tuned.db"
    store.write_text(_EMPTY + section.format(compiler.major))
    stored = parse_contender(str(store), Settings())
    with pytest.raises(PolicyBridgeError, match=r"policybridge-inliner-\d+\.so"):
        compilation(stored, compiler, Module("p/lib/a.c", tmp_path, ("-Oz",)))
    other = compilation(stored, compiler, Module("p/lib/b.c", tmp_path, ("-Oz",)))
    assert other.way == "plain"


def test_a_store_by_sequence_is_applied_in_the_interactive_mode(tmp_path: Path) -> None:
    section = "module llvm={} level=Oz by=sequence digest=- path=p/a.c\n0123456789abcdef.0 inline f g\n"
    compiler, store = Compiler.find("zig"), tmp_path / "tuned.db"
    store.write_text(_EMPTY + section.format(compiler.major))
    made = compilation(parse_contender(str(store), Settings()), compiler, Module("p/a.c", tmp_path, ("-Oz",)))
    assert made.way == "interactive"

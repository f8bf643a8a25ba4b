"""The tiling pass in stock mlir-opt: the output is that of the default tile, whatever happens to the server."""

import json
import socket
import subprocess
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_server.ledger.trajectory import DecisionBatch
from tests.conftest import RunningServer, ServerFactory
from tests.native.conftest import BUILD, MLIR_MAJOR, ROOT, Target, build_grpc
from tests.native.llvm.plugins import made_at_a_silent_server
from tests.native.mlir.conftest import Plugin, run_mlir
from tests.native.mlir.modules import ODD, OPERATIONS, library, suite

DEFAULT = "default=32"
SEVEN = "sizes=0,4,8,16,32,64,128 default=32"


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep to the test what it learns about its servers."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "a module.mlir"
    path.write_text(suite())
    return path


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tile the suite by 32, by stock mlir-opt alone."""
    folder = tmp_path_factory.mktemp("stock")
    (folder / "suite.mlir").write_text(suite())
    (folder / "library.mlir").write_text(library(32))
    preloaded = f"--transform-preload-library=transform-library-paths={folder / 'library.mlir'}"
    done = run_mlir([preloaded, "--transform-interpreter", str(folder / "suite.mlir")])
    assert (done.status, done.said) == (0, "")
    assert done.text.count("scf.for") == 32
    return done.text


def decisions(ledger: Path, policy: str) -> DecisionBatch:
    """Give the decisions of the last session of a policy."""
    with LedgerReader(ledger) as reader:
        (batch,) = reader.trajectory(list(reader.sessions(Query(policy=policy)))[-1]).batches
        return batch


def test_by_default_the_pass_decides_where_the_policy_has_a_form_and_the_server_where_it_has_none(
    plugin: Plugin, module: Path
) -> None:
    texts = [plugin.tile(module, "trees", SEVEN, evaluate="there").text]
    for policy, expected in (("trees", "client"), ("echo", None)):
        made = plugin.tile(module, policy, SEVEN, fallback="error")
        assert (made.status, made.said) == (0, "")
        texts.append(made.text)
        with LedgerReader(plugin.ledger) as reader:
            session = list(reader.sessions(Query(policy=policy)))[-1]
        assert session.labels.get("evaluated") == expected
    assert texts[0] == texts[1]


def test_an_echo_of_the_default_tiles_as_stock_mlir_does_by_itself(plugin: Plugin, module: Path, stock: str) -> None:
    made = plugin.tile(module, "echo", DEFAULT)
    assert (made.status, made.said) == (0, "")
    assert made.text == stock


@pytest.mark.parametrize("fallback", ["default", "error"])
def test_outside_of_a_policys_scope_the_default_tiles_stand_in_and_one_line_tells_why(
    plugin: Plugin, module: Path, stock: str, tmp_path: Path, fallback: str
) -> None:
    stats = tmp_path / "stats.json"
    made = plugin.tile(module, "old-trees", SEVEN, fallback=fallback, stats=str(stats))
    fault = f"old-trees@1 is for llvm 5 or 6, and the compilation has '{MLIR_MAJOR}' ([scope] in policy.toml)"
    assert (made.status, made.text) == (0, stock)
    assert made.said == f"policybridge: all decisions are the default tile: {fault}\n"
    assert json.loads(stats.read_text())["fallback"]["reason"] == fault


def test_an_echo_of_no_tile_leaves_the_module_as_it_is(plugin: Plugin, module: Path, tmp_path: Path) -> None:
    made = plugin.tile(module, "echo", stats=str(tmp_path / "stats of %m.json"))
    assert (made.status, made.said) == (0, "")
    assert made.text == run_mlir([str(module)]).text
    (written,) = tmp_path.glob("stats of *.json")
    told = json.loads(written.read_text())
    # No size changes a loop of at most 4 iterations, so that nobody is asked about it.
    asked = 2 * sum(extent > 4 for operation in OPERATIONS for extent in operation.extents)
    assert (told["decisions"], len(told["sessions"]), told["fallback"]) == (asked, 1, None)


def test_statistics_go_through_a_link_and_do_not_take_its_place(plugin: Plugin, module: Path, tmp_path: Path) -> None:
    link, behind = tmp_path / "link", tmp_path / "behind"
    behind.write_text("x" * 100_000)
    link.symlink_to("behind")
    assert plugin.tile(module, "echo", stats=str(link)).status == 0
    assert json.loads(behind.read_text())["decisions"] > 0
    assert link.is_symlink()


def test_every_decision_is_recorded_with_its_site_and_what_the_policy_was_told(plugin: Plugin, module: Path) -> None:
    assert plugin.tile(module, "eights", DEFAULT, labels="project=x").status == 0
    batch = decisions(plugin.ledger, "eights")
    session = batch.sessions[0]
    assert session.labels["client"].startswith("policybridge-mlir-22.")
    assert session.outcome is not None
    assert (session.outcome.status, session.outcome.values["asked"]) == ("ok", len(batch))
    sites = list(dict.fromkeys(batch.contexts))
    assert sites[:4] == [f"{name}/linalg.matmul/0" for name in ("matmul", "matmul_tensors", "narrow", "narrow_tensors")]
    rows = batch.observations[np.array(batch.contexts) == "convolved/linalg.conv_2d_nhwc_hwcf/0"]
    told = {name: rows[name].reshape(len(rows), -1).tolist() for name in rows.dtype.names or ()}
    name = sha256(b"linalg.conv_2d_nhwc_hwcf").digest()[:8]
    assert told["operation"] == [[int.from_bytes(name, "big", signed=True)]] * 5
    assert told["loop"] == [[1], [2], [3], [5], [6]]
    assert told["extent"] == [[40], [40], [40], [5], [5]]
    assert told["parallel"] == [[1], [1], [1], [0], [0]]
    assert (told["kind"][0], told["element_bits"][0], told["default"][0]) == ([3], [32], [4])
    assert told["extents"][0] == [1, 40, 40, 40, 3, 5, 5, 0]
    assert [row[:4] for row in told["tiles"]] == [[0] * 4, [0, 8, 0, 0], [0, 8, 8, 0], [0, 8, 8, 8], [0, 8, 8, 8]]
    assert told["stride"][:3] == [[2 * 83 * 5, 0, 40 * 40, 0], [2 * 5, 0, 40, 0], [0, 1, 1, 0]]
    assert told["operand_bytes"][0] == [4 * 81 * 83 * 5, 4 * 3 * 5 * 5 * 40, 4 * 40 * 40 * 40, 0]
    assert told["tile_bytes"][3] == [4 * 8 * 8 * 3 * 5 * 5, 4 * 8 * 3 * 5 * 5, 4 * 8 * 8 * 8, 0]


def test_what_explores_is_legal_and_the_same_for_the_same_seed(plugin: Plugin, module: Path) -> None:
    made = [
        plugin.tile(module, "usual", "sizes=0,4,8,16,32,64,128", explore=f"epsilon=1,seed={seed}") for seed in (1, 1, 2)
    ]
    assert [(each.status, each.said) for each in made] == [(0, "")] * 3
    assert made[0].text == made[1].text != made[2].text


def test_operations_that_cannot_be_tiled_by_any_size_are_left(plugin: Plugin, tmp_path: Path) -> None:
    (tmp_path / "odd.mlir").write_text(ODD)
    made = plugin.tile(tmp_path / "odd.mlir", "eights", DEFAULT)
    assert (made.status, made.said) == (0, "")
    assert made.text == run_mlir([str(tmp_path / "odd.mlir")]).text


def test_names_may_have_any_bytes_and_a_file_many_modules(plugin: Plugin, tmp_path: Path) -> None:
    shape = "memref<64x64xf32>"
    text = (
        'module @inner {{ func.func @"{name}"(%a: {shape}) {{\n'
        "  linalg.matmul ins(%a, %a : {shape}, {shape}) outs(%a : {shape})\n  return\n}} }}\n"
    )
    names = ("é/\\FF\\00%s ", "plain")
    path = tmp_path / "many.mlir"
    path.write_text("// -----\n".join(text.format(name=name, shape=shape) for name in names))
    pass_ = "builtin.module(policybridge-tile)"
    words = [f"--load-pass-plugin={plugin.path}", f"--pass-pipeline={pass_}", "--split-input-file", str(path)]
    made = run_mlir(words, {"POLICYBRIDGE_SERVER": plugin.server, "POLICYBRIDGE_POLICY": "eights"})
    assert (made.status, made.said, made.text.count("scf.for")) == (0, "", 6)
    with LedgerReader(plugin.ledger) as reader:
        sessions = list(reader.sessions(Query(policy="eights")))[-2:]
        found = [{*batch.contexts} for session in sessions for batch in reader.trajectory(session).batches]
    assert found == [{"é/?\x00%s /linalg.matmul/0"}, {"plain/linalg.matmul/0"}]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server": "socket:/nowhere/s"}, "/nowhere/s"),
        ({"server": ""}, "the option server or POLICYBRIDGE_SERVER is not set"),
        ({"timeout": "soon"}, "POLICYBRIDGE_TIMEOUT is a number of seconds"),
        ({"policy": "nobody"}, "no policy 'nobody'"),
        ({"policy": "failing"}, "no such feature"),
        ({"policy": "wild"}, "the policy advises size 17 of 6; it is to be 0 to 5"),
        ({"policy": "negative"}, "the policy advises size -1 of 6"),
    ],
)
def test_without_advice_the_default_tile_stands_in_or_the_pass_fails(
    plugin: Plugin, module: Path, stock: str, settings: dict[str, str], message: str
) -> None:
    made = plugin.tile(module, options=DEFAULT, **settings)
    assert (made.status, made.text) == (0, stock)
    assert made.said.startswith("policybridge: all decisions are the default tile: ")
    assert (made.said.count("\n"), message in made.said) == (1, True)
    failed = plugin.tile(module, options=DEFAULT, fallback="error", **settings)
    assert (failed.status, failed.text, failed.said.count("\n")) == (1, "", 1)
    assert message in failed.said


@pytest.fixture
def own_server(repository: Path, server_factory: ServerFactory, native: Target) -> RunningServer:
    """Give a server that the test may kill, which the plugin reaches over gRPC, too."""
    build_grpc(native)
    return server_factory(repository)


@pytest.mark.parametrize("transport", ["socket", "grpc"])
def test_a_server_that_is_killed_in_the_middle_leaves_the_default_tile(
    plugin: Plugin, own_server: RunningServer, module: Path, tmp_path: Path, transport: str
) -> None:
    stats = tmp_path / "stats.json"
    # What is advised before the end is the default as well, so that all of the output is.
    made = plugin.tile(module, "dying", "", server=getattr(own_server, transport), stats=str(stats))
    assert (made.status, made.text) == (0, run_mlir([str(module)]).text)
    told = json.loads(stats.read_text())
    assert (told["decisions"], told["fallback"]["status"]) == (9, 14)
    assert made.said.startswith(f"policybridge: {told['fallback']['decisions']} decisions are the default tile: ")


@pytest.mark.parametrize("answer", [b"", b"\xff" * 65536], ids=["silent", "hostile"])
def test_a_server_that_hangs_or_sends_garbage_leaves_the_default_tile(
    plugin: Plugin, module: Path, stock: str, tmp_path: Path, answer: bytes
) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "s"))
        listening.listen()
        words = [f"--load-pass-plugin={plugin.path}", f"--pass-pipeline=builtin.module(policybridge-tile{{{DEFAULT}}})"]
        variables = {"SERVER": f"socket:{tmp_path}/s", "POLICY": "echo", "TIMEOUT": "0.3"}
        process = subprocess.Popen(
            [
                "env",
                *(f"POLICYBRIDGE_{name}={value}" for name, value in variables.items()),
                "mlir-opt-22",
                *words,
                module,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        listening.settimeout(60)
        connection, _ = listening.accept()
        with connection:
            # The plugin hangs up as soon as it has seen that this is no answer.
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(answer)
            text, said = process.communicate(timeout=60)
    assert (process.returncode, text) == (0, stock)
    assert said.startswith("policybridge: all decisions are the default tile: ")
    assert said.count("\n") == 1


def test_a_server_that_hangs_is_waited_for_once_a_minute_or_always(
    plugin: Plugin, module: Path, stock: str, tmp_path: Path
) -> None:
    def compiled(retry_after: str = "", **settings: str) -> tuple[str, str]:
        made = plugin.tile(module, "echo", f"{DEFAULT} {retry_after and f'retry-after={retry_after}'}", **settings)
        return made.text, made.said

    assert made_at_a_silent_server(tmp_path, compiled) == {stock}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("sizes=4,8", "the option sizes is 0 and larger sizes in increasing order, not 4,8"),
        ("sizes=0,8,8", "not 0,8,8"),
        ("default=7", "the option default names sizes of the option sizes, which is 0,4,8,16,32,64, not 7"),
        ("fallback=maybe", "the option fallback or POLICYBRIDGE_FALLBACK is default or error, not 'maybe'"),
    ],
)
def test_sizes_without_a_meaning_are_an_error(plugin: Plugin, module: Path, options: str, message: str) -> None:
    made = plugin.tile(module, "echo", options)
    assert (made.status, made.text) == (1, "")
    assert message in made.said


def test_a_build_without_mlirs_headers_says_which_package_has_them(library: Path, tmp_path: Path) -> None:
    configure = ["cmake", "-S", str(ROOT / "clients"), "-B", str(tmp_path), "-G", "Ninja", "-DPOLICYBRIDGE_MLIR=19"]
    off = [f"-DPOLICYBRIDGE_{part}=OFF" for part in ("GRPC", "ONNX", "LAUNCHER")]
    done = subprocess.run([*configure, *off], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "apt-get install libmlir-19-dev" in done.stderr
    assert BUILD in library.parents

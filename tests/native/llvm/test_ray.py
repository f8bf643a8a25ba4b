"""Compiles on a Ray cluster of two raylets; what comes out is what one machine makes."""

import json
import os
import subprocess
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import pytest
import ray

from policybridge_client.cli import main
from policybridge_core.errors import NotFoundError, PreconditionError, UnavailableError
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.reader import LedgerReader
from policybridge_train.compiling.compilation import Plain
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.job import FarmCompiler, Wanted
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.debian.command import by_farm
from policybridge_train.corpus.debian.jobs import ToolsRecipe
from policybridge_train.corpus.debian.package import Wanted as WantedPackage
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.writing import CorpusWriter
from policybridge_train.farms.contract import Farm, FarmOptions, Leader
from policybridge_train.farms.local import LocalFarm
from policybridge_train.farms.options import add_cluster
from policybridge_train.farms.ray_farm import actors
from policybridge_train.farms.ray_farm import nodes as farm_nodes
from policybridge_train.farms.ray_farm.actors import NodeServer
from policybridge_train.farms.ray_farm.farm import RayFarm
from policybridge_train.farms.ray_farm.nodes import Nodes, capacity
from policybridge_train.farms.ray_farm.slots import Slots
from policybridge_train.learning.record import Record
from policybridge_train.processes.process import Status
from policybridge_train.processes.threads import for_each
from policybridge_train.trajectories.server import TrainingServer
from tests.client.compilers import left_behind
from tests.conftest import command
from tests.kills import nodes
from tests.locks import one_at_a_time
from tests.native.conftest import ROOT, Target
from tests.native.llvm.plugins import built_plugin, need
from tests.native.llvm.ray_jobs import Asking, Lacking, Placing, Reading, Sleeping
from tests.ray_cluster import RayCluster, started_cluster
from tests.repositories import answering, write_python
from tests.server.publishing.policies import wait_for, write_policy
from tests.serving import started
from tests.training.corpora import write_corpus
from tests.training.corpus.archives import write_archive
from tests.training.corpus.projects import HELPER, MAIN
from tests.training.ended import wait_until_gone
from tests.training.tuning.boxes import boxes

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning:ray")
"""Ray leaves some of its files to the end of the process."""

SOURCES = {
    "project 0/a.c": boxes("a"),
    "project 1/b.c": boxes("b"),
    "project 1/c.c": boxes("c"),
    "project 7/v.c": boxes("v"),
}
"""By the split's rule, project 7 is for validation."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    # Clusters that start on one machine at the same moment may take the same ports.
    with one_at_a_time(ROOT / ".cache" / "ray"), started_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return write_corpus(tmp_path_factory.mktemp("ray") / "a corpus", SOURCES, compiler=need("clang-22"))


@pytest.fixture(scope="module")
def plugins(native: Target) -> Path:
    return built_plugin(native, "inliner", "22").parent


@dataclass(frozen=True)
class Trained:
    """The result of `tests.kills.nodes`: its exit status, its output, and the folder with its runs."""

    status: int
    said: str
    output: Path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cluster: RayCluster, corpus: Corpus, plugins: Path) -> Trained:
    output = tmp_path_factory.mktemp("trained") / "two runs"
    words = ["--corpus", str(corpus.folder), "--output", str(output), "--kill", "0"]
    words += ["--compiler", "clang-22", "--plugins", str(plugins)]
    for setting in ("iterations=1", "compiles=3", "trees=20"):
        words += ["--set", setting]
    with redirect_stdout(StringIO()) as said:
        status = nodes.run(nodes.options(words), cluster)
    return Trained(status, said.getvalue(), output)


def test_a_run_on_two_nodes_of_which_one_is_killed_ends_with_the_versions_of_a_run_without_ray(
    trained: Trained,
) -> None:
    assert trained.status == 0, trained.said
    assert "killed a node 0 s after iteration 0" in trained.said
    assert "2 and 2 versions: all the same" in trained.said


def test_scores_by_ray_are_those_of_one_machine(
    tmp_path: Path, cluster: RayCluster, corpus: Corpus, plugins: Path, trained: Trained
) -> None:
    def scored(server: str, *more: object) -> list[list[Any]]:
        words = ["--corpus", corpus.folder, "--plugins", plugins, "--no-cache", "--server", server, *more]
        candidates = ["--candidate", "inline@1", "--candidate", "flag:-mllvm,-inline-threshold=500"]
        assert main([str(word) for word in ["score", *words, *candidates, "--json", tmp_path / "json"]]) == 0
        found = json.loads((tmp_path / "json").read_text())["comparisons"]
        return [[(row["before"]["digest"], row["after"]["digest"]) for row in each["modules"]] for each in found]

    listen = ["--grpc", "127.0.0.1:0", "--socket", tmp_path / "s"]
    with started("--repository", trained.output / "here" / "policies", *listen) as (_, (grpc, socket)):
        assert (found := scored(socket)) == scored(grpc, "--ray", cluster.address)
    assert [len(rows) for rows in found] == [len(SOURCES)] * 2
    assert all(all(digest) for rows in found for digest in rows)


def test_a_store_that_is_tuned_by_ray_from_a_policy_is_that_of_one_machine(
    tmp_path: Path, cluster: RayCluster, corpus: Corpus, plugins: Path
) -> None:
    def tuned(name: str, *more: object) -> bytes:
        words = ["--store", tmp_path / name, "--corpus", corpus.folder, "--compiler", "clang-22", "--plugins", plugins]
        words += ["--from", "inliner", "--budget", 4, "--jobs", 1, "--linked", "--module", "*a.c*", *more]
        assert main([str(word) for word in ["autotune", *words]]) == 0
        return (tmp_path / name).read_bytes()

    assert tuned("ray.db", "--ray", cluster.address) == tuned("here.db")


def test_a_module_is_compiled_with_its_profile_on_a_node_too(farm: RayFarm, corpus: Corpus, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_text("one_a:1000:10\n 0: 10\n")
    name = CorpusWriter(corpus.folder).keep_profile(profile)
    module = corpus.modules[0]
    module = replace(module, arguments=(*module.arguments, f"-fprofile-sample-use={name}"))
    recipe = CompileTool(Compiler.find("clang-22")).recipe
    made = [FarmCompiler(each, recipe).compile(module, Plain(), Wanted()) for each in (farm, LocalFarm())]
    assert made[0].status is Status.OK, made[0].message
    assert made[0].digest == made[1].digest


def test_results_of_nodes_are_in_the_run_and_sessions_of_their_compilers_are_not_in_its_ledger(
    trained: Trained,
) -> None:
    for name, here in (("ray", False), ("here", True)):
        folder = trained.output / name
        with Record(folder / "run.db", {}) as record:
            assert (len(record.iterations()), record.compiles() > 0) == (2, True)
        with LedgerReader(folder / "ledger.db") as reader:
            assert bool(list(reader.sessions(Query()))) == here


@pytest.fixture
def farm(cluster: RayCluster) -> Iterator[RayFarm]:
    with RayFarm(FarmOptions(cluster.address, memory=64)) as farm:
        yield farm


def test_packages_that_nodes_build_come_into_the_corpus_of_one_machine_though_a_process_is_killed(
    farm: RayFarm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("packages")
    folder.chmod(0o755)
    mark = folder / "mark"
    # Whoever builds it first is killed: the parent of make.
    deadly = f"prog: main.o\n\tmkdir {mark} && kill -9 $$(ps -o ppid= -p $$PPID) || $(CC) -shared -o $@ $^\n"
    both = {"h.c": HELPER, "Makefile": "libx.a: h.o\n\t$(AR) rcs $@ $^\n"}
    packages = {"dies": {"main.c": HELPER + MAIN, "Makefile": deadly}, "one": both, "same": both, "broken": {"x": ""}}
    write_archive(folder, packages)
    wanted = [WantedPackage(name) for name in ("same", "dies", "one", "broken")]
    recipe = replace(ToolsRecipe.of(FrontEnd(Compiler.find("clang-22"))), etc=folder / "etc", lists=folder / "lists")

    def built(name: str, farm: Farm) -> tuple[list[object], Corpus]:
        writer = CorpusWriter(folder / name)
        rows = by_farm(farm, wanted, recipe, seconds=300, writer=writer, logs=folder / name / "logs")
        return [replace(row, seconds=0) for row in rows], writer.write()

    mark.mkdir()
    with LocalFarm(FarmOptions(jobs=1)) as local:
        rows, corpus = built("here", local)
    mark.rmdir()
    assert built("ray", farm)[0] == rows
    assert mark.is_dir()
    found = Corpus.open(folder / "ray")
    assert [(one.name, one.digest) for one in found.modules] == [(one.name, one.digest) for one in corpus.modules]
    assert [one.project for one in found.modules] == ["dies", "same"]
    assert (found.programs, found.failures) == (corpus.programs, corpus.failures)
    assert (folder / "ray" / "logs" / "dies.log").exists()


def test_a_job_whose_process_was_killed_is_done_by_another_one_which_has_its_file(
    farm: RayFarm, tmp_path: Path
) -> None:
    file = tmp_path / "a file"
    file.write_text("its text")
    assert farm.do(Reading(farm.share_file(file), tmp_path / "mark")) == "its text"


def test_a_file_is_written_once_to_a_folder_of_the_node_which_is_there_until_the_run_ends(
    cluster: RayCluster, tmp_path: Path
) -> None:
    file = tmp_path / "a file"
    file.write_text("its text")
    with RayFarm(FarmOptions(cluster.address, jobs=1, memory=64)) as farm:
        job = Placing(farm.share_file(file))
        file.unlink()
        (path, _, text) = found = farm.do(job)
        assert (path.name, text, farm.do(job)) == ("a file", "its text", found)
        folder = next(each for each in path.parents if each.name.startswith("policybridge-ray-"))
        assert folder.parent == Path(gettempdir())
    wait_for(lambda: not folder.exists())


def test_the_server_of_a_node_keeps_its_ledger_for_half_an_hour_at_most_and_it_goes_with_the_run(
    cluster: RayCluster, tmp_path: Path
) -> None:
    write_policy(tmp_path / "policies")
    with (
        TrainingServer(tmp_path, tmp_path / "policies", "127.0.0.1") as server,
        RayFarm(FarmOptions(cluster.address, jobs=1, memory=64)) as farm,
    ):
        farm.lead(server)
        ledger = farm.do(Asking(server.socket, "adder@1"))
        assert ledger not in {None, server.ledger}
        assert ledger is not None
        assert ledger.exists()
        (command,) = left_behind(ledger)
        assert "--ledger-max-age 1800" in command
    wait_for(lambda: not ledger.exists())
    assert server.ledger.exists()


@pytest.mark.usefixtures("farm")
def test_a_node_serves_the_policies_of_the_repository_and_neither_python_nor_bundled_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors, "_ARRIVES_WITHIN", 0.1)
    write_policy(tmp_path / "policies")
    write_python(tmp_path / "policies", "python", answering("1"))
    words = ["--demo", "--repository", tmp_path / "policies", "--allow-python", "--grpc", "127.0.0.1:0"]
    with started(*words) as (_, (grpc,)):
        node = NodeServer("0" * 32, Leader(grpc, grpc))
        try:
            wait_for(lambda: node.serving("adder", again=False).error is None)
            for policy in ("python", "inliner"):
                # What arrives may be listed before it is refused.
                wait_for(lambda policy=policy: node.serving(policy, again=False).error is not None)  # type: ignore[misc]
                with pytest.raises(NotFoundError, match=f"has no {policy} .*no Python code and no bundled policies"):
                    node.serving(policy, again=False).given()
        finally:
            node.close()


def test_ray_sets_memory_aside_for_each_compiler_of_a_node(farm: RayFarm, tmp_path: Path) -> None:
    parser = ArgumentParser()
    add_cluster(parser)
    assert parser.parse_args([]).reserve == 1024
    (tmp_path / "mark").touch()
    farm.do(Reading(farm.share_file(tmp_path / "mark"), tmp_path / "mark"))
    whole: float = ray.cluster_resources()["memory"]  # type: ignore[no-untyped-call]
    wait_for(lambda: ray.available_resources()["memory"] == whole - farm.slots * (64 << 20))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("reserve", "compilers"), [(1024, 4), (512, 8), (256, 8)])
def test_a_node_has_the_compilers_for_which_it_has_memory_and_cores(reserve: int, compilers: int) -> None:
    node = {"Alive": True, "Resources": {"CPU": 8.0, "memory": float(4 << 30)}}
    assert capacity(node, reserve << 20) == compilers


@pytest.mark.usefixtures("cluster")
def test_a_local_cluster_is_this_machine_and_ends_with_the_command(corpus: Corpus) -> None:
    words = ["--corpus", corpus.folder, "--compiler", "clang-22", "--candidate", "flag:-mllvm,-inline-threshold=100"]
    words += ["--no-cache", "--jobs", 1, "--ray", "local"]
    nodes = set[str]()
    # Ray's sockets have short paths. Not in this process: Ray keeps the token of a local cluster in the process that
    # started it, which cannot join a cluster without one from then on.
    with TemporaryDirectory(prefix="pb-") as folder:
        environment = {**os.environ, "HOME": folder, "RAY_TMPDIR": folder}
        with subprocess.Popen(command("score", *words), env=environment, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                nodes.update(each for each in left_behind(folder) if "/raylet/raylet " in each)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
        assert (process.returncode, len(nodes)) == (0, 1)
        wait_until_gone(folder)


def test_when_compiles_are_stopped_those_on_nodes_end_and_no_others_begin(farm: RayFarm, tmp_path: Path) -> None:
    mark, stopping = tmp_path / "mark", threading.Event()

    def stop() -> None:
        while not mark.exists():
            if stopping.wait(0.05):
                return
        farm.running.end()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        with pytest.raises(PreconditionError, match="were stopped"):
            list(for_each(farm.do, [Sleeping(mark)] * 3, 2, farm.running))
    finally:
        stopping.set()
        thread.join()


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize(("run", "gone", "why"), [("no/folder", False, "No such file"), ("0" * 32, True, "exist any")])
def test_whoever_waits_for_a_slot_in_vain_is_told_why_the_last_process_died(
    monkeypatch: pytest.MonkeyPatch, run: str, gone: bool, why: str
) -> None:
    slots = Slots(0, "1 CPU")
    processes = Nodes(run, FarmOptions(jobs=1, memory=64), slots)
    if gone:
        # A node that goes after the look.
        node = {"NodeID": "e" * 56, "Alive": True, "Resources": {"CPU": 1.0, "memory": float(1 << 30)}}
        monkeypatch.setattr(farm_nodes, "cluster_nodes", lambda: [node])

    def told() -> str:
        with pytest.raises(UnavailableError) as caught:
            slots.take()
        return str(caught.value)

    processes.begin()
    try:
        wait_for(lambda: why in told())
    finally:
        processes.end()


def test_a_node_without_the_compiler_ends_the_run_and_is_named(farm: RayFarm) -> None:
    with pytest.raises(PreconditionError, match=r"the node \S+: there is no compiler 'c'"):
        farm.do(Lacking())
    assert farm.running.over


def test_nothing_looks_at_the_cluster_after_the_end_of_a_farm(
    cluster: RayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, slow, looking = farm_nodes.cluster_nodes, threading.Event(), threading.Event()

    def look() -> list[dict[str, Any]]:
        if slow.is_set():
            looking.set()
            threading.Event().wait(0.5)
        return given()

    monkeypatch.setattr(farm_nodes, "cluster_nodes", look)
    with RayFarm(FarmOptions(cluster.address, memory=64)) as farm:
        farm.do(Placing(farm.share_file(Path(__file__))))
        slow.set()
        assert looking.wait(60)
    assert "policybridge-ray" not in {each.name for each in threading.enumerate()}
    assert not ray.is_initialized()


def test_an_address_of_rays_client_is_refused_with_what_would_be_right(
    capsys: pytest.CaptureFixture[str], corpus: Corpus
) -> None:
    words = ["score", "--corpus", str(corpus.folder), "--candidate", "default", "--ray", "ray://host:10001"]
    assert main(words) == 2
    assert "give HOST:PORT, auto or local" in capsys.readouterr().err

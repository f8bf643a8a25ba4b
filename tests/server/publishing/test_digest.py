"""One number and one digest mean one advice: on every server, and for as long as a server runs."""

import os
import py_compile
from pathlib import Path

import numpy as np
import onnx
import pytest

from policybridge_core.errors import NotFoundError, PreconditionError
from tests.conftest import ServerFactory, running_server
from tests.repositories import answering, write_python
from tests.server.publishing.policies import TOML, adder, ask, client, identity, wait_for, write_adder, write_policy

RENAMED = TOML + '[rename]\nx = "y"\n[fill]\nx = 1000\n'


def test_two_servers_whose_policy_toml_advises_otherwise_give_two_digests(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    answers = set()
    for name, toml in (("one", TOML), ("other", RENAMED)):
        write_policy(tmp_path / name)
        (tmp_path / name / "adder" / "policy.toml").write_text(toml)
        with client(server_factory(tmp_path / name)) as server:
            answers.add(server.ask())
    (one, advice), (other, another) = answers
    assert (one.version, advice != another) == (other.version, True)
    assert one.digest != other.digest


def test_a_policy_toml_that_is_changed_changes_no_version_before_a_restart_and_every_digest_after(
    policies: Path, tmp_path: Path
) -> None:
    with running_server(policies, tmp_path, "--allow-publish") as running, client(running) as server:
        before = server.ask()
        (policies / "adder" / "policy.toml").write_text(RENAMED)
        server.repository.publish("adder", write_adder(tmp_path / "new", 200))
        assert server.ask("adder@1") == before
        assert server.ask()[0].digest == identity(tmp_path / "new")
    with running_server(policies, tmp_path) as running, client(running) as server:
        after = server.ask("adder@1")
        assert after[0].digest == identity(policies / "adder" / "1", RENAMED) != before[0].digest
        assert after[1] != before[1]


def test_the_log_says_that_a_changed_policy_toml_waits_for_a_restart(
    policies: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("watchfiles")
    logged = ""

    def told() -> bool:
        nonlocal logged
        logged += capfd.readouterr().err
        return "policy.toml of adder has changed; its versions stay unchanged" in logged

    with running_server(policies, tmp_path):
        (policies / "adder" / "policy.toml").write_text(RENAMED)
        wait_for(told)


def test_a_version_whose_files_were_changed_in_place_is_not_loaded_under_its_digest(
    policies: Path, server_factory: ServerFactory
) -> None:
    write_adder(policies / "adder" / "2", 200)
    with client(server_factory(policies)) as server:
        write_adder(policies / "adder" / "1", 300)
        with pytest.raises(PreconditionError, match="the files of adder@1 have changed since this server read them"):
            server.open("adder@1")
        assert server.ask()[1] == 200


def test_a_client_may_ask_for_a_version_by_its_digest(policies: Path, server_factory: ServerFactory) -> None:
    write_adder(policies / "adder" / "2", 200)
    digest = identity(policies / "adder" / "1")
    with client(server_factory(policies)) as server:
        assert server.ask(f"adder@{digest}")[1] == server.ask(f"adder@{digest[:19]}")[1] == 100
        for other in ("sha256:" + "0" * 64, "sha256:", digest[:12]):
            with pytest.raises(
                NotFoundError, match=f"no one version of policy 'adder' has the digest {other}; 1 is sha"
            ):
                server.open(f"adder@{other}")


def test_the_file_of_a_python_policy_lies_in_its_version(policies: Path, server_factory: ServerFactory) -> None:
    write_python(policies, "code", answering("1"), toml='[settings]\nfile = "../shared.py"')
    (policies / "code" / "shared.py").write_text(answering("2"))
    with client(server_factory(policies)) as server, pytest.raises(PreconditionError, match="outside of the version"):
        server.open("code")


def test_bytecode_beside_a_python_policy_does_not_answer_for_it(policies: Path, server_factory: ServerFactory) -> None:
    write_python(policies, "code", answering("observation['x'] + 1"))
    file = policies / "code" / "1" / "policy.py"
    times = (file.stat().st_atime_ns, file.stat().st_mtime_ns)
    py_compile.compile(str(file))
    # Python takes bytecode for that of a source of the same size and time, whatever the source says.
    file.write_text(answering("observation['x'] + 2"))
    os.utime(file, ns=times)
    with client(server_factory(policies)) as server:
        assert server.ask("code")[1] == 2


def test_each_version_of_a_python_policy_has_the_modules_beside_it(
    policies: Path, server_factory: ServerFactory
) -> None:
    for version in (1, 2):
        code = "from .helper import number\n" + answering("observation['x'] + number()")
        write_python(policies, "code", code, version=version)
        (policies / "code" / str(version) / "helper.py").write_text(f"def number():\n    return {version}\n")
    with client(server_factory(policies)) as server:
        first, second = server.open("code@1"), server.open("code@2")
        assert (ask(first), ask(second)) == (1, 2)
        digests = {each.version: each.digest for each in server.repository.show("code").versions}
    assert len(set(digests.values())) == 2
    assert not list(policies.rglob("*.pyc"))


@pytest.mark.parametrize("place", ["..", "absolute"])
def test_the_tensors_of_an_onnx_model_lie_in_its_version(
    policies: Path, server_factory: ServerFactory, place: str
) -> None:
    elsewhere = policies / "adder" / "own.bin"
    elsewhere.write_bytes(np.array([100], np.int64).tobytes())
    model = adder(100)
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.ClearField("int64_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    location = "../own.bin" if place == ".." else str(elsewhere)
    tensor.external_data.add(key="location", value=location)
    (policies / "adder" / "1" / "model.onnx").write_bytes(model.SerializeToString())
    with client(server_factory(policies)) as server, pytest.raises(PreconditionError, match=r"model\.onnx"):
        server.open()

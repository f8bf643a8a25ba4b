"""Unix sockets and pipes belong to the server's user alone, unless the operator says otherwise."""

import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.server.access.doors import opened, refused


def modes(folder: Path, *arguments: object) -> dict[str, str]:
    """Serve on a file of each kind; give their modes."""
    pipe = f"{folder / 'pipe'},policy=one,advice=int"
    files = ("--grpc", f"unix:{folder}/grpc", "--grpcio", f"unix:{folder}/grpcio", "--socket", f"{folder}/socket")
    with opened(folder, *files, "--pipe", pipe, *arguments, doors=()):
        names = ("grpc", "grpcio", "socket", "pipe.in", "pipe.out")
        return {name: f"{stat.S_IMODE((folder / name).stat().st_mode):04o}" for name in names}


@pytest.mark.parametrize(("given", "mode"), [([], "0600"), (["--socket-mode", "0660"], "0660")])
def test_the_mode_of_sockets_and_pipes_is_0600_unless_told_otherwise(given: list[str], mode: str) -> None:
    with TemporaryDirectory(prefix="pb-") as folder:
        assert set(modes(Path(folder), *given).values()) == {mode}


def test_the_operator_names_owner_and_group(tmp_path: Path) -> None:
    with TemporaryDirectory(prefix="pb-") as name:
        path = Path(name) / "socket"
        # Root may give a file to anybody, and any user to a group of its own.
        owner, group = (1, 2) if os.getuid() == 0 else (os.getuid(), [os.getgid(), *os.getgroups()][-1])
        given = ("--socket-owner", str(owner), "--socket-group", str(group))
        with opened(tmp_path, "--socket", path, *given, doors=()):
            found = path.stat()
            assert (found.st_uid, found.st_gid) == (owner, group)


def test_an_owner_that_there_is_not_and_a_mode_that_is_none_are_refused(tmp_path: Path) -> None:
    serve = ("--repository", tmp_path, "--socket", tmp_path / "socket")
    assert "no user 'nobody-here' to own the sockets" in refused(*serve, "--socket-owner", "nobody-here")
    assert "no group 'nobody-here' to own the sockets" in refused(*serve, "--socket-group", "nobody-here")
    assert "socket_mode" in refused(*serve, "--socket-mode", "rw")

"""A server over TLS that demands a token, for compilers that ask it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.certificates import Authority, token, write_tokens
from tests.native.llvm.plugins import ECHO
from tests.repositories import answering, write_python
from tests.serving import started


@dataclass(frozen=True)
class Served:
    """A server over TLS that demands a token, and on a socket; and the files of its clients."""

    tls: str
    socket: str
    folder: Path

    def environment(self, **changes: str) -> dict[str, str]:
        """Give the settings with which a client is let in, as `Plugin.environment` takes them, but for ``changes``."""
        known = {"tls_ca": "ours/ca.pem", "token_file": "asker"}
        return {name: str(self.folder / file) for name, file in {**known, **changes}.items() if file}


@contextmanager
def serving_tls() -> Iterator[Served]:
    """Serve the policy ``echo``, which echoes LLVM's own decision."""
    with TemporaryDirectory(prefix="pb-") as name:
        folder = Path(name)
        ours = Authority(folder / "ours").issue("server")
        Authority(folder / "others")
        write_python(folder / "policies", "echo", answering(ECHO))
        tokens = write_tokens(folder / "tokens.toml", {"asker": ["evaluate"]})
        for client in ("asker", "nobody"):
            (folder / client).write_text(token(client))
        listen = ("--grpc", "127.0.0.1:0", "--socket", folder / "s", "--tokens", tokens)
        tls = ("--tls-certificate", ours.certificate, "--tls-key", ours.key)
        with started("--repository", folder / "policies", "--allow-python", *listen, *tls) as (_, addresses):
            grpcs, socket = addresses
            assert grpcs.startswith("grpcs:")
            yield Served(grpcs, socket, folder)

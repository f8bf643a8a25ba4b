"""The policy server of a training run: a real ``policybridge serve``, started again where it dies."""

from contextlib import ExitStack
from pathlib import Path

from policybridge_core.errors import UnavailableError
from policybridge_serdes import PolicyVersion
from policybridge_train.farms.contract import Leader
from policybridge_train.farms.credentials import FollowCredentials
from policybridge_train.farms.kept import KeptServer


class TrainingServer(KeptServer):
    """Serves the policies of a folder to compilers, takes versions, and keeps a ledger.

    Args:
        folder: of the run; it gets ``policies/``, ``ledger.db`` and ``server.log``.
        repository: the policies; without it those of the folder, into which versions can be published.
        host: an address of this machine that other machines reach. Servers there can follow this one, by TLS and
            with a token, and do nothing else.

    Raises:
        UnavailableError: it does not start; the message has its last words.
        PreconditionError: ``host`` was given, and a package for certificates is missing.

    """

    def __init__(self, folder: Path, repository: Path | None = None, host: str | None = None) -> None:
        if repository is None:
            (folder / "policies").mkdir(parents=True, exist_ok=True)
            arguments = ["--allow-publish", "--repository", str(folder / "policies")]
        else:
            arguments = ["--repository", str(repository)]
        with ExitStack() as held:
            self._credentials = held.enter_context(FollowCredentials(host)) if host else None
            if self._credentials is not None:
                arguments += self._credentials.arguments
            super().__init__(folder, arguments, host)
            self._secrets = held.pop_all()

    @property
    def leader(self) -> Leader:
        """How it is reached, by compilers and by servers that follow it."""
        if self._credentials is None:
            return Leader(self.socket, ledger=self.ledger)
        return Leader(
            self.socket, f"grpcs:{self.outside}", self._credentials.ca, self._credentials.token, ledger=self.ledger
        )

    def publish(self, policy: str, files: Path, config: str = "") -> PolicyVersion:
        """Publish a version; see `RepositoryClient.publish`. A server that died meanwhile is started again."""
        try:
            return self.policies.publish(policy, files, config=config)
        except UnavailableError:
            if not self.ensure():
                raise
            return self.policies.publish(policy, files, config=config)

    def set_alias(self, policy: str, alias: str, version: int) -> None:
        """Point an alias to a version."""
        self.policies.set_alias(policy, alias, version)

    def close(self) -> None:
        """End the server; see `KeptServer`."""
        super().close()
        self._secrets.close()

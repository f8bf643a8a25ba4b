"""The policy repository on disk.

===================================== ================================================================================
``DIR/<policy>/policy.toml``          how its versions are loaded; see `PolicyConfig`. It is read at the server's start
                                      Without it, the files of a version tell the backend; see `guess_config`
``DIR/<policy>/<number>/…``           a version; its files never change
``DIR/<policy>/aliases.toml``         the aliases that were set while a server ran; they override those of policy.toml
``DIR/<policy>/rollout.json``          the roll-out that runs, or else the last one
``DIR/<policy>/numbers.json``          the numbers that were given to versions; see `Numbers`
``DIR/<policy>/taken.json``            in a replica's copy: the versions that it took
``DIR/…/.publish-*``, ``.retired-*``  files that are being published, or being removed; a server that may publish
                                      removes at its start what a crash has left of them
``DIR/<policy>/.out-<number>``        this version is retired; its folder is removed after its last session
``DIR/.lock``                         held by the one server that may publish here
===================================== ================================================================================
"""

from policybridge_core.digest import digest
from policybridge_server.repository.checks import Limits
from policybridge_server.repository.config import HeadConfig, PolicyConfig
from policybridge_server.repository.identity import version_digest
from policybridge_server.repository.repository import BUNDLED, Repository, is_bundled, writable
from policybridge_server.repository.rollout import LATEST
from policybridge_server.repository.stored import StoredPolicy, StoredVersion

__all__ = [
    "BUNDLED",
    "LATEST",
    "HeadConfig",
    "Limits",
    "PolicyConfig",
    "Repository",
    "StoredPolicy",
    "StoredVersion",
    "digest",
    "is_bundled",
    "version_digest",
    "writable",
]

"""The policy repository on disk.

===================================== ================================================================================
``DIR/<policy>/policy.toml``          how its versions are loaded; see `PolicyConfig`
``DIR/<policy>/<number>/…``           a version; its files are never changed once they are there
``DIR/<policy>/aliases.toml``         the aliases that were set while the server ran; they go before policy.toml's
``DIR/…/.publish-*``, ``.retired-*``  a version in the making, or on its way out; a server that publishes removes what
                                      a crash left of them when it starts
``DIR/<policy>/.out-<number>``        this version is retired; its folder goes with its last session
``DIR/.lock``                         held by the one server that may publish here
===================================== ================================================================================
"""

from policybridge_core.digest import digest
from policybridge_server.repository.checks import Limits
from policybridge_server.repository.config import HeadConfig, PolicyConfig
from policybridge_server.repository.repository import BUNDLED, Repository, writable
from policybridge_server.repository.stored import LATEST, StoredPolicy, StoredVersion

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
    "writable",
]

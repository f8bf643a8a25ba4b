"""Access control: TLS, tokens and their scopes, addresses beyond this machine, and the mode of socket files.

Doors (transports that others can reach) ask `Access`; see docs/security.md.
"""

from policybridge_server.access.access import Access
from policybridge_server.access.sockets import SocketFiles
from policybridge_server.access.tls import ServerTls, TlsFiles
from policybridge_server.access.tokens import Scope

__all__ = ["Access", "Scope", "ServerTls", "SocketFiles", "TlsFiles"]

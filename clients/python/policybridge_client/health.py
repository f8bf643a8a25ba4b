"""``policybridge health``: whether a server takes new sessions, by gRPC's own health service."""

import argparse
import time
from typing import Final

import grpc
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import HealthStub

from policybridge_client.credentials import Credentials
from policybridge_client.credentials import add_arguments as add_credentials
from policybridge_client.grpc_channel import ask, open_channel, split_address
from policybridge_client.grpc_stream import error_of
from policybridge_core.errors import InvalidError, PolicyBridgeError, UnavailableError
from policybridge_core.terminal import complain, say

_AGAIN_SECONDS: Final = 0.2
"""Seconds between two calls of ``--wait``."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Ask a server whether it takes new sessions, in general or of one policy. Prints one line."
    parser.epilog = "Exit status: 0 if it does; 1 if it does not, or does not answer; 2 for a wrong command line."
    parser.add_argument("--server", required=True, metavar="ADDR", help="grpc[s]:HOST:PORT or grpc:unix:PATH")
    parser.add_argument("--policy", default="", metavar="NAME", help="ask for this policy")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="limit of one call (default: 5)")
    parser.add_argument(
        "--wait",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="ask again until the server takes sessions, at most for this time (default: 0)",
    )
    add_credentials(parser)


def run(arguments: argparse.Namespace) -> int:
    """Ask; the exit status is 0 if the server takes sessions, 1 if not, 2 if the address or a file cannot be used."""
    until = time.monotonic() + arguments.wait
    try:
        credentials = Credentials.from_arguments(arguments) or Credentials.from_environment()
        while True:
            try:
                check(arguments.server, arguments.policy, credentials=credentials, timeout=arguments.timeout)
            except InvalidError:
                raise
            except PolicyBridgeError as error:
                if time.monotonic() >= until:
                    complain(f"policybridge health: {error}")
                    return 1
                time.sleep(_AGAIN_SECONDS)
            else:
                say("serving")
                return 0
    except InvalidError as error:
        complain(f"policybridge health: {error}")
        return 2


def check(address: str, policy: str = "", *, credentials: Credentials, timeout: float) -> None:
    """Return if the server takes new sessions; with ``policy``, sessions of that policy.

    The call needs no token and sends none.

    Raises:
        InvalidError: the address is not one of gRPC, or a file of the credentials cannot be read.
        NotFoundError: the server has no such policy.
        UnavailableError: the server does not answer within ``timeout`` seconds, or takes no sessions now.
        PolicyBridgeError: the server refuses the call.

    """
    if address.startswith("socket:"):
        raise InvalidError(f"{address} is a socket for compilers; health is asked over gRPC")
    target, secure = split_address(address)
    options = [("grpc.enable_http_proxy", 0)]
    with open_channel(target, credentials, secure=secure, options=options) as channel:
        try:
            answer = ask(HealthStub(channel).Check, pb.HealthCheckRequest(service=policy), target, timeout)
        except grpc.RpcError as error:
            raise error_of(error, target) from error
    if answer.status != pb.HealthCheckResponse.SERVING:
        state = pb.HealthCheckResponse.ServingStatus.Name(answer.status)
        raise UnavailableError(f"{policy or 'the server'} at {address} takes no sessions: {state}")

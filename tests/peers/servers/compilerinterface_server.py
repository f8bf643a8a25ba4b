# mypy: ignore-errors
"""ML-Compiler-Bridge's Python end over gRPC: python compilerinterface_server.py MODEL FOLDER OTHER_PORT PORT."""

import sys

import advice_pb2
import advice_pb2_grpc
from compilerinterface import GrpcCompilerInterface
from decider import Decider


class Service(advice_pb2_grpc.AdviceServicer):
    """Answers compilers."""

    def __init__(self, file):
        self.decider = Decider(file)

    def getAdvice(self, request, context):  # noqa: N802
        """Decide."""
        return advice_pb2.Reply(decision=self.decider.decide(request))


if __name__ == "__main__":
    # The constructor serves until the process ends.
    GrpcCompilerInterface(
        "server",
        add_server_method=advice_pb2_grpc.add_AdviceServicer_to_server,
        grpc_service_obj=Service(sys.argv[1]),
        hostport=int(sys.argv[4]),
    )

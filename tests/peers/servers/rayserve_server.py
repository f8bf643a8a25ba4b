# mypy: ignore-errors
"""Ray Serve over gRPC: python rayserve_server.py MODEL FOLDER HTTP_PORT PORT DIRECT_PORT."""

import os
import signal
import sys

import advice_pb2
import ray
from decider import Decider
from ray import serve
from ray.serve.config import HTTPOptions, gRPCOptions
from ray.serve.schema import LoggingConfig


@serve.deployment(max_ongoing_requests=100, logging_config=LoggingConfig(enable_access_log=False))
class Advice:
    """Answers compilers."""

    def __init__(self, file):
        self.decider = Decider(file)

    async def getAdvice(self, request):  # noqa: N802
        """Decide."""
        return advice_pb2.Reply(decision=self.decider.decide(request))


if __name__ == "__main__":
    model, folder, http_port, port, _ = sys.argv[1:]
    path = {name: os.environ[name] for name in ("PYTHONPATH",)}
    ray.init(
        include_dashboard=False,
        num_cpus=4,
        configure_logging=False,
        _temp_dir=folder,
        runtime_env={"env_vars": path},
    )
    functions = ["advice_pb2_grpc.add_AdviceServicer_to_server"]
    serve.start(
        http_options=HTTPOptions(host="127.0.0.1", port=int(http_port)),
        grpc_options=gRPCOptions(port=int(port), grpc_servicer_functions=functions),
        logging_config=LoggingConfig(enable_access_log=False),
    )
    serve.run(Advice.bind(model), name="advice", route_prefix="/advice")
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    serve.shutdown()
    ray.shutdown()

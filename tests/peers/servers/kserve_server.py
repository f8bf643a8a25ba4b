# mypy: ignore-errors
"""KServe's Python server with models in ONNX Runtime.

python kserve_server.py NAME=MODEL… --grpc_port=PORT --http_port=PORT
"""

import argparse
import sys

from decider import open_model
from kserve import InferOutput, InferResponse, Model, ModelServer, model_server


class OnnxModel(Model):
    """One model."""

    def __init__(self, name, file):
        super().__init__(name)
        self.session = open_model(file)
        self.output = self.session.get_outputs()[0].name
        self.ready = True

    def predict(self, payload, headers=None, response_headers=None):
        """Answer."""
        decision = self.session.run(None, {one.name: one.as_numpy() for one in payload.inputs})[0]
        output = InferOutput(self.output, list(decision.shape), "INT64")
        output.set_data_from_numpy(decision, binary_data=True)
        return InferResponse(payload.id, self.name, [output])


if __name__ == "__main__":
    models = [word.split("=", 1) for word in sys.argv[1:] if "=" in word and not word.startswith("-")]
    parser = argparse.ArgumentParser(parents=[model_server.parser], conflict_handler="resolve")
    arguments, _ = parser.parse_known_args([word for word in sys.argv[1:] if word.startswith("-")])
    ModelServer(http_port=arguments.http_port, grpc_port=arguments.grpc_port, workers=1).start(
        [OnnxModel(*model) for model in models]
    )

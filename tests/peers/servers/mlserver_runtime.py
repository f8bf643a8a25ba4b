# mypy: ignore-errors
"""MLServer's custom runtime: a model in ONNX Runtime; ``uri`` of its settings is the file."""

from decider import open_model
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class OnnxModel(MLModel):
    """One model."""

    async def load(self):
        """Load it."""
        self.session = open_model(self.settings.parameters.uri)
        self.output = self.session.get_outputs()[0].name
        return True

    async def predict(self, payload):
        """Answer."""
        tensors = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        output = NumpyCodec.encode_output(self.output, self.session.run(None, tensors)[0])
        return InferenceResponse(model_name=self.name, outputs=[output])

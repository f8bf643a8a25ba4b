# mypy: ignore-errors
"""MLServer's custom runtime: a model in ONNX Runtime; ``uri`` of its settings is the file."""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class OnnxModel(MLModel):
    """One model."""

    async def load(self):
        """Load it."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        self.output = self.session.get_outputs()[0].name
        return True

    async def predict(self, payload):
        """Answer."""
        tensors = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        output = NumpyCodec.encode_output(self.output, self.session.run(None, tensors)[0])
        return InferenceResponse(model_name=self.name, outputs=[output])

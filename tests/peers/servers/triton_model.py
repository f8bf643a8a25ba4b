# mypy: ignore-errors
"""Triton's Python backend: the model beside this file, in ONNX Runtime."""

from pathlib import Path

import triton_python_backend_utils as triton
from decider import open_model

# Not model.onnx: Triton would serve a file of that name with its own backend.
MODEL = str(Path(__file__).parent / "weights.onnx")


class TritonPythonModel:
    """One model."""

    @staticmethod
    def auto_complete_config(config):
        """Declare inputs and outputs as the model does."""
        session = open_model(MODEL)
        kinds = {"tensor(float)": "TYPE_FP32", "tensor(int64)": "TYPE_INT64"}
        for one in session.get_inputs():
            config.add_input({"name": one.name, "data_type": kinds[one.type], "dims": [-1, *one.shape[1:]]})
        for one in session.get_outputs():
            config.add_output({"name": one.name, "data_type": kinds[one.type], "dims": [-1, *one.shape[1:]]})
        config.set_max_batch_size(0)
        return config

    def initialize(self, args):
        """Load it."""
        self.session = open_model(MODEL)
        self.inputs = [one.name for one in self.session.get_inputs()]
        self.output = self.session.get_outputs()[0].name

    def execute(self, requests):
        """Answer."""
        return [triton.InferenceResponse([self._answer(request)]) for request in requests]

    def _answer(self, request):
        tensors = {name: triton.get_input_tensor_by_name(request, name).as_numpy() for name in self.inputs}
        return triton.Tensor(self.output, self.session.run(None, tensors)[0])

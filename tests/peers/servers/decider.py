# mypy: ignore-errors
"""The model in ONNX Runtime, for all of these servers; its request has a field per input."""

import numpy
import onnxruntime


def open_model(file):
    """Load a model, to run with one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(file, options)


class Decider:
    """One model, with name, type and width of each input."""

    def __init__(self, file):
        self.session = open_model(file)
        kinds = {"tensor(int64)": numpy.dtype("<i8"), "tensor(float)": numpy.dtype("<f4")}
        self.inputs = [(one.name, kinds[one.type], one.shape[1]) for one in self.session.get_inputs()]

    def decide(self, request):
        """Give the decision."""
        tensors = {name: numpy.array(getattr(request, name), kind).reshape(1, -1) for name, kind, _ in self.inputs}
        return int(self.session.run(None, tensors)[0].item())

# mypy: ignore-errors
"""mosec: the model in ONNX Runtime, asked by JSON at /json and by packed tensors at /raw.

python mosec_server.py MODEL --port PORT …      mosec's own options follow
"""

import os
import sys

import msgspec
import numpy
from decider import Decider
from mosec import Runtime, Server, Worker
from mosec.errors import ValidationError


class Packed(Worker, Decider):
    """Takes the inputs' elements one after another."""

    def __init__(self):
        Decider.__init__(self, os.environ["BENCH_MODEL"])

    def deserialize(self, data):
        """Cut the bytes into tensors."""
        tensors, offset = {}, 0
        for name, kind, count in self.inputs:
            tensors[name] = numpy.frombuffer(data, kind, count, offset).reshape(1, count)
            offset += count * kind.itemsize
        return tensors

    def serialize(self, data):
        """Give the decision's 8 bytes."""
        return data.tobytes()

    def forward(self, data):
        """Decide."""
        return self.session.run(None, data)[0]


class Json(Packed):
    """Takes an object of lists, by the inputs' names."""

    def deserialize(self, data):
        """Read the object."""
        try:
            lists = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            raise ValidationError(str(error)) from error
        return {name: numpy.array(lists[name], kind).reshape(1, count) for name, kind, count in self.inputs}

    def serialize(self, data):
        """Give the decision as JSON."""
        return msgspec.json.encode({"decision": int(data[0, 0])})


if __name__ == "__main__":
    os.environ["BENCH_MODEL"] = sys.argv.pop(1)
    server = Server()
    server.register_runtime({"/json": [Runtime(Json)], "/raw": [Runtime(Packed)]})
    server.run()

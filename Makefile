PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One worker a core; many tests wait for another process.
WORKERS ?= $(shell nproc)
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test quick lint check proto bench bench-ledger bench-publish bench-inference bench-mlbridge bench-launcher bench-echo bench-peers bench-unary bench-trees replays clean

EXTRAS_torch := ,torch
EXTRAS_torchscript := ,torch
EXTRAS_tensorflow := ,tensorflow
# TensorFlow converts to .tflite.
EXTRAS_litert := ,litert,tensorflow

# Compile real C and C++ with a real compiler that asks a policy; about a minute.
# BACKEND=onnx|torch|torchscript|tensorflow|litert serves the same network from another framework.
demo: $(VENV)/demo$(BACKEND:%=-%).stamp
	$(BIN)/python -m policybridge_demo $(BACKEND:%=--backend %) $(DEMO)

# Everything: style, types, fresh stubs, behaviour.
test: lint check

lint: $(VENV)/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: $(VENV)/test.stamp
	$(PYTEST) $(TESTS)

# Style, types, and the tests that need neither a compiler nor a framework: two minutes, for every change.
quick: lint
	$(PYTEST) --quick $(TESTS)

# Decisions per second and latency beside bare echoes; not part of the tests.
bench: $(VENV)/test.stamp
	$(BIN)/policybridge bench session $(BENCH)

# Decision latency with the ledger and without, and publishing under load; minutes each.
bench-ledger: $(VENV)/test.stamp
	$(BIN)/policybridge bench ledger $(BENCH)

bench-publish: $(VENV)/test.stamp
	$(BIN)/policybridge bench publish $(BENCH)

# ModelInfer of the Open Inference Protocol beside a native Evaluate.
bench-inference: $(VENV)/test.stamp
	$(BIN)/policybridge bench inference $(BENCH)

# A foreign client's getAdvice beside our own Evaluate.
bench-mlbridge: $(VENV)/test.stamp
	$(BIN)/policybridge bench mlbridge $(BENCH)

# The native launcher and the Python host beside the bare compiler.
bench-launcher: $(VENV)/test.stamp
	cmake -S clients -B .cache/native -G Ninja && cmake --build .cache/native --target policybridge-run
	$(BIN)/policybridge bench launcher --launcher .cache/native/bin/policybridge-run $(BENCH)

# A Python echo policy asked from C++, beside a bare C++-to-Python echo over the same socket.
bench-echo: $(VENV)/test.stamp
	$(BIN)/policybridge bench --contenders policybridge,python-socket-echo --ways socket,unix --backends python \
	  --clients 1 --rounds 5 --baseline python-socket-echo/unix $(BENCH)

# Beside bare echoes and other servers, which it downloads; long.
bench-peers: $(VENV)/test.stamp
	$(BIN)/policybridge bench peers $(BENCH)

# Evaluate and ModelInfer beside Triton's unary calls and a C++ unary echo.
bench-unary: $(VENV)/test.stamp
	$(BIN)/policybridge bench unary $(BENCH)

# Another build beside this one: make bench-trees OTHER=FOLDER, a checkout; or an interpreter that has the other build.
bench-trees: $(VENV)/test.stamp
	$(BIN)/policybridge bench trees --python $(OTHER) $(BENCH)

# Record 50 compilations, end the server, and compile them again from the ledger alone.
replays: $(VENV)/test.stamp
	$(BIN)/python -m policybridge_demo.replays

proto:
	$(PYTHON) proto/generate.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip

$(VENV)/demo.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[demo]'
	touch $@

$(VENV)/demo-%.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[demo$(EXTRAS_$*)]' onnx
	touch $@

$(VENV)/test.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[bench,demo,http,jax,litert,parquet,tensorflow,torch]' --group test --group lint
	touch $@

clean:
	rm -rf $(VENV) .cache build dist

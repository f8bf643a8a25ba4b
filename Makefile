PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One worker a core; many tests wait for another process.
WORKERS ?= $(shell nproc)
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# Tests start thousands of processes; without bytecode each would compile our sources again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo demo-autotune docs test quick lint check fuzz proto bench bench-ledger bench-workers bench-publish bench-inference bench-mlbridge bench-launcher bench-echo bench-peers bench-unary bench-trees bench-attacks h2spec soak soak-kills corpus gcc-echo tuned-packages replays clean soak-postgres mutants

EXTRAS_torch := ,torch
EXTRAS_torchscript := ,torch
EXTRAS_tensorflow := ,tensorflow
# TensorFlow converts to .tflite.
EXTRAS_litert := ,litert,tensorflow

# Compile real C and C++ with a real compiler that asks a policy, then tune the same code for a minute (DEMO='--tune 0': not).
# BACKEND=onnx|torch|torchscript|tensorflow|litert serves the same network from another framework.
demo: $(VENV)/demo$(BACKEND:%=-%).stamp
	$(BIN)/python -m policybridge_demo $(BACKEND:%=--backend %) $(DEMO)

# SQLite's amalgamation, from Debian's source package (needs dpkg-dev, gcc, make and tcl), tuned for MINUTES; another call
# goes on where the last one ended.
# With Debian's clang-22, llvm-22-dev, cmake and ninja by the plugin, which is built first; else with zig's clang.
MINUTES ?= 10
SQLITE := .cache/sqlite
PLUGIN := $(and $(wildcard /usr/lib/llvm-22/include/llvm/IR),$(shell command -v clang-22),$(shell command -v cmake),$(shell command -v ninja),yes)
TUNED_BY := $(if $(PLUGIN),clang-22,zig)
demo-autotune: $(VENV)/demo.stamp $(if $(PLUGIN),plugin) $(SQLITE)/$(TUNED_BY)/sqlite3/sqlite3.o.bc
	$(BIN)/policybridge autotune --store $(SQLITE)/$(TUNED_BY).db --corpus $(SQLITE)/$(TUNED_BY) --module sqlite3/sqlite3.o \
	  --compiler $(TUNED_BY) $(if $(PLUGIN),--plugins .cache/native/lib) --budget 1000000 --minutes $(MINUTES) $(AUTOTUNE)

.PHONY: plugin
plugin:
	cmake -S clients -B .cache/native -G Ninja -DPOLICYBRIDGE_LLVM=22 && cmake --build .cache/native --target policybridge-inliner-22

$(SQLITE)/%/sqlite3/sqlite3.o.bc: | $(VENV)/demo.stamp
	$(BIN)/policybridge corpus debian --compiler $* --output $(SQLITE)/$* sqlite3
	@test -f $@ || { echo "SQLite was not built; it needs make, gcc and tclsh (Debian: tcl); see $(SQLITE)/$*/logs" >&2; false; }

# The bundled policy inliner, from Debian's sources alone: ten minutes of two quiet cores for the corpus, half an hour for
# the training. A run that was ended goes on.
.PHONY: inliner
inliner: $(VENV)/demo.stamp plugin corpus
	$(BIN)/policybridge train inline --algo credit --corpus .cache/corpus --output .cache/inliner --promote best \
	  --compiler clang-22 --plugins .cache/native/lib --export server/policybridge_server/bundled/inliner/1 $(TRAIN)

# The bundled policy size: the inliner, and passes by 2,500 compiles, ten minutes of two cores. The alternatives that it
# tries are LLVM's own, size and the tight ones.
.PHONY: size
SIZE := server/policybridge_server/bundled/size/1
size: $(VENV)/demo.stamp plugin corpus
	$(BIN)/policybridge train passes --algo exhaustive --corpus .cache/corpus --output .cache/size-passes --seconds 8 \
	  --compiler clang-22 --plugins .cache/native/lib --set cases=213 --set trees=80 \
	  --set tried=4,18,19,20,21,22,23,24,25,26,27 --export .cache/size-passes/best $(TRAIN)
	cp .cache/size-passes/best/model.onnx $(SIZE)/passes.onnx
	cp server/policybridge_server/bundled/inliner/1/model.onnx $(SIZE)/inlining.onnx

# A policy of tiles for mlir-opt-22, and what it is worth on held-out shapes: half an hour of two cores. A run that was
# ended goes on.
.PHONY: tiles
tiles: $(VENV)/demo.stamp
	cmake -S clients -B .cache/native -G Ninja -DPOLICYBRIDGE_MLIR=22 && cmake --build .cache/native --target policybridge-mlir-22
	$(BIN)/policybridge train tile --algo choices --output .cache/tiles --plugins .cache/native/lib --set iterations=3 $(TRAIN)
	$(BIN)/python -m tests.measures.tiles .cache/tiles --plugins .cache/native/lib

# Everything: style, types, fresh stubs, behaviour.
test: lint check

lint: $(VENV)/test.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

check: $(VENV)/test.stamp
	$(PYTEST) $(TESTS)

# The native programs of the tests, which else build each at its first use.
.PHONY: natives
natives: $(VENV)/test.stamp
	$(BIN)/python -m tests.native.building

# What pytest makes of the tests' files before it runs them; it is kept beside them, and each worker would make it.
.PHONY: collected
collected: $(VENV)/test.stamp
	$(BIN)/python -m pytest --collect-only --quiet --quiet

# The site, into .cache/site: a page outside of the navigation, a broken link or a public name without a docstring ends it.
# `make docs DOCS=serve` shows it while it is written.
DOCS ?= build
docs: $(VENV)/test.stamp $(if $(GALLERY),gallery)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs $(DOCS) --strict

# The pictures of docs/gallery.md, from real runs of its commands: an hour, with clang-22, the plugin, Chromium and the corpus
# of `make corpus`. `make docs GALLERY=1` takes them before it builds the site. GALLERY_ARGS='--corpus DIR' takes another corpus.
.PHONY: gallery
gallery: $(VENV)/test.stamp plugin
	PYTHONPATH=docs POLICYBRIDGE_PLUGINS=$(CURDIR)/.cache/native/lib $(BIN)/python -m policybridge_docs.gallery $(GALLERY_ARGS)

# Style, types, and the tests that need neither a compiler nor a framework: two minutes, for every change.
quick: lint
	$(PYTEST) --quick $(TESTS)

# A minute of each fuzzer, one a core: python -m tests.fuzzing says how to choose.
fuzz: $(VENV)/test.stamp
	$(BIN)/python -m tests.fuzzing $(FUZZ)

# Decisions per second and latency beside bare echoes; not part of the tests.
bench: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers session $(BENCH)

# Decision latency with the ledger and without, and publishing under load; minutes each.
bench-ledger: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers ledger $(BENCH)

# Servers of one worker and of two beside each other, by the number of clients: a curve for docs/operating.md.
bench-workers: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers workers --clients 1,2,4,8 $(BENCH)

bench-publish: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers publish $(BENCH)

# ModelInfer of the Open Inference Protocol beside a native Evaluate.
bench-inference: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers inference $(BENCH)

# A foreign client's getAdvice beside our own Evaluate.
bench-mlbridge: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers mlbridge $(BENCH)

# The native launcher and the Python host beside the bare compiler.
bench-launcher: $(VENV)/test.stamp
	cmake -S clients -B .cache/native -G Ninja && cmake --build .cache/native --target policybridge-run
	$(BIN)/policybridge bench launcher --launcher .cache/native/bin/policybridge-run $(BENCH)

# A Python echo policy asked from C++, beside a bare C++-to-Python echo over the same socket.
bench-echo: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers --contenders policybridge,python-socket-echo --ways socket,unix --backends python \
	  --clients 1 --rounds 5 --baseline python-socket-echo/unix $(BENCH)

# Beside bare echoes and other servers, which it downloads; long.
bench-peers: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers peers $(BENCH)

# Evaluate and ModelInfer beside Triton's unary calls and a C++ unary echo.
bench-unary: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers unary $(BENCH)

# Another build beside this one: make bench-trees OTHER=FOLDER, a checkout; or an interpreter that has the other build.
bench-trees: $(VENV)/test.stamp
	$(BIN)/python -m tests.peers trees --python $(OTHER) $(BENCH)

# Thirteen attacks on our gRPC port and on one of gRPC's own library, and some on every other door: a client beside, and the server's memory.
bench-attacks: $(VENV)/test.stamp
	$(BIN)/python -m tests.attacks $(BENCH)
	$(BIN)/python -m tests.attacks.doors

# The cases of h2spec (RFC 9113) against our gRPC port; needs Debian's Go packages, see tests/packages/h2spec.sh.
h2spec: $(VENV)/test.stamp
	tests/packages/h2spec.sh $(H2SPEC)

# Random faults for half an hour, then what was acknowledged is looked for.
soak: $(VENV)/test.stamp
	$(BIN)/python -m tests.soak $(SOAK)

# Kill servers with a ledger and publishers by kill -9; what was acknowledged must be there. KILLS=500 takes half an hour.
soak-kills: $(VENV)/test.stamp
	$(BIN)/python -m tests.kills --kills $(or $(KILLS),100) $(BENCH)

# PostgreSQL under two servers, stopped for half a minute and killed by kill -9 ten times; what was acknowledged must be there.
soak-postgres: $(VENV)/test.stamp
	$(BIN)/python -m tests.postgres_soak $(SOAK)

# Measure the figures of README and docs anew, PARTS='scores demo speed embedded tuned passes chosen' or some of them, write
# results/*.json, and rewrite the pages. speed downloads other servers; scores, embedded, tuned, passes and chosen need
# clang-22 and `make corpus`, or RESULTS='--corpus DIR'. packages needs clang-22, valgrind and the network.
.PHONY: results figures
PARTS ?= all
results: $(VENV)/test.stamp $(if $(filter all scores embedded tuned passes chosen packages,$(PARTS)),plugin)
	PYTHONPATH=docs $(BIN)/python -m policybridge_docs.results $(PARTS) $(RESULTS)

# Rewrite the figures of the pages from results/*.json, without measuring.
figures: $(VENV)/test.stamp
	PYTHONPATH=docs $(BIN)/python -m policybridge_docs.results

# 1,200 modules from Debian's source packages, into .cache/corpus; ten minutes of two quiet cores. CORPUS=package… takes others;
# TARGET=aarch64-linux-gnu makes .cache/targets/aarch64-linux-gnu, and needs the target's headers (libstdc++-12-dev-arm64-cross).
corpus: $(VENV)/test.stamp
	$(BIN)/policybridge corpus debian $(if $(TARGET),--target $(TARGET)) --output .cache/$(if $(TARGET),targets/$(TARGET),corpus) $(CORPUS)

# Compare the objects of Debian's packages with and without an echoing policy in GCC; see tests/packages/gcc_echo.py.
gcc-echo: $(VENV)/test.stamp
	$(BIN)/python -m tests.packages.gcc_echo

# Tune three of Debian's packages, build them with their stores, and run their own tests; see tests/packages/tuned-packages.sh.
tuned-packages: $(VENV)/test.stamp
	tests/packages/tuned-packages.sh

# Build five of Debian's packages with the bundled policy inside clang, and run their own tests; see tests/packages/policy-packages.sh.
.PHONY: policy-packages
policy-packages: $(VENV)/test.stamp
	tests/packages/policy-packages.sh

# Record 50 compilations, end the server, and compile them again from the ledger alone.
replays: $(VENV)/test.stamp
	$(BIN)/python -m tests.measures.replays

# The packages of a release, into dist/: wheels, Debian packages and the sources. They run on systems with a glibc as new as
# this machine's or newer; `make dist BASE=debian:bookworm-slim` makes them in a container of that base (ENGINE=podman).
# It needs what distribution/Dockerfile installs.
.PHONY: dist
ENGINE ?= docker
dist:
ifdef BASE
	$(ENGINE) build --file distribution/Dockerfile --build-arg BASE=$(BASE) --output dist .
else
	$(PYTHON) distribution/make.py $(DIST)
endif

# Each tutorial in an environment of its own, with what its first command installs: minutes.
.PHONY: tutorials
tutorials: $(VENV)/test.stamp
	$(BIN)/python -m pytest --fresh tests/docs/test_fresh.py

# The stack of docker/compose.yaml, and the packages of make dist, in real containers, by podman as root: ten minutes, and
# five if the images are there, in .cache/containers. It needs Debian's podman runc containernetworking-plugins dnsmasq-base iptables debootstrap
# golang-github-containernetworking-plugin-dnsname.
.PHONY: compose
compose: $(VENV)/test.stamp
	$(BIN)/python -m pytest --containers $(COMPOSE) tests/docker/test_stack.py tests/docker/test_dist.py

# Small changes of the server, by hand and by chance, that the tests must notice; hours. MUTANTS='--count 50 --only ledger' takes fewer.
mutants: $(VENV)/test.stamp
	nice $(BIN)/python -m tests.mutants --jobs $(WORKERS) $(MUTANTS)

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
	$(PIP) --editable '.[bench,demo,docs,http,jax,litert,minari,otel,parquet,postgres,ray,remote,tensorboard,tensorflow,tfrecord,torch]' --group test --group lint
	touch $@

clean:
	rm -rf $(VENV) .cache build dist

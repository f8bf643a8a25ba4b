"""A policy's C keeps no state and allocates no memory, so that threads decide at once."""

import subprocess
from pathlib import Path

import pytest

from policybridge_train.embedding.interface import Embedded, read_policy
from tests.training.embedding.networks import random_network, write_network
from tests.training.embedding.programs import build, compile_c, needs_compiler, random_observations

STRING_H = {"memcpy", "memmove", "memset", "memcmp"}
"""The functions that compilers call by themselves, too, for a large structure."""

_MAIN = """
#include "policy.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#define COUNT 300
#define THREADS 4
static struct p_observation given[COUNT];
static struct p_advice made[THREADS + 1][COUNT];
static void *decide_all(void *advice) {
  for (int i = 0; i < COUNT; ++i)
    if (p_decide(&given[i], (struct p_advice *)advice + i) != P_OK) return advice;
  return NULL;
}
int main(void) {
  pthread_t threads[THREADS];
  void *failed = NULL;
  if (fread(given, sizeof given, 1, stdin) != 1 || decide_all(made[THREADS]) != NULL) return 1;
  for (int t = 0; t < THREADS; ++t) pthread_create(&threads[t], NULL, decide_all, made[t]);
  for (int t = 0; t < THREADS; ++t) {
    pthread_join(threads[t], &failed);
    if (failed != NULL || memcmp(made[t], made[THREADS], sizeof made[t]) != 0) return 2;
  }
  return 0;
}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Embedded:
    """Give a network of every operator."""
    needs_compiler("gcc")
    return read_policy("net", write_network(tmp_path / "policies", "net", random_network(3)))


def test_the_c_has_no_data_that_can_be_written_and_calls_nothing_but_functions_of_string_h(
    tmp_path: Path, policy: Embedded
) -> None:
    # In code that may be moved, a table of pointers counts as written: by the loader.
    compile_c(policy, tmp_path, ["gcc", "-O1", "-fno-pic", "-c"])
    symbols = subprocess.check_output(["nm", "--format=posix", "policy.o"], cwd=tmp_path, text=True).splitlines()
    kinds = {name: kind for name, kind, *_ in map(str.split, symbols)}
    assert {"p_decide", "p_fill", "p_features"} <= kinds.keys()
    assert {name for name, kind in kinds.items() if kind not in "TtRr"} <= STRING_H


def test_several_threads_at_once_get_the_advice_that_one_gets(tmp_path: Path, policy: Embedded) -> None:
    program = build(policy, tmp_path, "gcc", ["-O1", "-g1", "-fsanitize=thread"], _MAIN)
    observations = random_observations(policy, 300, 3)
    done = subprocess.run([program], input=observations.tobytes(), capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (0, "")

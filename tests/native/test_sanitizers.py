"""The options with which tests run programs of a sanitized build."""

import subprocess
from pathlib import Path

import pytest

LIBRARY = """
static __thread char *kept;
char **place(void) { return &kept; }
"""

PROGRAM = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW);
  char **(*place)(void) = (char **(*)(void))dlsym(library, "place");
  // ASan's allocator gives blocks of one size in a row. The next one is the library's, at its first use.
  static void *blocks[4096];
  int made = 0;
  do
    blocks[made] = malloc(sizeof(char *));
  while (((uintptr_t)blocks[made++] + 16) % 4096 && made < 4096);
  char **kept = place();
  *kept = malloc(100);
  if ((uintptr_t)kept % 4096 != 16)
    return 3;
  if (count > 2) {
    void *volatile lost = malloc(77);
    lost = NULL;
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("leaks")
    (folder / "library.c").write_text(LIBRARY)
    (folder / "program.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-shared", "-fPIC", "library.c", "-o", "library.so"], cwd=folder, check=True)
    subprocess.run(["gcc", "-fsanitize=address", "program.c", "-o", "program"], cwd=folder, check=True)
    return [folder / "program", folder / "library.so"]


def test_thread_local_memory_at_the_start_of_a_page_does_not_end_the_search_for_leaks(program: list[Path]) -> None:
    ended = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_the_search_for_leaks_beside_such_memory_finds_what_is_lost_and_nothing_else(program: list[Path]) -> None:
    ended = subprocess.run([*program, "loses"], capture_output=True, text=True, check=False)
    assert "SUMMARY: AddressSanitizer: 77 byte(s) leaked in 1 allocation(s)." in ended.stderr

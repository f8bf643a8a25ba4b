#!/usr/bin/env bash
# Tune Debian's source packages, build them with their stores, and run their own tests (make check):
#
#   apt install clang-22 llvm-22-dev cmake ninja-build g++ dpkg-dev
#   make tuned-packages
#
# BUDGET is the number of compiles of each module; WORK keeps the packages and their stores.
set -euo pipefail
cd "$(dirname "$0")/../.."
budget=${BUDGET:-16}
work=${WORK:-$PWD/.cache/tuned-packages}
policybridge=$PWD/.venv/bin/policybridge
built=$PWD/.cache/native
cmake -S clients -B "$built" -G Ninja -DPOLICYBRIDGE_LLVM=22 >/dev/null
cmake --build "$built" --target policybridge-inliner-22 policybridge-run >/dev/null
export POLICYBRIDGE_PLUGINS=$built/lib
mkdir -p "$work"

source tests/packages/packages.sh

text() { # of all objects below the folder, but for those of the tuning itself
  find . -name '*.o' -not -path './tuned.db.work/*' -print0 | sort -z | xargs -0 llvm-size-22 --totals | tail -1 | cut -f 1
}

check() { # PACKAGE CONFIGURE TARGET VARIABLE COMPILER FLAGS…
  local package=$1 configure=$2 target=$3 variable=$4 compiler=$5
  local flags=("${@:6}")
  fetch "$package"
  pushd "$work/$package" >/dev/null
  eval "$configure" >configure.log 2>&1
  make -j"$(nproc)" "$variable=$compiler" "${flags[@]}" >plain.log 2>&1
  local before
  before=$(text)
  make clean >/dev/null
  "$policybridge" autotune --store tuned.db --budget "$budget" --compiler clang-22 -- \
    make -j"$(nproc)" "$variable=$compiler" "${flags[@]}" >tune.log 2>&1
  make clean >/dev/null
  local tuned="$built/bin/policybridge-run --decisions $PWD/tuned.db -- $compiler"
  make -j"$(nproc)" "$variable=$tuned" "${flags[@]}" >build.log 2>&1
  local after
  after=$(text)
  make "$target" "$variable=$tuned" "${flags[@]}" >check.log 2>&1
  python3 - "$package" "$before" "$after" "$target" <<'PYTHON'
import sys

name, before, after, target = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
print(f"{name}: text {before:,} -> {after:,} bytes ({100 * (after / before - 1):+.2f} %), make {target} passed")
PYTHON
  popd >/dev/null
}

check zlib 'CC=clang-22 CFLAGS=-Oz ./configure' check CC clang-22
check bzip2 true check CC clang-22 'CFLAGS=-Oz -D_FILE_OFFSET_BITS=64'
check tinyxml2 true test CXX clang++-22 'CXXFLAGS=-Oz -fPIC'

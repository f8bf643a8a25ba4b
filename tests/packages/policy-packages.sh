#!/usr/bin/env bash
# Build Debian's zlib, lua5.4, re2, leveldb and sqlite3 at -Oz with a policy inside clang, and run their own tests:
#
#   apt install clang-22 llvm-22-dev cmake ninja-build g++ dpkg-dev unicode-data libgmock-dev libbenchmark-dev tcl-dev
#   make policy-packages
#
# POLICY is the policy, of REPOSITORY or bundled; WORK keeps the packages. Debian's package of Lua has no tests: they come from
# LUA_TESTS, the folder testes of Lua's repository at v5.4.4, or are cloned.
set -euo pipefail
cd "$(dirname "$0")/../.."
policy=${POLICY:-inliner}
work=${WORK:-$PWD/.cache/policy-packages}
mkdir -p "$work"
source tests/packages/packages.sh
# A compiler cache does not know the plugin.
unset CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER
jobs=$(nproc)
plugin=$work/policy.so
.venv/bin/policybridge embed "$policy" ${REPOSITORY:+--repository "$REPOSITORY"} --for plugin-22 -o "$plugin"

build_zlib() { CC=$CC CFLAGS=-Oz ./configure && make -j"$jobs"; }
check_zlib() { make check; }

# Debian's makefile compiles everything a second time as C++; its rules write this header.
build_lua5.4() {
  printf '#define DEB_HOST_MULTIARCH "%s"\n' "$(dpkg-architecture -qDEB_HOST_MULTIARCH)" >src/lua5.4-deb-multiarch.h &&
    cd src && printf '%s\n' l*.c | grep -v luac.c | xargs -P "$jobs" -n 1 $CC -Oz -DLUA_COMPAT_5_3 -DLUA_USE_LINUX -c &&
    $CC -o lua ./*.o -Wl,-E -lm -ldl
}
check_lua5.4() {
  local tests=${LUA_TESTS:-$work/lua-tests/testes}
  [ -d "$tests" ] || git clone --quiet --depth 1 --branch v5.4.4 https://github.com/lua/lua "$work/lua-tests"
  rm -rf testes && cp -r "$tests" testes && cd testes && ../src/lua -e '_U=true' all.lua
}

build_re2() { make -j"$jobs" REBUILD_TABLES=1 "CXX=$CXX" "CXXFLAGS=-Oz -pthread" obj/libre2.a; }
check_re2() { make -j"$jobs" REBUILD_TABLES=1 "CXX=$CXX" "CXXFLAGS=-Oz -pthread" static-test; }

build_leveldb() {
  cmake -B out -G Ninja -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-Oz -DNDEBUG" -DLEVELDB_BUILD_BENCHMARKS=OFF &&
    cmake --build out
}
# DBTest.HiddenValuesAreRemoved races with leveldb's compaction in the background, and fails at times in a plain build, too.
check_leveldb() { ctest --test-dir out --output-on-failure --repeat until-pass:5; }

build_sqlite3() { CFLAGS=-Oz ./configure --disable-shared --with-tcl=/usr/lib/tcl8.6 && make -j"$jobs" sqlite3.lo; }
# The program that runs SQLite's tests has all of SQLite in it. A few tests depend on the file system: only those may fail
# that fail without the policy, too.
check_sqlite3() {
  local plain=$work/sqlite3-plain
  make -j"$jobs" testfixture && make -C "$plain" -j"$jobs" testfixture &&
    sqlite3_failures "$plain" >failures-plain && sqlite3_failures "$PWD" >failures && diff failures-plain failures
}
sqlite3_failures() { # FOLDER: run the tests there, and name those that fail; they refuse root
  local as_user=()
  [ "$(id -u)" != 0 ] || as_user=(setpriv --reuid nobody --regid nogroup --clear-groups)
  mkdir -p "$1/run" && chmod 777 "$1/run" || return
  (cd "$1/run" && "${as_user[@]}" ../testfixture ../test/extraquick.test) >"$1/tests.log" || true
  grep -aq ' errors out of ' "$1/tests.log" && { grep -a '^!Failures' "$1/tests.log" || true; }
}

text() { # of all objects below the folder
  find . -name '*.o' | sort | xargs llvm-size-22 --totals | tail -1 | cut -f 1
}

in_copy() { # PACKAGE SUFFIX FUNCTION: run in a copy of the package's source
  [ -d "$work/$1-$2" ] || cp -r "$work/$1" "$work/$1-$2"
  (cd "$work/$1-$2" && "$3_$1") >"$work/$1-$2.$3.log" 2>&1 ||
    { echo "$1: $3 failed; see $work/$1-$2.$3.log" >&2 && return 1; }
}

for package in ${PACKAGES:-zlib lua5.4 re2 leveldb sqlite3}; do
  fetch "$package"
  CC=clang-22 CXX=clang++-22 in_copy "$package" plain build
  export CC="clang-22 -fpass-plugin=$plugin" CXX="clang++-22 -fpass-plugin=$plugin"
  # No object of an earlier policy is kept.
  rm -rf "$work/$package-policy"
  in_copy "$package" policy build
  before=$(cd "$work/$package-plain" && text) after=$(cd "$work/$package-policy" && text)
  in_copy "$package" policy check
  python3 -c 'import sys; n, a, b = sys.argv[1:]; print(f"{n}: text {int(a):,} -> {int(b):,} bytes ({100 * (int(b) / int(a) - 1):+.2f} %), its own tests passed")' \
    "$package" "$before" "$after"
done

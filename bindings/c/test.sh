#!/usr/bin/env bash
# Builds the C library and tests it: the header, the README's program, bad input, threads; once more under valgrind where that is
# installed. Needs cargo and a C compiler. RIDGEPOINT_HAMMER_S: how long threads hammer one model, 3 s by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-target}
out=$target/c-tests
cc=${CC:-cc}
mkdir -p "$out"

say() { printf '\n-- %s\n' "$*"; }

say 'the library, and the tests of its functions from Rust'
cargo build --release --locked -p ridgepoint-c
cargo test --locked -p ridgepoint-c --quiet

say "the README's program is examples/step_time.c, word for word"
diff -u --label 'bindings/c/README.md' --label 'bindings/c/examples/step_time.c' \
  <(awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' bindings/c/README.md) bindings/c/examples/step_time.c

if [[ $target == target ]]; then
  say "the README's commands"
  bash -e <(awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' bindings/c/README.md) >"$out/readme.txt"
  head -n 1 "$out/readme.txt"
fi

flags=(-std=c11 -Wall -Wextra -Werror -pedantic -O1 -g -I bindings/c/include)
static=("$target/release/libridgepoint_c.a" -lpthread -lm)
if [[ $(uname) == Linux ]]; then static+=(-ldl); fi
shared=(-L "$target/release" -lridgepoint_c -lpthread)

say "compile with $($cc --version | head -n 1)"
for program in examples/step_time tests/bad_input tests/threads; do
  "$cc" "${flags[@]}" "bindings/c/$program.c" "${static[@]}" -o "$out/$(basename "$program")"
  "$cc" "${flags[@]}" "bindings/c/$program.c" "${shared[@]}" -o "$out/$(basename "$program")_shared"
done
if command -v c++ >/dev/null; then
  printf '#include "ridgepoint.h"\nint main() { return ridgepoint_version() == nullptr; }\n' >"$out/header.cpp"
  c++ -std=c++17 -Wall -Wextra -Werror -pedantic -I bindings/c/include "$out/header.cpp" "${static[@]}" -o "$out/header"
  "$out/header"
fi

LD_LIBRARY_PATH=$(cd "$target/release" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH

say 'the example, from the static and the shared library'
"$out/step_time" >"$out/step_time.txt"
head -n 1 "$out/step_time.txt"
"$out/step_time_shared" | diff "$out/step_time.txt" -

say 'bad input'
"$out/bad_input"
"$out/bad_input_shared"

say "threads on one model for ${RIDGEPOINT_HAMMER_S:-3} s"
"$out/threads" "${RIDGEPOINT_HAMMER_S:-3}"

if command -v valgrind >/dev/null; then
  say "the same under $(valgrind --version)"
  for program in step_time bad_input 'threads 0'; do
    # shellcheck disable=SC2086 # a program and its argument
    valgrind --quiet --leak-check=full --error-exitcode=9 "$out/"$program >"$out/valgrind.txt"
    printf '%s, no errors, no leaks: %s\n' "$program" "$(head -n 1 "$out/valgrind.txt")"
  done
else
  say 'valgrind is not installed: skipped'
fi
say 'the C library is fine'

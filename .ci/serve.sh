#!/usr/bin/env bash
# Sends generated requests to `ridgepoint serve` as its openapi.json describes them: no answer may be a server error, and each must be as
# described. schemathesis goes into a venv under target/; without a network the check is skipped, and a line says so.
#   .ci/serve.sh BINARY [MOST EXAMPLES OF A ROUTE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

binary=$1 examples=${2:-60}
target=${CARGO_TARGET_DIR:-target}
venv=$target/schemathesis
if [[ ! -x $venv/bin/schemathesis ]]; then
  if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check 'schemathesis==4.32.5'; } >"$target/schemathesis.log" 2>&1; then
    printf -- '-- skipped: schemathesis cannot be installed (%s)\n' "$(tail -n 1 "$target/schemathesis.log")"
    rm -rf "$venv"
    exit 0
  fi
fi

schemathesis=$(realpath "$venv")/bin/schemathesis
work=$(mktemp -d)
trap 'kill "$server" 2>/dev/null || true; rm -rf "$work"' EXIT
# Small loads alone, so that no replay takes long.
"$binary" serve --port 0 --max-memory-gib 0.005 >"$work/url" &
server=$!
for _ in {1..200}; do grep -q http "$work/url" && break || sleep 0.05; done
url=$(grep -o 'http://.*' "$work/url")
# The one document that may take longer than a request.
for _ in {1..120}; do
  kill -0 "$server"
  curl --silent --fail --output /dev/null "$url/v1/support" && break
  sleep 1
done

# One worker: CPython 3.11's parser, which the generator of values calls, fails now and then on two threads (gh-106905).
# Checks of what is accepted are left out: keys may also be written with dashes, and a valid key may have a value that does not fit.
(cd "$work" && "$schemathesis" run "$url/openapi.json" --url "$url" --max-examples "$examples" --seed 20261124 \
  --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance \
  --suppress-health-check all --request-timeout 60 --workers 1)
kill -0 "$server"

#!/usr/bin/env bash
# The Python package as a user gets it: its wheel built in release, installed into a fresh virtual environment and tested there,
# a Ray cluster and the README's example among the tests. Needs python3 with venv, a Rust toolchain and a package index; where
# RIDGEPOINT_BIN names the command, what both say is compared. Fails where anything cannot be installed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

root=$(cd ../.. && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
venv=$target/python-venv wheels=$target/python-wheels
if [[ -z ${RIDGEPOINT_BIN:-} && -x $target/release/ridgepoint ]]; then
  export RIDGEPOINT_BIN=$target/release/ridgepoint
fi

rm -rf "$venv" "$wheels"
python3 -m venv "$venv"
# shellcheck disable=SC1091 # made on the line before
source "$venv/bin/activate"
export PIP_DISABLE_PIP_VERSION_CHECK=1
pip install --quiet maturin numpy pytest mypy pandas pyarrow ray

maturin build --release --locked --quiet --out "$wheels"
pip install --quiet --no-deps "$wheels"/ridgepoint-*-abi3-*.whl
cargo --version
python --version
pip list 2>/dev/null | grep -E '^(maturin|mypy|numpy|pandas|pyarrow|pytest|ray|ridgepoint) '
printf 'compared with %s\n' "${RIDGEPOINT_BIN:-no command, as RIDGEPOINT_BIN is not set}"

if [[ -n ${RIDGEPOINT_BIN:-} ]]; then
  python generate.py --check "$RIDGEPOINT_BIN"
fi

printf '\n-- tests\n'
pytest -q

printf "\n-- the README's example\n"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python tests/readme.py 'python example' >"$scratch/example.py"
(cd "$scratch" && python example.py) | tee "$scratch/output.txt"
diff -u --label README.md --label output <(python tests/readme.py 'python output') "$scratch/output.txt"
python -c 'import doctest, ridgepoint; print(doctest.testmod(ridgepoint, raise_on_error=True))'

printf '\n-- types\n'
# As seen by those who have the wheel: from its py.typed and its stubs.
mypy --strict "$scratch/example.py" examples benches tests
mypy --strict python/ridgepoint

printf '\n-- how long a step takes from Python (printed, not judged: the machine may be busy)\n'
python benches/step_times.py

#!/usr/bin/env bash
# Builds the page of `ridgepoint serve`, compares it with the committed page/dist, runs its tests and drives it in headless Chromium.
# Needs a release binary (RIDGEPOINT_BIN, or target/release/ridgepoint). Node, npm, Chromium and chromedriver are installed from
# Debian's packages where they are missing; without them, or without npm's registry, a line says that the checks are skipped.
# Screenshots stay under target/page/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
  printf 'skipped: %s\n' "$1"
  exit 0
}

# Installs Debian's packages; another run of dpkg may hold its lock for a while.
install_packages() {
  command -v apt-get >/dev/null || return 1
  [[ $(id -u) == 0 ]] || return 1
  local try
  for try in 1 2 3; do
    if DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=60 install -y --no-install-recommends "$@" >/dev/null 2>&1; then
      return 0
    fi
    apt-get -o DPkg::Lock::Timeout=60 update >/dev/null 2>&1 || return 1
    sleep "$try"
  done
  return 1
}

missing=()
command -v node >/dev/null || missing+=(nodejs)
command -v npm >/dev/null || missing+=(npm)
command -v chromium >/dev/null || missing+=(chromium fonts-liberation)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
if ((${#missing[@]} > 0)); then
  install_packages "${missing[@]}" || skip "no ${missing[*]}, and apt-get cannot install them"
fi
node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' || skip "node $(node --version) is older than 20"

(cd page && timeout 120 npm ci --no-audit --no-fund --silent) || skip 'npm ci cannot install the packages of page/package-lock.json'

target=${CARGO_TARGET_DIR:-target}
built=$(mkdir -p "$target" && cd "$target" && pwd)/page/dist
(cd page && node build.mjs "$built")
if ! diff -r "$built" page/dist; then
  printf 'page/dist is not what its sources give: run `npm run build` in page/ and commit page/dist\n'
  exit 1
fi

(cd page && npm test --silent)

binary=${RIDGEPOINT_BIN:-$target/release/ridgepoint}
[[ -x $binary ]] || { printf '%s is not there: build it with `cargo build --release`\n' "$binary"; exit 1; }
binary=$(cd "$(dirname "$binary")" && pwd)/$(basename "$binary")
export RIDGEPOINT_BIN=$binary RIDGEPOINT_PAGE_SHOTS=${built%/dist}
export CHROMIUM=${CHROMIUM:-$(command -v chromium)} CHROMEDRIVER=${CHROMEDRIVER:-$(command -v chromedriver)}
(cd page && timeout 240 npm run --silent test:browser)
printf 'screenshots: %s\n' "${built%/dist}"

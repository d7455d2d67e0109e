#!/usr/bin/env bash
# NATS JetStream beside a host, for `tidemill bench --peers`: one server on loopback, and load on it.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/peers/nats.sh prepare
       tests/peers/nats.sh serve DIR PORT OTHER_PORT synced|default
       tests/peers/nats.sh load PORT

  prepare   builds the server and the load program with Go
  serve     runs a server on a fresh DIR until it is killed; synced: every message is synced before it is
            acknowledged (sync_interval: always), default: as NATS comes, every two minutes.
            OTHER_PORT isn't used
  load      takes jobs from standard input (see nats/main.go)

Needs Go, which fetches from where its settings say (GOPROXY). Environment: NATS_VERSION (v2.15.3),
TIDEMILL_PEERS_DIR (target/peers of this checkout).
TEXT
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
built="${TIDEMILL_PEERS_DIR:-$here/../../target/peers}/nats"
version="${NATS_VERSION:-v2.15.3}"

fail() { printf 'nats.sh: %s\n' "$*" >&2; exit 1; }

prepare() {
  command -v go >/dev/null || fail "go is missing: install Go"
  mkdir -p "$built/$version"
  if [ ! -x "$built/$version/nats-server" ]; then
    GOBIN="$(realpath "$built/$version")" go install "github.com/nats-io/nats-server/v2@$version" >&2 \
      || fail "Go could not build nats-server $version"
  fi
  # Go itself knows whether anything has changed.
  go -C "$here/nats" build -o "$(realpath "$built")/load" . >&2
}

serve() {
  local dir=$1 port=$2 flush=$4 sync=
  case $flush in
    synced) sync="sync_interval: always" ;;
    default) ;;
    *) fail "synced or default, not $flush" ;;
  esac
  mkdir -p "$dir"
  cat >"$dir/server.conf" <<TEXT
listen: "127.0.0.1:$port"
jetstream { store_dir: "$dir/store", max_file_store: 100GB
  $sync }
TEXT
  exec "$built/$version/nats-server" -c "$dir/server.conf" -l "$dir/server.log"
}

load() { exec "$built/load" "nats://127.0.0.1:$1"; }

case "${1:-} $#" in
  "prepare 1" | "serve 5" | "load 2") "$@" ;;
  "--help 1" | "-h 1") usage ;;
  *) usage >&2; exit 2 ;;
esac

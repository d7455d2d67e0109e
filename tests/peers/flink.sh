#!/usr/bin/env bash
# A count per key by Flink beside a host, for `tidemill bench functions --peers`.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/peers/flink.sh prepare
       tests/peers/flink.sh count rocksdb|hashmap DIR EVENTS KEYS BYTES

  prepare   fetches Flink with Maven, and compiles the program
  count     writes events to files in DIR and counts them per key within one process, keeping state and checkpoints in
            DIR; outputs are thrown away; says how far it is (see flink/Count.java)

Needs Java 17 and Maven, which fetches from where its settings say. Environment: FLINK_VERSION (as in flink/pom.xml),
FLINK_JVM_OPTIONS (-Xmx3g), TIDEMILL_PEERS_DIR (target/peers of this checkout).
TEXT
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
built="${TIDEMILL_PEERS_DIR:-$here/../../target/peers}/flink"
options="${FLINK_JVM_OPTIONS:--Xmx3g}"
quiet="-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
# What Flink's own scripts open of Java, as far as a count needs it.
opened="--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED
  --add-opens=java.base/java.util.concurrent=ALL-UNNAMED --add-opens=java.base/java.time=ALL-UNNAMED"

fail() { printf 'flink.sh: %s\n' "$*" >&2; exit 1; }

prepare() {
  command -v javac >/dev/null || fail "javac is missing: install a JDK of Java 17 or newer"
  command -v mvn >/dev/null || fail "mvn is missing: install Maven"
  mkdir -p "$built"
  local version=() stamp
  [ -z "${FLINK_VERSION:-}" ] || version=("-Dflink.version=$FLINK_VERSION")
  stamp="${FLINK_VERSION:-} $(cat "$here/flink/pom.xml" "$here/flink/Count.java" | sha256sum)"
  [ "$(cat "$built/stamp" 2>/dev/null || true)" != "$stamp" ] || return 0
  rm -rf "$built/jars" "$built/classes"
  mvn --quiet --batch-mode -Dstyle.color=never --file "$here/flink/pom.xml" "${version[@]}" dependency:copy-dependencies \
    "-DoutputDirectory=$(realpath "$built")/jars" >&2 || fail "Maven could not fetch Flink"
  javac -d "$built/classes" -cp "$built/jars/*" "$here/flink/Count.java"
  printf '%s\n' "$stamp" >"$built/stamp"
}

count() {
  mkdir -p "$2/tmp"
  # Word by word: these are several options.
  # shellcheck disable=SC2086
  exec java $options $opened "$quiet" "-Djava.io.tmpdir=$2/tmp" -cp "$built/classes:$built/jars/*" Count "$@"
}

case "${1:-} $#" in
  "prepare 1") prepare ;;
  "count 6") shift; count "$@" ;;
  "--help 1" | "-h 1") usage ;;
  *) usage >&2; exit 2 ;;
esac

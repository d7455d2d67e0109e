#!/usr/bin/env bash
# A count per key by Kafka Streams beside a host, for `tidemill bench functions --peers`.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/peers/streams.sh prepare
       tests/peers/streams.sh count PORT DIR EVENTS KEYS BYTES

  prepare   fetches Kafka Streams with Maven, and compiles the program
  count     fills a topic of the broker at PORT (tests/peers/kafka.sh serve) and counts its events per key with
            exactly_once_v2; keeps its state in DIR, and says how far it is (see streams/Count.java)

Needs Java 17 and Maven, which fetches from where its settings say. Environment: KAFKA_VERSION (as in
streams/pom.xml), KAFKA_JVM_OPTIONS (-Xmx2g), TIDEMILL_PEERS_DIR (target/peers of this checkout).
TEXT
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
built="${TIDEMILL_PEERS_DIR:-$here/../../target/peers}/streams"
options="${KAFKA_JVM_OPTIONS:--Xmx2g}"
quiet="-Dorg.slf4j.simpleLogger.defaultLogLevel=error"

fail() { printf 'streams.sh: %s\n' "$*" >&2; exit 1; }

prepare() {
  command -v javac >/dev/null || fail "javac is missing: install a JDK of Java 17 or newer"
  command -v mvn >/dev/null || fail "mvn is missing: install Maven"
  mkdir -p "$built"
  local version=() stamp
  [ -z "${KAFKA_VERSION:-}" ] || version=("-Dkafka.version=$KAFKA_VERSION")
  stamp="${KAFKA_VERSION:-} $(cat "$here/streams/pom.xml" "$here/streams/Count.java" | sha256sum)"
  [ "$(cat "$built/stamp" 2>/dev/null || true)" != "$stamp" ] || return 0
  rm -rf "$built/jars" "$built/classes"
  mvn --quiet --batch-mode -Dstyle.color=never --file "$here/streams/pom.xml" "${version[@]}" dependency:copy-dependencies \
    "-DoutputDirectory=$(realpath "$built")/jars" >&2 || fail "Maven could not fetch Kafka Streams"
  javac -d "$built/classes" -cp "$built/jars/*" "$here/streams/Count.java"
  printf '%s\n' "$stamp" >"$built/stamp"
}

count() {
  # Word by word: these are several options.
  # shellcheck disable=SC2086
  exec java $options "$quiet" -cp "$built/classes:$built/jars/*" Count "127.0.0.1:$1" "$2" "$3" "$4" "$5"
}

case "${1:-} $#" in
  "prepare 1") prepare ;;
  "count 6") shift; count "$@" ;;
  "--help 1" | "-h 1") usage ;;
  *) usage >&2; exit 2 ;;
esac

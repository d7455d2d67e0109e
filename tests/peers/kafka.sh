#!/usr/bin/env bash
# Apache Kafka beside a host, for `tidemill bench --peers`: one broker (KRaft) on loopback, and load on it.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: tests/peers/kafka.sh prepare
       tests/peers/kafka.sh serve DIR PORT CONTROLLER_PORT synced|default
       tests/peers/kafka.sh load PORT

  prepare   fetches the broker and its client with Maven, and compiles the load program
  serve     runs a broker on a fresh DIR until it is killed; synced: every append is flushed to the disk
            before it is acknowledged (flush.messages=1), default: as Kafka comes, without
  load      takes jobs from standard input (see kafka/Load.java)

Needs Java 17 and Maven, which fetches from where its settings say. Environment: KAFKA_VERSION (as in
kafka/pom.xml), KAFKA_JVM_OPTIONS (-Xmx2g), KAFKA_LOAD_JVM_OPTIONS (-Xmx4g), TIDEMILL_PEERS_DIR (target/peers of this checkout).
TEXT
}

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
built="${TIDEMILL_PEERS_DIR:-$here/../../target/peers}/kafka"
options="${KAFKA_JVM_OPTIONS:--Xmx2g}"
quiet="-Dorg.slf4j.simpleLogger.defaultLogLevel=error"

fail() { printf 'kafka.sh: %s\n' "$*" >&2; exit 1; }

prepare() {
  command -v javac >/dev/null || fail "javac is missing: install a JDK of Java 17 or newer"
  command -v mvn >/dev/null || fail "mvn is missing: install Maven"
  mkdir -p "$built"
  local version=() stamp
  [ -z "${KAFKA_VERSION:-}" ] || version=("-Dkafka.version=$KAFKA_VERSION")
  stamp="${KAFKA_VERSION:-} $(cat "$here/kafka/pom.xml" "$here/kafka/Load.java" | sha256sum)"
  [ "$(cat "$built/stamp" 2>/dev/null || true)" != "$stamp" ] || return 0
  rm -rf "$built/jars" "$built/classes"
  mvn --quiet --batch-mode -Dstyle.color=never --file "$here/kafka/pom.xml" "${version[@]}" dependency:copy-dependencies \
    "-DoutputDirectory=$(realpath "$built")/jars" >&2 || fail "Maven could not fetch Kafka"
  javac -d "$built/classes" -cp "$built/jars/*" "$here/kafka/Load.java"
  printf '%s\n' "$stamp" >"$built/stamp"
}

serve() {
  local dir=$1 port=$2 controller=$3 flush=$4
  mkdir -p "$dir"
  cat >"$dir/server.properties" <<TEXT
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
TEXT
  case $flush in
    synced) echo "log.flush.interval.messages=1" >>"$dir/server.properties" ;;
    default) ;;
    *) fail "synced or default, not $flush" ;;
  esac
  java -Xmx256m "$quiet" -cp "$built/jars/*" kafka.tools.StorageTool format \
    -t dGlkZW1pbGwtcGVlcnMtMQ -c "$dir/server.properties" >/dev/null
  # Word by word: these are several options.
  # shellcheck disable=SC2086
  exec java $options "$quiet" -cp "$built/jars/*" kafka.Kafka "$dir/server.properties"
}

load() {
  # 64 producers hold 32 MiB each. One that has no memory left is to end, not to wait for ever.
  # shellcheck disable=SC2086
  exec java ${KAFKA_LOAD_JVM_OPTIONS:--Xmx4g} -XX:+ExitOnOutOfMemoryError "$quiet" -cp "$built/classes:$built/jars/*" Load "127.0.0.1:$1"
}

case "${1:-} $#" in
  "prepare 1" | "serve 5" | "load 2") "$@" ;;
  "--help 1" | "-h 1") usage ;;
  *) usage >&2; exit 2 ;;
esac

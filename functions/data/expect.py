#!/usr/bin/env python3
"""usage: expect.py [FILE.csv.gz] [--check EXPECTED.json]

Computes from the raw flights, with nothing of Tidemill, what the four functions must come to, and
prints it as JSON. With --check it compares instead and fails where the figures differ.

  FILE             gzipped CSV as fetch.sh writes it (default flights-2013-01.csv.gz beside this file)

The rules of route alerts: per route, in the order of the file, over flights with a departure delay, the
last RECENT delays; once there are so many, an alert is raised when their mean reaches ALERT minutes, and
cleared when it falls below.
example: expect.py > expected-2013-01.json
"""
import collections
import csv
import gzip
import io
import json
import pathlib
import sys

DELAYED = 15
RECENT = 10
ALERT = 30


def expectations(path):
    carriers = collections.defaultdict(lambda: {"flights": 0, "minutes": 0, "worst": None})
    routes = collections.defaultdict(lambda: (collections.deque(maxlen=RECENT), False))
    figures = {"rows": 0, "without_departure_delay": 0, "delayed": 0}
    alerts = {"raised": 0, "cleared": 0}
    raised_per_route = collections.Counter()
    with io.TextIOWrapper(gzip.open(path), encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text):
            figures["rows"] += 1
            if row["dep_delay"] == "NA":
                figures["without_departure_delay"] += 1
                continue
            delay = int(row["dep_delay"])
            figures["delayed"] += delay >= DELAYED
            carrier = carriers[row["carrier"]]
            carrier["flights"] += 1
            carrier["minutes"] += delay
            carrier["worst"] = delay if carrier["worst"] is None else max(carrier["worst"], delay)
            route = f"{row['origin']}-{row['dest']}"
            recent, raised = routes[route]
            recent.append(delay)
            if len(recent) == RECENT:
                above = sum(recent) >= ALERT * RECENT
                if above != raised:
                    alerts["raised" if above else "cleared"] += 1
                    raised_per_route[route] += above
                    routes[route] = (recent, above)
    top = sorted(raised_per_route.items(), key=lambda item: (-item[1], item[0]))[:10]
    return {
        **figures,
        "delayed_from_minutes": DELAYED,
        "carriers": dict(sorted(carriers.items())),
        "route_alerts": sum(alerts.values()),
        "route_alerts_of": {**alerts, "recent": RECENT, "from_minutes": ALERT, "most_raised": dict(top)},
    }


def main(arguments):
    if "--help" in arguments or "-h" in arguments:
        print(__doc__)
        return 0
    known = None
    if "--check" in arguments:
        at = arguments.index("--check")
        if at + 1 == len(arguments):
            print(__doc__, file=sys.stderr)
            return 2
        known = json.loads(pathlib.Path(arguments[at + 1]).read_text())
        del arguments[at : at + 2]
    path = arguments[0] if arguments else pathlib.Path(__file__).with_name("flights-2013-01.csv.gz")
    found = expectations(path)
    if known is None:
        print(json.dumps(found, indent=2))
        return 0
    for name in sorted(found.keys() | known.keys()):
        if found.get(name) != known.get(name):
            print(f"{name}: computed {found.get(name)}, expected {known.get(name)}", file=sys.stderr)
    return int(found != known)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

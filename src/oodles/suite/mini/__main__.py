"""Print the sets of the embedded suite, or a few rows of one: `python -m oodles.suite.mini overlap`."""

import sys

from oodles.suite.mini import SETS, generate

if len(sys.argv) == 1:
    for spec in SETS.values():
        print(f"{spec.name:12} {spec.shift}")
else:
    try:
        rows = generate(sys.argv[1])
    except ValueError as error:
        sys.exit(str(error))
    for row in rows[:8]:
        print(f"{row['premise']} | {row['hypothesis']} | {row['label']}")

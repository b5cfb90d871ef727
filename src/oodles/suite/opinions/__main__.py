"""Print the sets of `opinions`, or a few rows of one: `python -m oodles.suite.opinions negation`."""

import sys

from oodles.suite.opinions import SETS, generate

if len(sys.argv) == 1:
    for spec in SETS.values():
        print(f"{spec.name:12} {spec.shift}")
else:
    try:
        rows = generate(sys.argv[1])
    except ValueError as error:
        sys.exit(str(error))
    for row in rows[:8]:
        print(f"{row['opening']} {row['ending']} | {row['label']}")

"""Print the sets of `opinions`, or a few rows of one: `python -m oodles.suite.opinions negation`."""

from oodles.suite.generated import show
from oodles.suite.opinions import SETS, generate

show(SETS, generate, "{opening} {ending} | {label}")

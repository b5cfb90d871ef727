"""Print the sets of the embedded suite, or a few rows of one: `python -m oodles.suite.mini overlap`."""

from oodles.suite.generated import show
from oodles.suite.mini import SETS, generate

show(SETS, generate, "{premise} | {hypothesis} | {label}")

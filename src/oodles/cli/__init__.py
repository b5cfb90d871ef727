"""oodles on the command line: parse, call one function, print. Results on stdout, progress on stderr."""

from oodles.cli.app import app as app
from oodles.cli.app import main as main

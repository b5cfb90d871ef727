"""oodles on the command line."""

from oodles.cli.cli import app as app
from oodles.cli.cli import main as main

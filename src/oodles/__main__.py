"""Run the command line with `python -m oodles`, as the `oodles` script does."""

from oodles.cli import main

if __name__ == "__main__":
    main()

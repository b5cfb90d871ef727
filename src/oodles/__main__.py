"""python -m oodles: the command line, as the `oodles` script."""

from oodles.cli import main

if __name__ == "__main__":
    main()

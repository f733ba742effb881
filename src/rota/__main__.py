"""Entry point of `python -m rota`."""

import sys

from rota.cli.main import program

if __name__ == "__main__":
    sys.exit(program())

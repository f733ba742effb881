"""Entry point `python -m rota.supervisor HOME` of the local executor. Cheaper than the command-line parser."""

import os
import sys

from rota.supervisor.main import main

if __name__ == "__main__":
    sys.exit(main(*(sys.argv[1:] or [os.environ["ROTA_HOME"]])))

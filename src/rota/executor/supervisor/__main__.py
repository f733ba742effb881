"""`python -m rota.executor.supervisor HOME`: what the local executor starts, cheaper than the command line's parser."""

import os
import sys

from rota.executor.supervisor.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else os.environ["ROTA_HOME"]))

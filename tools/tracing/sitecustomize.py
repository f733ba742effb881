"""Record the files of Rota whose functions run while a marker file exists: Python imports this at its start.

`tools/footprint.py` puts this directory on PYTHONPATH. Module and class bodies do not count: they run at import.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

DIRECTORY = os.environ.get("FOOTPRINT_DIRECTORY")
IS_CODE_OF_A_FUNCTION = 0x2  # CO_NEWLOCALS
PACKAGE = f"{os.sep}src{os.sep}rota{os.sep}"

if DIRECTORY is not None:
    marker = f"{DIRECTORY}/marker"
    files: set[str] = set()

    def record(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename in files or PACKAGE not in code.co_filename:
            return
        if code.co_flags & IS_CODE_OF_A_FUNCTION and os.path.exists(marker):  # noqa: PTH110 - runs at every call
            files.add(code.co_filename)
            with open(f"{DIRECTORY}/{os.getpid()}.files", "a") as output:  # noqa: PTH123 - no import at such a place
                print(code.co_filename, file=output)

    threading.setprofile(record)
    sys.setprofile(record)

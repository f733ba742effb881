"""Python imports this at its start where this folder is on `PYTHONPATH`: schedulers and supervisors become killable."""

from __future__ import annotations

import os
import sys
import traceback

if "serve" in sys.orig_argv or "rota.executor.supervisor" in sys.orig_argv:
    from crash import strike

    try:
        strike.put_up("scheduler" if "serve" in sys.orig_argv else "supervisor")
    except Exception:  # noqa: BLE001 - a place that is gone; Python would say so in one line and go on
        traceback.print_exc()
        os._exit(1)

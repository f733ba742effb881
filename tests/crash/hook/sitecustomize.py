"""Startup hook of Python when this folder is on `PYTHONPATH`: makes schedulers and supervisors killable."""

from __future__ import annotations

import os
import sys
import traceback

if "serve" in sys.orig_argv or "rota.supervisor" in sys.orig_argv:
    from tests.crash import killer

    try:
        killer.install("scheduler" if "serve" in sys.orig_argv else "supervisor")
    except Exception:  # noqa: BLE001 - a missing function; Python itself would print one line and continue
        traceback.print_exc()
        os._exit(1)

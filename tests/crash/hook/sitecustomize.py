"""Python imports this at its start where this folder is on `PYTHONPATH`: schedulers and supervisors become killable."""

from __future__ import annotations

import sys

if "serve" in sys.orig_argv or "rota.executor.supervisor" in sys.orig_argv:
    from crash import strike

    strike.put_up("scheduler" if "serve" in sys.orig_argv else "supervisor")

"""Each break in a copy of the sources, never in the checkout; its test sees the copy before the installed package.

First all the tests run over a copy that nothing was done to: what fails there too has caught nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mutation.breaks import ROOT, Break, load

PATIENCE = 300.0
"""Seconds; a test that hangs has not said what is wrong."""
_FAILED = 1
"""How pytest says that a test failed; all else (no such test, an import that breaks) shows nothing."""
_WHERE = "import rota, sys; sys.exit(not rota.__file__.startswith(sys.argv[1]))"


def main(names: Sequence[str]) -> int:
    known = {each.name: each for each in load()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such break: {', '.join(unknown)}; known are {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in names] or list(known.values())
    if not _passes_unbroken(chosen):
        print("one of the tests fails without any break; mend that first", file=sys.stderr)
        return 1
    width = max(len(each.name) for each in chosen)
    is_caught = [_show(each, width) for each in chosen]
    print(f"{sum(is_caught)} of {len(is_caught)} breaks are caught")
    return 0 if all(is_caught) else 1


def _show(each: Break, width: int) -> bool:
    began = time.monotonic()
    try:
        verdict = try_out(each)
    except ValueError as error:
        verdict = f"NOT CAUGHT: {error}"
    seconds = time.monotonic() - began
    print(f"{each.name:<{width}}  {verdict:<10}  {seconds:5.1f} s  {each.test}", flush=True)
    return verdict == "caught"


def try_out(each: Break) -> str:
    with _copy() as sources:
        each.apply(sources)
        code = _test(sources, [each.test])
    if code == _FAILED:
        return "caught"
    said = {0: "its test passes", None: "its test hangs"}.get(
        code, f"its test cannot be run (pytest ended with {code})"
    )
    return f"NOT CAUGHT: {said}"


def _passes_unbroken(breaks: Sequence[Break]) -> bool:
    with _copy() as sources:
        subprocess.run([sys.executable, "-c", _WHERE, str(sources)], env=_environment(sources), check=True)
        return _test(sources, sorted({each.test for each in breaks}), is_quiet=False) == 0


@contextmanager
def _copy() -> Iterator[Path]:
    """With its compiled files, which fit as long as the times of their sources do."""
    with tempfile.TemporaryDirectory(prefix="rota-mutation-") as directory:
        sources = Path(directory) / "src"
        shutil.copytree(ROOT / "src", sources)
        yield sources


def _environment(sources: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(sources)}


def _test(sources: Path, tests: Sequence[str], *, is_quiet: bool = True) -> int | None:
    """How pytest ended; none if it did not."""
    words = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
    output = subprocess.DEVNULL if is_quiet else None
    with subprocess.Popen(
        words, cwd=ROOT, env=_environment(sources), stdout=output, stderr=output, start_new_session=True
    ) as child:
        try:
            return child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return None

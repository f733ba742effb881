"""Application of each break to a copy of the sources, never to the checkout. The tests import the copy.

First all tests run with an unchanged copy: a test that fails there cannot catch a break.
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

from tests.mutation.breaks import ROOT, Break, load

TEST_TIMEOUT = 300.0
"""Maximum seconds of a test. A hanging test does not count as a failure."""
_FAILED = 1
"""Exit code of pytest for a failed test. Others (unknown test, broken import) do not count."""
_CHECK_IMPORT = "import rota, sys; sys.exit(not rota.__file__.startswith(sys.argv[1]))"


def main(names: Sequence[str]) -> int:
    known = {entry.name: entry for entry in load()}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no such break: {', '.join(unknown)}; known breaks: {', '.join(known)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in names] or list(known.values())
    if not _passes_unbroken(chosen):
        print("a test fails without a break; fix it first", file=sys.stderr)
        return 1
    width = max(len(entry.name) for entry in chosen)
    is_caught = [_run_and_print(entry, width) for entry in chosen]
    print(f"{sum(is_caught)} of {len(is_caught)} breaks are caught")
    return 0 if all(is_caught) else 1


def _run_and_print(entry: Break, width: int) -> bool:
    started_at = time.monotonic()
    try:
        verdict = run_break(entry)
    except ValueError as error:
        verdict = f"NOT CAUGHT: {error}"
    seconds = time.monotonic() - started_at
    print(f"{entry.name:<{width}}  {verdict:<10}  {seconds:5.1f} s  {entry.test}", flush=True)
    return verdict == "caught"


def run_break(entry: Break) -> str:
    with _copy_sources() as sources:
        entry.apply(sources)
        code = _run_tests(sources, [entry.test])
    if code == _FAILED:
        return "caught"
    reason = {0: "its test passes", None: "its test hangs"}.get(
        code, f"its test cannot run (exit code {code} of pytest)"
    )
    return f"NOT CAUGHT: {reason}"


def _passes_unbroken(breaks: Sequence[Break]) -> bool:
    with _copy_sources() as sources:
        subprocess.run([sys.executable, "-c", _CHECK_IMPORT, str(sources)], env=_environment(sources), check=True)
        return _run_tests(sources, sorted({entry.test for entry in breaks}), is_quiet=False) == 0


@contextmanager
def _copy_sources() -> Iterator[Path]:
    """Copy the sources with their compiled files, which stay valid because the copy keeps modification times."""
    with tempfile.TemporaryDirectory(prefix="rota-mutation-") as directory:
        sources = Path(directory) / "src"
        shutil.copytree(ROOT / "src", sources)
        yield sources


def _environment(sources: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(sources)}


def _run_tests(sources: Path, tests: Sequence[str], *, is_quiet: bool = True) -> int | None:
    """Run the tests, and return the exit code of pytest, or `None` if it did not end in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", *tests]
    output = subprocess.DEVNULL if is_quiet else None
    with subprocess.Popen(
        command, cwd=ROOT, env=_environment(sources), stdout=output, stderr=output, start_new_session=True
    ) as child:
        try:
            return child.wait(TEST_TIMEOUT)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            return None

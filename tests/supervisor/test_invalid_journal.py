"""Journal truncated at any byte or with invalid lines: the supervisor starts, uses the valid lines, and invents
nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rota.executor import local
from rota.executor.port import ExitReport, StartFailure
from rota.supervisor import process, protocol
from rota.supervisor.journal import JournalReplay
from rota.supervisor.run import SupervisedRun
from tests.sample import sample
from tests.supervisor.invalid_lines import invalid_line
from tests.supervisor.rig import Rig, is_alive, open_rig

INVALID_RUN = 9
"""Number of the run in the invalid lines. The others differ enough not to be hit by an overwritten byte."""
FIRST_VALID_RUN = 7_000_000


def make_starting(run: int, boot: str) -> dict[str, Any]:
    return {
        "type": "starting",
        "run": run,
        "boot": boot,
        "directory": f"/nowhere/{run}",
        "kill_after": 1.0,
        "deadline": None,
        "idle_timeout": None,
    }


def make_messages(run: int, code: int, boot: str = "an-older-boot") -> list[dict[str, Any]]:
    return [
        make_starting(run, boot),
        {"type": "started", "run": run, "pid": 2**22 - 1, "start_time": 1},
        {"type": "ending", "run": run, "ended_by": "timeout", "kill_at": 1.5},
        {
            "type": "exited",
            "run": run,
            "at": 1.0,
            "code": code,
            "signal": None,
            "ended_by": None,
            "skip_reason": None,
            "tail": "é",
            "is_observed": True,
            "workspace_error": "",
        },
        {"type": "acknowledged", "run": run},
    ]


INVALID_RUN_MESSAGES = [
    *make_messages(INVALID_RUN, 0)[:4],
    {**make_starting(INVALID_RUN, "an-older-boot"), "step": "SET_UP", "workspace": {"limit": 1.0}},
    {"type": "step", "run": INVALID_RUN, "step": "FINISH", "state": {"worktree_root": "/nowhere"}, "has_run": True},
    {"type": "finished", "run": INVALID_RUN},
    {"type": "failed_to_start", "run": INVALID_RUN, "error": "no such program", "is_machine_failure": False},
]


@st.composite
def journals(draw: st.DrawFn, boot: str = "an-older-boot") -> tuple[list[bytes], list[bytes]]:
    """Generate the valid lines and the complete journal. Each run has reached some phase."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    valid = [protocol.encode_message(type="generation", generation=0)]
    for number, length in enumerate(lengths):
        valid += [
            protocol.encode_message(**line)
            for line in make_messages(FIRST_VALID_RUN + number, 10 + number, boot)[:length]
        ]
    whole = list(valid)
    first = protocol.encode_message(**make_starting(INVALID_RUN, boot))
    for line in draw(st.lists(st.just(first) | invalid_line(INVALID_RUN_MESSAGES), min_size=1, max_size=6)):
        whole.insert(draw(st.integers(0, len(whole))), line)
    return valid, whole


def replay(lines: list[bytes]) -> dict[int, SupervisedRun]:
    journal = JournalReplay()
    journal.replay(b"".join(lines))
    return journal.runs


@settings(max_examples=sample(300))
@given(journals())
def test_valid_lines_are_replayed_and_ends_are_readable(journal: tuple[list[bytes], list[bytes]]) -> None:
    valid, whole = journal
    runs = replay(whole)
    known = {
        number: run.journal_lines() for number, run in runs.items() if FIRST_VALID_RUN <= number < FIRST_VALID_RUN + 3
    }
    assert known == {number: run.journal_lines() for number, run in replay(valid).items()}
    for run in runs.values():
        assert run.end_line is None or run.end_line in whole
        assert run.end_line is None or isinstance(local._decode_message(run.end_line), ExitReport | StartFailure)
        assert replay(run.journal_lines())[run.number].journal_lines() == run.journal_lines()


def expected_codes(lines: list[bytes]) -> dict[int, int | None]:
    """Return the exit code that is reported for each run; None if it cannot be known."""
    codes: dict[int, int | None] = {}
    for number, run in replay(lines).items():
        end = None if run.end_line is None else local._decode_message(run.end_line)
        codes[number] = end.code if isinstance(end, ExitReport) else None
    return codes


@settings(max_examples=sample(12), suppress_health_check=[*HealthCheck])
@given(journals(), st.booleans(), st.floats(0, 1))
def test_supervisor_starts_with_an_invalid_journal(
    journal: tuple[list[bytes], list[bytes]], is_this_boot: bool, truncate_at: float
) -> None:
    """Truncated at any byte, too. A run without a recorded exit code ends without one."""
    boot = process.boot_id().encode() if is_this_boot else b"an-older-boot"
    valid, whole = ([line.replace(b"an-older-boot", boot) for line in lines] for lines in journal)
    data = b"".join(whole)
    data = data[: int(len(data) * truncate_at)]
    remaining = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir()
        (home / protocol.JOURNAL).write_bytes(data)
        with open_rig(home) as rig:
            codes = {
                run: rig.wait_for_exit(run).code
                for run in expected_codes([line for line in remaining if line in valid])
            }
            assert codes == expected_codes([line for line in remaining if line in valid])
            rig.start_shell(8, "exit 8")
            assert rig.wait_for_exit(8).code == 8


@settings(max_examples=sample(6), suppress_health_check=[*HealthCheck])
@given(
    st.lists(invalid_line(INVALID_RUN_MESSAGES), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.booleans(),
)
def test_children_survive_invalid_lines_in_the_journal(lines: list[bytes], chance: Any, has_pid: bool) -> None:
    with tempfile.TemporaryDirectory() as directory, open_rig(Path(directory) / "home") as rig:
        rig.start(1, ["sleep", "1000"])
        child = rig.wait_for_start(1).pid
        rig.start_shell(2, "exit 3")
        rig.wait_for_exit(2)
        rig.kill_supervisor()
        _rewrite(rig, lambda journal: _insert_lines(journal, lines, chance, has_pid=has_pid))
        assert rig.wait_for_exit(2).code == 3
        rig.reconnect()
        assert {report.run: report.pid for report in rig.inventory.runs if report.run in (1, 2)} == {1: child, 2: None}
        assert is_alive(child)
        rig.stop(1)
        assert rig.wait_for_exit(1).ended_by == "stop"


def _rewrite(rig: Rig, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = rig.home / protocol.JOURNAL
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def _insert_lines(journal: list[bytes], lines: list[bytes], chance: Any, *, has_pid: bool) -> list[bytes]:
    """Insert invalid lines. Without its recorded pid, a child is found by its tag."""
    if not has_pid:
        journal = [
            line[: len(line) // 2] + b"\n" if line.startswith(b'{"type":"started","run":1,') else line
            for line in journal
        ]
    for line in lines:
        journal.insert(chance.randint(0, len(journal)), line)
    return journal

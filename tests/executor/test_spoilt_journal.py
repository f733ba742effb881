"""A journal cut at any byte, or with lines that nobody wrote: the supervisor comes up, knows what the others say, and
makes nothing up."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executor.rig import Rig, lives, rig_in
from executor.spoilt import spoilt_line
from rota.executor import local
from rota.executor.port import Exited, FailedToStart
from rota.executor.supervisor import process, protocol
from rota.executor.supervisor.history import History
from rota.executor.supervisor.run import Run
from sample import sample

ODD = 9
"""The run whose lines are spoilt; those of the others are told apart from it whatever is overwritten."""
BASE = 7_000_000


def starting(run: int, boot: str) -> dict[str, Any]:
    return {
        "type": "starting", "run": run, "boot": boot, "directory": f"/nowhere/{run}", "kill_after": 1.0,
        "deadline": None, "idle_timeout": None,
    }  # fmt: skip


def life_of(run: int, code: int, boot: str = "an-older-boot") -> list[dict[str, Any]]:
    return [
        starting(run, boot),
        {"type": "started", "run": run, "pid": 2**22 - 1, "start_time": 1},
        {"type": "ending", "run": run, "by": "timeout", "kill_at": 1.5},
        {
            "type": "exited", "run": run, "at": 1.0, "code": code, "signal": None, "ended_by": None, "skipped": None,
            "tail": "é", "watched": True, "trouble": "",
        },
        {"type": "acknowledged", "run": run},
    ]  # fmt: skip


WRONG = [
    *life_of(ODD, 0)[:4],
    {**starting(ODD, "an-older-boot"), "step": "SET_UP", "workspace": {"limit": 1.0}},
    {"type": "step", "run": ODD, "step": "FINISH", "place": {"top": "/nowhere"}, "has_run": True},
    {"type": "finished", "run": ODD},
    {"type": "failed_to_start", "run": ODD, "error": "no such program", "is_machine": False},
]


@st.composite
def journals(draw: st.DrawFn, boot: str = "an-older-boot") -> tuple[list[bytes], list[bytes]]:
    """What is right of it, and the whole. Each run stands as far as it has come."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    right = [protocol.line(type="generation", generation=0)]
    for number, length in enumerate(lengths):
        right += [protocol.line(**line) for line in life_of(BASE + number, 10 + number, boot)[:length]]
    whole = list(right)
    first = protocol.line(**starting(ODD, boot))
    for line in draw(st.lists(st.just(first) | spoilt_line(WRONG), min_size=1, max_size=6)):
        whole.insert(draw(st.integers(0, len(whole))), line)
    return right, whole


def replayed(lines: list[bytes]) -> dict[int, Run]:
    history = History()
    history.replay(b"".join(lines))
    return history.runs


@settings(max_examples=sample(300))
@given(journals())
def test_what_is_right_is_known_and_what_is_told_can_be_read(journal: tuple[list[bytes], list[bytes]]) -> None:
    right, whole = journal
    runs = replayed(whole)
    known = {number: run.records() for number, run in runs.items() if BASE <= number < BASE + 3}
    assert known == {number: run.records() for number, run in replayed(right).items()}
    for run in runs.values():
        assert run.end is None or run.end in whole
        assert run.end is None or isinstance(local._decode(run.end), Exited | FailedToStart)
        assert replayed(run.records())[run.number].records() == run.records()


def expected(lines: list[bytes]) -> dict[int, int | None]:
    """The code that each run is told to have had; none where nobody can know it."""
    codes: dict[int, int | None] = {}
    for number, run in replayed(lines).items():
        end = None if run.end is None else local._decode(run.end)
        codes[number] = end.code if isinstance(end, Exited) else None
    return codes


@settings(max_examples=sample(12), suppress_health_check=[*HealthCheck])
@given(journals(), st.booleans(), st.floats(0, 1))
def test_a_supervisor_comes_up_with_it(
    journal: tuple[list[bytes], list[bytes]], is_this_boot: bool, cut_at: float
) -> None:
    """Cut at any byte as well. Whatever is not told to have ended with a code has ended without one."""
    boot = process.boot_id().encode() if is_this_boot else b"an-older-boot"
    right, whole = ([line.replace(b"an-older-boot", boot) for line in lines] for lines in journal)
    data = b"".join(whole)
    data = data[: int(len(data) * cut_at)]
    left = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir()
        (home / protocol.JOURNAL).write_bytes(data)
        with rig_in(home) as rig:
            told = {run: rig.exited(run).code for run in expected([line for line in left if line in right])}
            assert told == expected([line for line in left if line in right])
            rig.shell(8, "exit 8")
            assert rig.exited(8).code == 8


@settings(max_examples=sample(6), suppress_health_check=[*HealthCheck])
@given(st.lists(spoilt_line(WRONG), min_size=1, max_size=4), st.randoms(use_true_random=False), st.booleans())
def test_children_live_on_whatever_was_written_between(lines: list[bytes], chance: Any, has_its_pid: bool) -> None:
    with tempfile.TemporaryDirectory() as directory, rig_in(Path(directory) / "home") as rig:
        rig.start(1, ["sleep", "1000"])
        child = rig.started(1).pid
        rig.shell(2, "exit 3")
        rig.exited(2)
        rig.kill_supervisor()
        _rewrite(rig, lambda journal: _spoil(journal, lines, chance, has_its_pid=has_its_pid))
        assert rig.exited(2).code == 3
        rig.reconnect()
        assert {account.run: account.pid for account in rig.accounts.runs if account.run in (1, 2)} == {
            1: child,
            2: None,
        }
        assert lives(child)
        rig.stop(1)
        assert rig.exited(1).ended_by == "stop"


def _rewrite(rig: Rig, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path = rig.home / protocol.JOURNAL
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def _spoil(journal: list[bytes], lines: list[bytes], chance: Any, *, has_its_pid: bool) -> list[bytes]:
    """Without its pid a child is found by what it carries."""
    if not has_its_pid:
        journal = [
            line[: len(line) // 2] + b"\n" if line.startswith(b'{"type":"started","run":1,') else line
            for line in journal
        ]
    for line in lines:
        journal.insert(chance.randint(0, len(journal)), line)
    return journal

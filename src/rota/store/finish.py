"""Stores ends: of runs, of jobs that never ran, of claims that shall not be tried again."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rota.core.event import Event
from rota.core.run import STOPPED_BY_SHUTDOWN, Conclusion, amend
from rota.core.status import WAITING, Status, advance
from rota.ids import JobId, LaneId
from rota.store.claim import Claiming, OpenRun
from rota.store.moment import to_stored


class Finishing(Claiming):
    def finish(
        self, run: OpenRun, end: Conclusion, *, at: datetime, now: datetime, cause: str, goes_on: bool = False
    ) -> bool:
        """Book the end of a run, that came `at` that time; false when it is too late to change anything. A failure
        is permanent unless the chain goes on."""
        values = {"now": to_stored(at), "status": advance(run.status, end.status).value, "exit_code": end.exit_code}
        amended = amend(status=values["status"], finished_at=values["now"], exit_code=end.exit_code, error=end.error)
        if not self._db.run("finish_run", run=run.run, **amended):
            return False
        is_final = int(end.status is Status.FAILED and not goes_on)
        self._db.run("finish_job", job=run.job, reason=end.reason, permanently_failed=is_final, **values)
        if run.has_locks:
            self.leave_locks(run.job)
        data: dict[str, object] = {"from": run.status.value, "exit_code": end.exit_code}
        if end.reason is not None:
            data["reason"] = end.reason
        self._ended(run.job, end.status, now, cause, actor=None, run=run, data=data)
        return True

    def abandon(self, run: OpenRun, *, failures: int, error: str, reason: str, now: datetime, cause: str) -> None:
        """The job could not be started and shall not be tried again: FAILED, and there was no run."""
        status = advance(run.status, Status.FAILED)
        touched = self._db.run(
            "end_dispatched", job=run.job, status=status.value, now=to_stored(now), exit_code=1, reason=reason,
            dispatch_failures=failures, last_failure=error, permanently_failed=1,
        )  # fmt: skip
        if not touched:
            return
        self._forget_run(run.run)
        self.leave_locks(run.job)
        data = {"from": run.status.value, "reason": reason, "error": error}
        self._ended(run.job, Status.FAILED, now, cause, actor=None, run=None, data=data)

    def end_waiting(
        self,
        job: JobId,
        status: Status,
        *,
        exit_code: int | None,
        reason: str,
        now: datetime,
        cause: str,
        actor: str | None,
    ) -> bool:
        """End a job that has not started; false when it no longer waits."""
        was_ready, was = self._db.rows("standing_of", job=job)[0]
        if Status(was) not in WAITING:
            return False
        advance(Status(was), status)
        lanes = self._db.rows(
            "end_waiting", job=job, status=status.value, now=to_stored(now), exit_code=exit_code, reason=reason,
            permanently_failed=int(status is Status.FAILED),
        )  # fmt: skip
        if not lanes:
            return False
        if was_ready:
            self._db.run("count_ready", lane=LaneId(lanes[0][0]), change=-1)
        self.leave_locks(job)
        self._ended(job, status, now, cause, actor=actor, run=None, data={"from": was, "reason": reason})
        return True

    def request_stop(self, job: JobId, reason: str, now: datetime, actor: str | None) -> bool:
        """Remember that a running job is to be ended; false when somebody asked before or it has ended."""
        if not self._db.run("request_stop", job=job, reason=reason, weaker=STOPPED_BY_SHUTDOWN):
            return False
        event = Event(
            kind="job.stop_requested", at=to_stored(now), cause="cancel", actor=actor, job=job, data={"reason": reason}
        )
        self.emit(event)
        return True

    def _ended(
        self, job: JobId, status: Status, now: datetime, cause: str, *, actor: str | None, run: OpenRun | None,
        data: Mapping[str, object],
    ) -> None:  # fmt: skip
        self.emit(
            Event(
                kind=f"job.{status.lower()}", at=to_stored(now), cause=cause, actor=actor, job=job,
                run=None if run is None else run.run, data=data,
            )
        )  # fmt: skip

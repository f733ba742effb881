"""Storage of ends: of runs, of jobs that never started, and of claims that are abandoned."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rota.core.event import Event
from rota.core.run import STOPPED_BY_SHUTDOWN, RunResult, amend
from rota.core.status import WAITING, Status, advance, parse_status
from rota.ids import JobId, LaneId
from rota.store.claim import ClaimWriter, OpenRun
from rota.store.timestamp import to_micros


class FinishWriter(ClaimWriter):
    def finish(
        self,
        run: OpenRun,
        end: RunResult,
        *,
        finished_at: datetime,
        now: datetime,
        cause: str,
        chain_continues: bool = False,
    ) -> bool:
        """End a run at `finished_at`. Return false if it has ended before. A failure is permanent unless the chain
        continues."""
        values = {
            "now": to_micros(finished_at),
            "status": advance(run.status, end.status).value,
            "exit_code": end.exit_code,
        }
        amended = amend(status=values["status"], finished_at=values["now"], exit_code=end.exit_code, error=end.error)
        if not self._db.run("finish_run", run=run.run, **amended):
            return False
        is_final = int(end.status is Status.FAILED and not chain_continues)
        self._db.run("finish_job", job=run.job, reason=end.reason, permanently_failed=is_final, **values)
        if run.has_locks:
            self.release_locks(run.job)
        data: dict[str, object] = {"from": run.status.value, "exit_code": end.exit_code}
        if end.reason is not None:
            data["reason"] = end.reason
        self._emit_end(run.job, end.status, now, cause, actor=None, run=run, data=data)
        return True

    def abandon(
        self, run: OpenRun, *, dispatch_failures: int, error: str, reason: str, now: datetime, cause: str
    ) -> None:
        """Fail a job that could not be started and is not retried. Its run is deleted."""
        status = advance(run.status, Status.FAILED)
        is_changed = self._db.run(
            "end_dispatched",
            job=run.job,
            status=status.value,
            now=to_micros(now),
            exit_code=1,
            reason=reason,
            dispatch_failures=dispatch_failures,
            last_failure=error,
            permanently_failed=1,
        )
        if not is_changed:
            return
        self._delete_run(run.run)
        self.release_locks(run.job)
        data = {"from": run.status.value, "reason": reason, "error": error}
        self._emit_end(run.job, Status.FAILED, now, cause, actor=None, run=None, data=data)

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
        """End a job that has not started. Return false if it no longer waits."""
        was_ready, old_status = self._db.rows("readiness_of", job=job)[0]
        if parse_status(old_status) not in WAITING:
            return False
        advance(parse_status(old_status), status)
        lanes = self._db.rows(
            "end_waiting",
            job=job,
            status=status.value,
            now=to_micros(now),
            exit_code=exit_code,
            reason=reason,
            permanently_failed=int(status is Status.FAILED),
        )
        if not lanes:
            return False
        if was_ready:
            self._db.run("update_ready_count", lane=LaneId(lanes[0][0]), delta=-1)
        self.release_locks(job)
        self._emit_end(job, status, now, cause, actor=actor, run=None, data={"from": old_status, "reason": reason})
        return True

    def end_unreadable(
        self, job: JobId, status: Status, *, exit_code: int, reason: str, now: datetime, actor: str | None
    ) -> None:
        """End a job of unknown status that has no open run."""
        was_ready, old_status = self._db.rows("readiness_of", job=job)[0]
        advance(parse_status(old_status), status)
        ((lane,),) = self._db.rows(
            "end_unreadable", job=job, status=status.value, now=to_micros(now), exit_code=exit_code, reason=reason
        )
        if was_ready:
            self._db.run("update_ready_count", lane=LaneId(lane), delta=-1)
        self.release_locks(job)
        self._emit_end(job, status, now, "cancel", actor=actor, run=None, data={"from": old_status, "reason": reason})

    def request_stop(self, job: JobId, reason: str, now: datetime, actor: str | None) -> bool:
        """Record that a running job must be stopped. Return false if a stop was requested before or the job has
        ended."""
        if not self._db.run("request_stop", job=job, reason=reason, weaker=STOPPED_BY_SHUTDOWN):
            return False
        event = Event(
            kind="job.stop_requested", at=to_micros(now), cause="cancel", actor=actor, job=job, data={"reason": reason}
        )
        self.emit(event)
        return True

    def _emit_end(
        self,
        job: JobId,
        status: Status,
        now: datetime,
        cause: str,
        *,
        actor: str | None,
        run: OpenRun | None,
        data: Mapping[str, object],
    ) -> None:
        self.emit(
            Event(
                kind=f"job.{status.lower()}",
                at=to_micros(now),
                cause=cause,
                actor=actor,
                job=job,
                run=None if run is None else run.run,
                data=data,
            )
        )

"""Submit a chain of three jobs, follow a log and the events, wait for the end, and handle errors.

    python examples/three_jobs.py

The client uses the scheduler of your home, as `rota` does, and starts it if needed. The jobs write `words.txt` to the
current directory.
"""

from __future__ import annotations

import sys

import rota


def main() -> int:
    with rota.Client() as client:
        write = client.submit(["sh", "-c", "echo hello world > words.txt; echo written"], name="write").job
        check = client.submit(
            ["sh", "-c", "echo $(wc -w < words.txt) words"], name="check", after=[write.id], timeout="1m"
        ).job
        report = client.submit(["sh", "-c", "exit 3"], name="report", after=[check.id]).job

        # Follow the output of a job. The iteration ends with the job.
        for piece in client.logs(check.id, follow=True):
            sys.stdout.write(f"checked: {piece.decode(errors='replace')}")

        # Follow the events. The iteration has no end, so leave it when you have what you need.
        for event in client.events(since=0, job=[report.id]):
            print(f"{event.at:%H:%M:%S} {event.kind}")
            if event.kind in ("job.completed", "job.failed"):
                break

        # Wait for the end. A failed job is a result, not an exception.
        ended = client.wait(report.id, timeout=60)
        print(f"{ended.name} {ended.status} ({ended.reason})")

        # A refused request raises an exception; its class says why.
        try:
            client.cancel(report.id)
        except rota.Conflict as conflict:
            print(f"{conflict.code}: {conflict.detail}")
        except rota.RotaError as error:
            print(f"unexpected error: {error.message}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

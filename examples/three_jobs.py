"""Three jobs, each after the one before: submit, follow the log and the events, wait, and handle what goes wrong.

    python examples/three_jobs.py

It speaks to the scheduler of your home, as `rota` does, and starts it if it is not there. It leaves a file `words.txt`
where you stand.
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

        # What a job writes, as it writes it; this ends with the job.
        for piece in client.logs(check.id, follow=True):
            sys.stdout.write(f"checked: {piece.decode(errors='replace')}")

        # What happens, from the first submit on. This has no end of its own: leave when you have seen enough.
        for event in client.events(since=0, job=[report.id]):
            print(f"{event.at:%H:%M:%S} {event.kind}")
            if event.kind in ("job.completed", "job.failed"):
                break

        # How it ended is data: a job that failed is no error of the client.
        ended = client.wait(report.id, timeout=60)
        print(f"{ended.name} {ended.status} ({ended.reason})")

        # What the scheduler refuses is an exception, by what it means.
        try:
            client.cancel(report.id)
        except rota.Conflict as refused:
            print(f"{refused.code}: {refused.detail}")
        except rota.RotaError as error:
            print(f"something else: {error.message}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`rota why`: the reason a job has not started, in a sentence."""

from __future__ import annotations

import argparse

from rota.cli.parser import job_id
from rota.cli.table import printable
from rota.cli.terminal import say, say_json
from rota.client.ask.job import why_job
from rota.client.session import Session
from rota.home import find_home


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB")


def run(args: argparse.Namespace) -> int:
    answer = Session(find_home(args.home)).ask(why_job(job_id(args.job)))
    if args.json:
        say_json(answer)
        return 0
    for line in (*answer["text"].splitlines(), *(answer.get("warnings") or ())):
        say(printable(line))
    return 0

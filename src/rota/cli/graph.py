"""`rota graph`: which jobs wait for what, drawn in plain ASCII."""

from __future__ import annotations

import argparse
import os
import sys

from rota.cli.parser import Usage, job_id
from rota.cli.terminal import height_of, say, talk, width_of
from rota.client.ask.graph import get_graph
from rota.client.session import Session
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from rota.client.ask import Json
    from rota.client.transport import Answer

_POLL = 2.0
"""Seconds. What changes outside the scheduler is announced by nobody, so it is looked at again so often."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="finished jobs too")
    parser.add_argument("--job", metavar="JOB", help="only this job, what it waits for and what waits for it")
    parser.add_argument("--format", choices=("dag", "json"), default="dag", help="a drawing, or nodes and edges")
    parser.add_argument("--max-depth", type=int, metavar="N", help="steps of dependencies to follow from a job (3)")
    parser.add_argument("--watch", action="store_true", help="draw it again whenever something changes, until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    if args.max_depth is not None and args.max_depth < 0:
        raise Usage("--max-depth takes a number of steps, 0 or more")
    form = "json" if args.json else args.format
    wanted = {
        "format": form,
        "all": args.all,
        "job": None if args.job is None else job_id(args.job),
        "max_depth": args.max_depth,
    }
    session = Session(find_home(args.home))
    if args.watch:
        _watch(session, wanted, _say_line if form == "json" else _easel() if _can_redraw() else _say_page)
    answer = session.ask(get_graph(**wanted))
    say(as_json(answer) if form == "json" else answer["text"])
    if answer.get("left_out"):
        talk(_rest(answer))
    return 0


def as_json(answer: Json) -> str:
    """One node and one edge a line: ten thousand of them are to be read and written at once."""
    import json

    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {_lines(part)}" for name, part in answer.items()) + "\n}"


def _lines(part: object) -> str:
    import json

    dump = json.JSONEncoder(ensure_ascii=False).encode
    if not isinstance(part, list) or not part:
        return dump(part)
    return "[\n" + ",\n".join(f"    {dump(each)}" for each in part) + "\n  ]"


def _rest(answer: Json) -> str:
    left_out = answer["left_out"]
    if "nodes" in answer:
        return f"{left_out} more jobs; --job JOB looks at one of them"
    return f"{left_out} more job{'s' * (left_out != 1)}; --job JOB looks at one, --format json has all"


def _watch(session: Session, wanted: dict[str, Any], show: Callable[[Answer], None]) -> None:
    """Until Ctrl-C, or until the scheduler is stopped."""
    seen: str | None = None
    while True:
        answer = session.answer(get_graph(**wanted, wait=_POLL, seen=seen))
        if answer.status != 304:
            seen = answer.headers.get("etag")
            show(answer)


def _say_line(answer: Answer) -> None:
    """Each graph on a line of its own, for programs."""
    say(answer.body.decode())
    sys.stdout.flush()


def _say_page(answer: Answer) -> None:
    """Where nothing can be drawn over: one below the other, an empty line between them."""
    say(answer.json()["text"] + "\n")
    sys.stdout.flush()


def _can_redraw() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _easel() -> Callable[[Answer], None]:
    from rota.cli.live import Canvas

    canvas = Canvas(sys.stdout)

    def show(answer: Answer) -> None:
        width, height = width_of(sys.stdout) or 80, height_of(sys.stdout)
        canvas.draw(fitted(answer.json(), width=width - 1, height=height - 1))

    return show


def fitted(answer: Json, *, width: int, height: int) -> list[str]:
    """As much of it as a terminal shows, with a word on the rest."""
    lines = answer["text"].split("\n")
    last = [f"... {_rest(answer)}"] if answer["left_out"] else []
    hidden = len(lines) + len(last) - height
    if hidden > 0:
        lines, last = lines[: height - 1], [f"... {hidden + 1} more lines; without --watch they are all there"]
    return [line if len(line) <= width else f"{line[: width - 3]}..." for line in (*lines, *last)]

"""`rota apply`: the jobs of a workflow file, submitted as one group, all or none."""

from __future__ import annotations

import argparse
import os
import sys

from rota.cli.asked import directory, environment, refuse_bytes
from rota.cli.parser import Formatter, Usage, seconds
from rota.cli.submit import deferred_json
from rota.cli.terminal import say, say_json, talk
from rota.client.ask.job import rehearse_batch, submit_batch
from rota.client.session import Session
from rota.errors import Conflict, Deferred, InvalidInput, RotaError
from rota.home import find_home

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rota.client.ask import Json
    from rota.workflow.document import Document
    from rota.workflow.workflow import Workflow

_EXAMPLE = """\
example, flow.yaml:

  group: {on_failure: stop}
  jobs:
    plan:   {command: [claude, -p, "write the plan"], produces: ["file:plan.md"]}
    build:  {command: [make, build], after: [plan], locks: [repo]}
    test:   {command: [make, test], after: [plan]}
    merge:  {command: [./merge.sh], after: [build, test], timeout: 10m}

  rota apply flow.yaml --dry-run     shows what would be stored
  rota apply flow.yaml --wait        returns 0 only if all of it succeeds
"""


class _Raw(Formatter, argparse.RawDescriptionHelpFormatter):
    """An example keeps its lines."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class, parser.epilog = _Raw, _EXAMPLE
    file = parser.add_argument("file", metavar="FILE", help="YAML (and so JSON) or TOML, by its suffix; - is stdin")
    file.complete = {"bash": "_shtab_compgen_files", "zsh": "_files"}  # type: ignore[attr-defined]
    parser.add_argument(
        "--format", choices=("yaml", "toml", "json"), help="what it is written in, whatever its name says"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the graph that would come of it")
    parser.add_argument("--wait", action="store_true", help="follow it to its end; 0 only if all of it succeeded")
    parser.add_argument("--timeout", metavar="D", help="with --wait: give up after so long and return 124; it goes on")


def run(args: argparse.Namespace) -> int:
    if args.timeout is not None and not args.wait:
        raise Usage("--timeout is how long to --wait: add that, or leave it out; a job's own timeout is in the file")
    if args.wait and args.dry_run:
        raise Usage("--dry-run stores nothing to --wait for; choose one")
    limit = seconds(args.timeout)
    source = "<stdin>" if args.file == "-" else args.file
    document, workflow = _read(args.file, source, args.format)
    cwd = directory(None)
    refuse_bytes({"cwd": cwd})
    request: Json = {
        "group": workflow.group, "jobs": workflow.jobs, "cwd": cwd, "env": environment(None), "inherit_env": False,
    }  # fmt: skip
    session = Session(find_home(args.home))
    try:
        if args.dry_run:
            return _rehearse(session, request, as_json=args.json)
        answer: Json = session.ask(submit_batch(**request))
    except Deferred as refusal:
        return _deferred(args, refusal)
    except RotaError as error:
        raise _located(error, source, document, workflow) from None
    except KeyboardInterrupt:
        talk("interrupted before there was an answer; `rota group list` shows whether it was taken")
        raise
    return _told(args, session, answer, workflow.names, limit)


def _read(file: str, source: str, form: str | None) -> tuple[Document, Workflow]:
    import gc

    from rota.workflow.document import Document, decode, guess
    from rota.workflow.fault import Fault, Unusable, show_faults
    from rota.workflow.workflow import Workflow

    gc.disable()  # ten thousand jobs are a million objects that all stay
    document: Document | None = None
    try:
        text = decode(_bytes(file))
        document = Document(text, form or _form(file) or guess(text))
        return document, Workflow(document.data, directory(None))
    except Fault as fault:
        raise InvalidInput(show_faults(source, [fault], {})) from None
    except Unusable as error:
        marks = {} if document is None else document.marks()
        raise InvalidInput(show_faults(source, error.faults, marks)) from None
    finally:
        gc.enable()


def _form(file: str) -> str | None:
    suffix = os.path.splitext(file)[1].lower()  # noqa: PTH122
    return {".yaml": "yaml", ".yml": "yaml", ".json": "yaml", ".toml": "toml"}.get(suffix)


def _bytes(file: str) -> bytes:
    from rota.workflow.document import MOST_BYTES

    try:
        if file == "-":
            return sys.stdin.buffer.read(MOST_BYTES + 1)
        with open(file, "rb") as stream:  # noqa: PTH123
            return stream.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise Usage(f"{file} cannot be read: {reason}; name a workflow file, or - for stdin") from None


def _located(error: RotaError, source: str, document: Document, workflow: Workflow) -> RotaError:
    """What the scheduler says of a place in the request, said of the place in the file."""
    if not error.path:
        return error
    from rota.workflow.fault import Fault, show_faults

    fault = Fault(workflow.path_of(error.path), error.message.partition(" - at `$")[0])
    return type(error)(show_faults(source, [fault], document.marks()))


def _rehearse(session: Session, request: Json, *, as_json: bool) -> int:
    answer = session.ask(rehearse_batch(**request, format="json" if as_json else "dag"))
    if as_json:
        say_json(answer)
    if answer["result"] == "deferred":
        talk(f"would be deferred: {answer['warning']}")
        return Deferred.exit_code
    if answer["result"] == "already_active":
        raise _already_active(answer)
    if answer.get("warning"):
        talk(f"warning: {answer['warning']}")
    if not as_json:
        say(answer["graph"]["text"])
        left_out = answer["graph"]["left_out"]
        more = f"; {left_out} more than are drawn, which --json has" if left_out else ""
        count = len(answer["jobs"])
        talk(f"{count} job{'s' * (count != 1)}{more}; nothing was stored, and the ids are those that are next now")
    return 0


def _already_active(answer: Json) -> Conflict:
    active = ", ".join(f"{job} has {key}" for key, job in answer["active"].items())
    return Conflict(f"a unique key is in use: {active}; nothing was stored, so wait for it or cancel it first")


def _deferred(args: argparse.Namespace, refusal: Deferred) -> int:
    """An answer like the others, which HTTP says by a status of its own."""
    if args.json:
        say_json(deferred_json(refusal, group=None, jobs=[]))
    talk(f"deferred: {refusal.message}")
    return Deferred.exit_code


def _told(args: argparse.Namespace, session: Session, answer: Json, names: list[str], limit: float | None) -> int:
    if answer["result"] == "already_active":
        if args.json:
            say_json(answer)
        raise _already_active(answer)
    if answer.get("warning"):
        talk(f"warning: {answer['warning']}")
    answer["jobs"] = [{"id": job, "local": name} for job, name in zip(answer["jobs"], names, strict=True)]
    if not args.json:
        say("\n".join([answer["group"], *(f"{job['id']}\t{job['local']}" for job in answer["jobs"])]))
    code = 0
    if args.wait:
        code, end = _follow(session, answer["group"], limit, args.timeout)
        answer |= end
    if args.json:
        say_json(answer)
    return code


def _follow(session: Session, group: str, limit: float | None, shown_limit: str | None) -> tuple[int, Json]:
    goes_on = f"{group} goes on; `rota wait {group}` follows it again, `rota group cancel {group}` ends it"
    try:
        sys.stdout.flush()
        from rota.cli.outcome import TIMED_OUT
        from rota.cli.progress import follow

        code, end = follow(session, group, limit)
    except KeyboardInterrupt:
        talk(goes_on)
        raise
    if code == TIMED_OUT:
        talk(f"gave up after {shown_limit}; {goes_on}")
    return code, end

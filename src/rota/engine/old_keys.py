"""Which keys are old enough to go. An answer goes by its own age; a note of what has begun goes with what it names.

    its slot waits or runs      it stays: who asks again is not to begin a second one
    its slot has ended          it is as old as that end, and the slot stays as long: it is the answer
    its slot is gone            it goes by its own age

So a note and its slot never keep each other for ever: the note goes first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from rota.engine.once import BEGUN, read_note
from rota.engine.work import Work
from rota.ids import SlotId
from rota.store.session import Looking, Reader


def find_old(reader: Reader, until: datetime) -> list[str]:
    old = reader.old_answers(until)
    stays = _unsettled(reader, dict(reader.answers_of_status(BEGUN)), until)
    return [key for key in old if key not in stays]


def remove(work: Work, keys: Sequence[str], until: datetime) -> int:
    """Those that are still old: meanwhile somebody may have begun something anew with one of them."""
    notes = dict(work.session.answers_among(keys, BEGUN))
    stays = _unsettled(work.session, notes, until)
    return work.session.remove_old_answers([key for key in keys if key not in stays], until)


def named_slots(reader: Reader, without: Collection[str] = ()) -> set[SlotId]:
    """Those that a note names, but for the notes of some keys."""
    return {read_note(body.encode()).slot for key, body in reader.answers_of_status(BEGUN) if key not in without}


def _unsettled(looking: Looking, notes: dict[str, str], until: datetime) -> set[str]:
    """The keys whose slot has not ended before that."""
    slots = {key: read_note(body.encode()).slot for key, body in notes.items()}
    fresh = looking.fresh_slots(list(slots.values()), until)
    return {key for key, slot in slots.items() if slot in fresh}

"""`posix_spawn` of the C library itself.

It is over when the child has got through its exec, most of a millisecond on a busy machine and for ever on a mount that
is dead. Python's own keeps every other thread of the process waiting for so long; a call through ctypes does not.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Sequence

_ROOM = 1024
"""Bytes for a thing of the C library's own: the largest has 336."""
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
_PYTHONS_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Ignored by Python, and not to be by children."""

_c = ctypes.CDLL(None)


def _attributes() -> ctypes.Array[ctypes.c_char]:
    """A session of its own, no signal blocked, none ignored that Python ignores."""
    attributes, signals = ctypes.create_string_buffer(_ROOM), ctypes.create_string_buffer(_ROOM)
    _check(_c.posix_spawnattr_init(attributes))
    _c.sigemptyset(signals)
    _check(_c.posix_spawnattr_setsigmask(attributes, signals))
    for number in _PYTHONS_SIGNALS:
        _c.sigaddset(signals, int(number))
    _check(_c.posix_spawnattr_setsigdefault(attributes, signals))
    _check(_c.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)))
    return attributes


def _check(error: int) -> None:
    if error:
        raise OSError(error, os.strerror(error))


_ATTRIBUTES = _attributes()


def posix_spawn(path: str, argv: Sequence[str], variables: dict[str, str], streams: Sequence[int]) -> int:
    """The pid of a child in a session of its own, in the calling thread's directory, with these for its 0, 1 and 2."""
    if any(not name or "=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    program, words = _text(path), _texts(argv)
    environment = _texts(f"{name}={value}" for name, value in variables.items())
    pid = ctypes.c_int()
    actions = ctypes.create_string_buffer(_ROOM)
    _check(_c.posix_spawn_file_actions_init(actions))
    try:
        for number, fd in enumerate(streams):
            _check(_c.posix_spawn_file_actions_adddup2(actions, fd, number))
        _check(_c.posix_spawn(ctypes.byref(pid), program, actions, _ATTRIBUTES, words, environment))
    finally:
        _c.posix_spawn_file_actions_destroy(actions)
    return pid.value


def _text(word: str) -> bytes:
    text = os.fsencode(word)
    if b"\0" in text:
        raise ValueError("embedded null byte")
    return text


def _texts(words: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    texts = [*map(_text, words), None]
    return (ctypes.c_char_p * len(texts))(*texts)

"""`posix_spawn` of the C library.

It returns when the child has completed its exec: most of a millisecond on a busy machine, and forever on a dead mount.
Python's own `os.posix_spawn` blocks every other thread of the process meanwhile; a call through ctypes does not.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Sequence

_STRUCT_BYTES = 1024
"""Buffer size for an opaque struct of the C library: the largest has 336 bytes."""
_SETSIGDEF, _SETSIGMASK, _SETSID = 0x04, 0x08, 0x80
_PYTHON_IGNORED_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores and children must not."""

_libc = ctypes.CDLL(None)


def _make_attributes() -> ctypes.Array[ctypes.c_char]:
    """Return spawn attributes: a new session, no signal blocked, none ignored because of Python."""
    attributes, signals = ctypes.create_string_buffer(_STRUCT_BYTES), ctypes.create_string_buffer(_STRUCT_BYTES)
    _raise_errno(_libc.posix_spawnattr_init(attributes))
    _libc.sigemptyset(signals)
    _raise_errno(_libc.posix_spawnattr_setsigmask(attributes, signals))
    for number in _PYTHON_IGNORED_SIGNALS:
        _libc.sigaddset(signals, int(number))
    _raise_errno(_libc.posix_spawnattr_setsigdefault(attributes, signals))
    _raise_errno(_libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID)))
    return attributes


def _raise_errno(error_number: int) -> None:
    if error_number:
        raise OSError(error_number, os.strerror(error_number))


_ATTRIBUTES = _make_attributes()


def posix_spawn(path: str, argv: Sequence[str], variables: dict[str, str], streams: Sequence[int]) -> int:
    """Start a child in its own session, in the calling thread's directory, with these descriptors as 0, 1 and 2. Return
    its pid."""
    if any(not name or "=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    program, words = _encode_argument(path), _encode_arguments(argv)
    environment = _encode_arguments(f"{name}={value}" for name, value in variables.items())
    pid = ctypes.c_int()
    actions = ctypes.create_string_buffer(_STRUCT_BYTES)
    _raise_errno(_libc.posix_spawn_file_actions_init(actions))
    try:
        for number, fd in enumerate(streams):
            _raise_errno(_libc.posix_spawn_file_actions_adddup2(actions, fd, number))
        _raise_errno(_libc.posix_spawn(ctypes.byref(pid), program, actions, _ATTRIBUTES, words, environment))
    finally:
        _libc.posix_spawn_file_actions_destroy(actions)
    return pid.value


def _encode_argument(argument: str) -> bytes:
    text = os.fsencode(argument)
    if b"\0" in text:
        raise ValueError("embedded null byte")
    return text


def _encode_arguments(arguments: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    texts = [*map(_encode_argument, arguments), None]
    return (ctypes.c_char_p * len(texts))(*texts)

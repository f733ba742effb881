"""The configuration in force, and the file that may change it while the scheduler runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from rota import config
from rota.config import Config
from rota.engine.settings import settings_of
from rota.engine.work import Settings
from rota.errors import RotaError
from rota.home import Home

log = logging.getLogger("rota.daemon")


class LiveConfig:
    """What cannot be used is said, here and in `status`; what was in force before it stays so."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = home.config
        self.current = config.load(self._path)
        self.settings = settings_of(self.current, home)
        self.trouble: str | None = None
        """Why the file on disk is not in force, while it is not."""
        self.changed: Callable[[Settings], None] = lambda _: None
        self._at_start = self.current
        self._seen = _stamp(self._path)
        self._has_looked = False

    def reload(self) -> None:
        self._seen = _stamp(self._path)
        try:
            self._apply(config.load(self._path))
        except Exception as error:
            self.trouble = error.message if isinstance(error, RotaError) else repr(error)
            raise

    def try_reload(self) -> None:
        try:
            self.reload()
            log.info("took up %s", self._path)
        except Exception:  # noqa: BLE001 - whatever is wrong with the file, the next look at it goes on
            log.warning("%s; the configuration before it stays in force", self.trouble)

    def look(self) -> None:
        """A file cannot tell that it was edited."""
        if _stamp(self._path) != self._seen:
            self.try_reload()

    def look_once(self) -> None:
        """In a round of the event loop: all requests that are handled in it were read before, so what their clients had
        written by then is seen."""
        if self._has_looked:
            return
        self._has_looked = True
        asyncio.get_running_loop().call_soon(self._end_round)
        self.look()

    def _end_round(self) -> None:
        self._has_looked = False

    def set_pool(self, name: str, size: int) -> None:
        self._apply(config.edit(self._path, f"pools.{name}", str(size)))
        self._seen = _stamp(self._path)

    def _apply(self, given: Config) -> None:
        self.settings = settings_of(given, self._home)
        is_moved = given.store != self._at_start.store
        self.trouble = "store.url takes effect at the next start" if is_moved else None
        self.current = given
        self.changed(self.settings)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        seen = path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino

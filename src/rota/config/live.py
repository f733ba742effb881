"""The configuration in effect, and its reload from the file while the scheduler runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from rota import config
from rota.config import Config
from rota.engine.settings import settings_from_config
from rota.engine.transaction import Settings
from rota.errors import RotaError
from rota.home import Home

log = logging.getLogger("rota.daemon")


class LiveConfig:
    """Configuration that follows its file. An invalid file is logged and shown in `status`, and changes nothing."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = home.config
        self.current = config.load(self._path)
        self.settings = settings_from_config(self.current, home)
        self.error: str | None = None
        """Reason why the file on disk is not in effect, or None."""
        self.on_change: Callable[[Settings], None] = lambda _: None
        self._initial = self.current
        self._loaded_stamp = _file_stamp(self._path)
        self._was_checked_this_round = False

    def reload(self) -> None:
        self._loaded_stamp = _file_stamp(self._path)
        try:
            self._apply(config.load(self._path))
        except Exception as error:
            self.error = error.message if isinstance(error, RotaError) else repr(error)
            raise

    def try_reload(self) -> None:
        try:
            self.reload()
            log.info("reloaded %s", self._path)
        except Exception:  # noqa: BLE001 - no error in the file may end the watch
            log.warning("%s; the previous configuration stays in effect", self.error)

    def reload_if_changed(self) -> None:
        """Reload the file if it has changed. It is polled, since files do not report edits."""
        if _file_stamp(self._path) != self._loaded_stamp:
            self.try_reload()

    def reload_if_changed_once(self) -> None:
        """Check the file at most once in each iteration of the event loop. All requests of an iteration were received
        before it, so the check covers every change that their clients had written."""
        if self._was_checked_this_round:
            return
        self._was_checked_this_round = True
        asyncio.get_running_loop().call_soon(self._reset_round)
        self.reload_if_changed()

    def _reset_round(self) -> None:
        self._was_checked_this_round = False

    def set_pool(self, name: str, size: int) -> None:
        self._apply(config.edit(self._path, f"pools.{name}", str(size)))
        self._loaded_stamp = _file_stamp(self._path)

    def _apply(self, configuration: Config) -> None:
        self.settings = settings_from_config(configuration, self._home)
        is_moved = configuration.store != self._initial.store
        self.error = "store.url takes effect at the next start" if is_moved else None
        self.current = configuration
        self.on_change(self.settings)


def _file_stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino

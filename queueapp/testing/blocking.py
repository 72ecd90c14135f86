"""Keeps tests away from the store that the settings name, unless they asked for a store of their own.

The pytest plugin starts the block once; `throwaway_store` opens it for its own server and namespace only, so that a
test that overrides `DUCTOR` in the middle does not reach the host's real queue either. What a connection is asked for
passes through five functions of `queueapp.store.connection`; the block stands in front of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from queueapp.conf import settings
from queueapp.errors import NoStore
from queueapp.store import connection

CONNECTING = ("commands", "reads", "blocking", "async_commands", "sentinels")
"""The functions of `connection` that hand out clients."""


class StoreBlocked(NoStore):
    """A test reached for the store without having asked for one."""


class Block:
    """The block of this process. `opened_for` is the (URL, namespace) that may pass."""

    def __init__(self) -> None:
        self.opened_for: tuple[str, str] | None = None
        self._message = ""
        self._originals: dict[str, Callable[..., Any]] = {}

    def start(self, message: str) -> None:
        """Refuse every connection from now on with this message. A second call only changes the message."""
        self._message = message
        if self._originals:
            return
        for name in CONNECTING:
            original = self._originals[name] = getattr(connection, name)
            setattr(connection, name, self._guarded(original))

    def stop(self) -> None:
        """Let everything pass again."""
        for name, original in self._originals.items():
            setattr(connection, name, original)
        self._originals.clear()

    def _guarded(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def connect() -> Any:
            if self.opened_for is None:
                raise StoreBlocked(self._message)
            if self.opened_for != (settings.redis_url, settings.namespace):
                raise StoreBlocked(
                    "The test changed DUCTOR and would reach another store than its own. Keep what is there: "
                    "override_settings(DUCTOR={**settings.DUCTOR, ...})."
                )
            return original()

        return connect


block = Block()

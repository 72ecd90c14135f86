"""Retention: ended jobs and dead letters go when they are too old or too many."""

from __future__ import annotations

from typing import Protocol

from queueapp.conf import settings

EVERY_S = 5.0
LIMIT = 500


class RetentionStore(Protocol):
    def trim(
        self,
        *,
        result_ttl_ms: int,
        result_max: int,
        dead_ttl_ms: int,
        dead_max: int,
        replay_window_ms: int = 60_000,
        limit: int = 500,
    ) -> bool: ...


class Retention:
    """One pool's trimming: bounded shares until nothing is left over, then every 5 s."""

    def __init__(self, store: RetentionStore) -> None:
        self._store = store

    def run(self) -> float:
        more = self._store.trim(
            result_ttl_ms=settings.result_ttl_ms,
            result_max=settings.result_max,
            dead_ttl_ms=settings.dead_ttl_ms,
            dead_max=settings.dead_max,
            replay_window_ms=settings.replay_window_ms,
            limit=LIMIT,
        )
        return 0.0 if more else EVERY_S

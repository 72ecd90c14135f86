"""The parker: the thread that waits in the store for work, so that an idle worker neither polls nor leases.

It owns one blocking connection. `park` sends it into BZPOPMIN over the wake keys; whatever comes back (a token, the
timeout, an error) it only posts to the I/O thread, which asks the store itself. Shutdown closes the socket under it.

While every slot is taken it must not take tokens that stand for work; then it waits for this worker's own ones alone,
which say that a job shall stop. `recall` ends that wait by closing the socket under it.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Protocol

logger = logging.getLogger(__name__)

BLOCK_S = 5.0
BLOCK_JITTER = 0.1
SHORTEST_S = 0.005
"""BZPOPMIN takes 0 for "for ever"; nothing blocks for less than this."""
CLOSE_AGAIN_S = 0.005
CLOSED_WITHIN_S = 1.0
"""A thread that is held up by the network is left to itself."""
ERROR_PAUSE_S = 0.1
ERROR_PAUSE_MAX_S = 2.0


class BlockingClient(Protocol):
    """The one command that the parker needs of a Redis client whose socket timeout is above the block."""

    def bzpopmin(self, keys: Sequence[str], timeout: float) -> object: ...

    def close(self) -> None: ...


def block_s(
    next_due_s: float | None, heartbeat_s: float | None, *, uniform: Callable[[], float] = random.random
) -> float:
    """How long to wait: 5 s give or take a tenth, or until something falls due, or until the next heartbeat."""
    waits = [BLOCK_S * (1 + BLOCK_JITTER * (2 * uniform() - 1))]
    waits += [wait_s for wait_s in (next_due_s, heartbeat_s) if wait_s is not None]
    return max(SHORTEST_S, min(waits))


def rotated(keys: Sequence[str], turn: int) -> list[str]:
    """The keys in another order each time: BZPOPMIN serves the first that has a member."""
    start = turn % len(keys)
    return [*keys[start:], *keys[:start]]


class Parker:
    """Waits for wake tokens on behalf of the I/O thread, which alone calls `park` and `close`."""

    def __init__(
        self,
        connect: Callable[[], BlockingClient],
        keys: Sequence[str],
        post: Callable[[], None],
        *,
        own: Sequence[str] = (),
    ) -> None:
        """`own` are those of the keys whose tokens are meant for this worker alone."""
        self._connect = connect
        self._keys = keys
        self._own = own
        self._post = post
        self._orders: SimpleQueue[tuple[float, Sequence[str]] | None] = SimpleQueue()
        self._client: BlockingClient | None = None
        self._closing = threading.Event()
        self._recalled = False
        self._turn = 0
        self._failures = 0
        self.parked = False
        """True from `park` until the wait is over; the parker clears it before it posts."""
        self.hears_work = False
        """While parked: that wait is for work, too."""
        self.deaf: frozenset[str] = frozenset()
        """While parked: the keys that it is not for."""
        self._thread = threading.Thread(target=self._wait, name="ductor-parker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def park(self, seconds: float, *, work: bool = True, deaf: frozenset[str] = frozenset()) -> None:
        """Wait for a token, at most so long, then post. Without `work`: for those of this worker alone, if it has any.

        Keys in `deaf` are not listened to. A no-op while parked.
        """
        keys = [key for key in self._keys if key not in deaf] if work else self._own
        if keys and not self.parked and not self._closing.is_set():
            self.parked, self.hears_work, self.deaf, self._recalled = True, work, deaf, False
            self._orders.put((seconds, keys))

    def recall(self) -> None:
        """Ends a wait. It may be called again: one that comes before the wait has quite begun is not noticed."""
        self._recalled = True
        self._close_client()

    def close(self) -> None:
        """Ends the thread, also in the middle of its wait, by closing the socket under it. One that was just about to
        wait is caught as soon as it does: else it would take a token for nobody, and the job would stay where it is."""
        self._closing.set()
        self._orders.put(None)
        end = monotonic() + CLOSED_WITHIN_S
        while self._thread.is_alive() and monotonic() < end:
            self._close_client()
            self._thread.join(CLOSE_AGAIN_S)

    def _close_client(self) -> None:
        client = self._client
        if client is not None:
            try:
                client.close()
            except Exception:
                logger.debug("The parker's connection did not close cleanly", exc_info=True)

    def _wait(self) -> None:
        while (order := self._orders.get()) is not None:
            seconds, keys = order
            try:
                if self._client is None:
                    self._client = self._connect()
                self._turn += 1
                if not (self._recalled or self._closing.is_set()):
                    self._client.bzpopmin(rotated(keys, self._turn), seconds)
                self._failures = 0
            except Exception:
                self._drop_client()
                if not self._recalled:
                    # Whatever it was, the I/O thread meets it in its own call and reports it once.
                    self._failures += 1
                    self._closing.wait(min(ERROR_PAUSE_MAX_S, ERROR_PAUSE_S * 2 ** min(self._failures - 1, 10)))
            self.parked = False
            if self._closing.is_set():
                return
            self._post()

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except Exception:
                logger.debug("A broken connection did not close cleanly", exc_info=True)

"""The thread that leads: it runs the dispatchers of one scheduler, and waits for whatever concerns one of their pools.

It is a thread of its own with a connection of its own, beside the scheduler's loop, because the two must not hold up
each other: duties wait for databases, and a leader's wait ends with a token of the store, not with a clock. One thread
for all pools is enough: what it does is short calls of bounded size, pool by pool in turn, and it waits for all of them
in one blocking read. The same read hears when the leader of a pool that is led elsewhere says good-bye.

The scheduler's loop alone acquires, renews and releases leases; the thread only asks for the term before each round
(`Leadership.term`), and a term that ended between asking and writing is fenced. Before a lease is released the loop
calls `let_go`, which waits for the round that runs, so that what a policy holds is kept under the term.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from queueapp.errors import DuctorError, StoreError
from queueapp.outage import Outage
from queueapp.scheduler.dispatching import LOOK_S, Dispatcher, DispatchStore
from queueapp.store.leader_records import Term

logger = logging.getLogger(__name__)

IDLE_ROUNDS = 3
IDLE_S, IDLE_MAX_S = 0.005, 1.0
"""After so many tokens in a row that came at once and had nothing behind them the thread rests, longer each time: no
fault makes it spin."""


class Leads(Protocol):
    """A pool's `Leadership`, as far as the thread asks it."""

    fault: str

    @property
    def term(self) -> Term | None: ...


class Client(Protocol):
    """A connection that blocks."""

    def close(self) -> None: ...


@dataclass(slots=True, eq=False)
class Led:
    """A pool that may be led here."""

    dispatcher: Dispatcher
    leads: Leads
    due: float = 0.0
    told: bool = True


Wait = Callable[[Any, str, Mapping[str, Any], Mapping[str, Any], float], str | None]
"""`store.dispatching.wait_leader`."""


class DispatchThread:
    """All dispatchers of one scheduler. Everything but `_run` and what it calls is called by the scheduler's loop."""

    def __init__(
        self,
        owner: str,
        connect: Callable[[], Client],
        wait: Wait,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._owner = owner
        self.on_doubt: Callable[[str], None] = lambda pool: None
        """Called by the thread, with the name of a pool whose leader has given up its lease, or which another leads."""
        self._connect = connect
        self._wait = wait
        self._clock = clock
        self._pools: dict[str, Led] = {}
        self._stopping = threading.Event()
        self._noticed = threading.Event()
        self._waiting_on: DispatchStore | None = None
        """One of the stores that the blocking read waits for: a token there ends it."""
        self._client: Client | None = None
        self._outage = Outage(logger, clock=clock)
        self._idle = 0
        self._broken = False
        self.turned_at = clock()
        """When the thread last got on, on the monotonic clock: probes of health read it."""
        self._thread = threading.Thread(target=self._run, name="ductor-leader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def broken(self) -> bool:
        """The thread has ended by a fault: whoever goes on renewing its leases keeps others from leading."""
        return self._broken

    def stop(self, timeout_s: float = 2.0) -> None:
        """Ends the thread and keeps what the policies hold. Leases are to be released after this."""
        self._stopping.set()
        self.notice()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        reached = True
        for led in [*self._pools.values()]:
            reached = led.dispatcher.let_go(keeps=reached)  # a store that is away is waited for once

    def add(self, dispatcher: Dispatcher, leads: Leads) -> None:
        self._pools = {**self._pools, dispatcher.pool: Led(dispatcher=dispatcher, leads=leads)}
        self._noticed.set()  # who waits for tokens is to wait for this pool's, too

    def let_go(self, pool: str) -> None:
        """Keeps what the pool's policy holds: its lease is about to be released."""
        if pool in self._pools:
            self._pools[pool].dispatcher.let_go()

    def drop(self, pool: str) -> None:
        """The pool is led under another name from now on."""
        self.let_go(pool)
        self._pools = {name: led for name, led in self._pools.items() if name != pool}

    def notice(self) -> None:
        """A lease was acquired, or it is time to stop: the thread looks at its pools, also while it waits."""
        self._noticed.set()
        store = self._waiting_on
        if store is not None:
            try:
                store.nudge(self._owner)
            except StoreError:
                logger.debug("The thread that waits finds out by itself that the store is away", exc_info=True)

    # -- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.turned_at = self._clock()
                self._noticed.clear()
                self._turn()
                self._listen()
        except Exception:
            logger.critical("The thread that leads ended; this scheduler dispatches nothing more", exc_info=True)
            self._broken = True
            raise
        finally:
            self._drop_client()

    def _turn(self) -> None:
        """A round of every pool that is led here and due."""
        for pool, led in self._pools.items():
            term = led.leads.term
            if term is None or self._stopping.is_set():
                continue
            if led.dispatcher.begins(term):
                led.due, led.told = min(led.due, self._clock()), True
            if led.due <= self._clock():
                self._round(pool, led, term)

    def _round(self, pool: str, led: Led, term: Term) -> None:
        told, led.told = led.told, False
        try:
            more = led.dispatcher.round(term, told=told)
            self._outage.worked(pool)
            led.leads.fault = ""
            led.due = self._clock() if more else led.dispatcher.next_at
            self._note_refusal(f"{pool} admission", led)
            if led.dispatcher.fenced(term):
                self.on_doubt(pool)
        except Exception as error:
            if not isinstance(error, DuctorError) and not self._outage.away(pool):
                # A fault of ours, or of somebody's policy, in one pool must not end the others.
                logger.exception("Dispatch failed", extra={"pool": pool})
            if not isinstance(error, StoreError):  # who cannot reach the store cannot tell it there either
                own = isinstance(error, DuctorError)
                led.leads.fault = str(error) if own else f"{type(error).__name__} while it chose."
            led.told = True
            led.due = self._clock() + self._outage.failed(pool, error)
        self.turned_at = self._clock()

    def _note_refusal(self, who: str, led: Led) -> None:
        """Said like an outage, and tried again in pauses; tokens of the pool are heard meanwhile: dispatch goes on."""
        if led.dispatcher.refused is None:
            self._outage.worked(who)
        else:
            led.due = min(led.due, self._clock() + self._outage.failed(who, led.dispatcher.refused))

    def _listen(self) -> None:
        """Waits until a pool has something for its leader, or wants a round by itself, or `notice`."""
        now = self._clock()
        led = {pool: one for pool, one in self._pools.items() if one.leads.term is not None}
        timeout_s = min([LOOK_S, *(one.due - now for one in led.values())])
        # A pool whose store does not answer waits for its next try, whatever tokens there are.
        reached = {pool: one.dispatcher.store for pool, one in self._pools.items() if not self._outage.away(pool)}
        if timeout_s <= 0 or not reached:
            self._noticed.wait(max(0.0, timeout_s))
            return
        here = {pool: store for pool, store in reached.items() if pool in led}
        self._rest(here, {pool: store for pool, store in reached.items() if pool not in led}, timeout_s)

    def _rest(self, led: Mapping[str, DispatchStore], others: Mapping[str, DispatchStore], timeout_s: float) -> None:
        began = self._clock()
        self._waiting_on = next(iter((led or others).values()))
        try:
            if self._noticed.is_set() or self._stopping.is_set():
                return
            if self._client is None:
                self._client = self._connect()
            pool = self._wait(self._client, self._owner, led, others, timeout_s)
            self._outage.worked("waiting")
        except Exception as error:
            self._drop_client()
            if not self._stopping.is_set():
                self._noticed.wait(self._outage.failed("waiting", error))
            return
        finally:
            self._waiting_on = None
        if pool is not None and pool in others:
            self.on_doubt(pool)
        # Its pool may have been dropped meanwhile.
        told = self._pools.get(pool) if pool is not None and pool in led else None
        if told is not None:
            self._told(told, waited=self._clock() - began > IDLE_S)

    def _told(self, led: Led, *, waited: bool) -> None:
        """A token came. One after another without anything behind them: a fault, which must not make a hot loop."""
        self._idle = 0 if waited or led.dispatcher.busy else self._idle + 1
        if self._idle > IDLE_ROUNDS:
            self._noticed.wait(min(IDLE_MAX_S, IDLE_S * 2.0 ** (self._idle - IDLE_ROUNDS)))
        led.due, led.told = self._clock(), True

    def _drop_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            try:
                client.close()
            except Exception:
                logger.debug("A connection did not close cleanly", exc_info=True)

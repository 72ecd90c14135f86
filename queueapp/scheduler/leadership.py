"""Leadership of one shard: who may act as the leader, how that is known, and what stops a leader that is none any more.

Identity. A *term* is one grant: (epoch, nonce). The nonce, 128 random bits chosen by the candidate, makes it unique,
    the epoch, which only grows, puts terms in order. A candidate keeps its nonce until it has lost a term or given it
    up, so that a grant whose reply was lost is granted again as the same term.
Authority. The store gives the lease when it is free or has expired, for `ttl_ms`, and writes the new term as the
    *fence* in the same script. From that moment a write under any other term is refused there (`Fenced`). Nothing
    else is authority: not this process's opinion, not its clock.
Trust window. Between renewals the leader believes in its term until `sent + ttl - margin` on its own monotonic clock,
    counted from *before* the last granted call was sent. The window ends before the lease does, so that a cut-off
    leader stops by itself; it is a courtesy (the clock may stand still while a host sleeps), the fence is the
    protection.
Renewal. Every `renew_ms`, about three times in a lease, from the scheduler's own loop: if that hangs, so does this.
Presence. A leader stays subscribed to a channel of its own (`store.presence`) and says so at each grant and renewal;
    a standby asks the store ten times a second whether anybody is subscribed there. Gone twice, 25 ms apart, means
    that the process is dead, and the store gives the lease away before it has ended. That this may be wrong is safe,
    because of the fence. Who cannot subscribe leads unwatched: only the end of the lease shows its death.
Asking. A standby asks ten times a second where the leader is watched, else every `retry_ms`, in any case when the
    lease ends; and at once when the leader says good-bye, or when its own writes were fenced.

    what happens                         the leader                                  the others
    ----------------------------------   -----------------------------------------   -------------------------------
    clean stop                           releases the lease                          a token wakes one, which takes it
    clean stop whose call is lost        is over all the same: its nonce is new      take it when the lease has ended
    it dies                              -                                           its socket closes: take it at once
    it freezes, then wakes               next renewal or write is FENCED, steps      took it when the lease had ended
                                         down at once
    its host is lost, or cut off         stops when its trust window ends            take it when the lease has ended
    its presence alone is cut            renews unwatched, subscribes, renews        are told `held`
    its presence is at another server    renews unwatched, doubts it (`doubt`):      are told `held`
                                         connects anew, renews
    the store cannot be reached          leads on until its trust window ends        the same
    it comes back in time                renews                                      are told `held`
    it comes back late, nobody took it   renews: same term                           are told `held`
    it comes back late, another took it  FENCED, steps down                          one leads
    a replica takes the store's place    renews there, if it has got the term        are told `held`, or one takes it
    the store lost its newest writes     FENCED, or renews a term that nobody        at most one nonce is accepted
    in that                              else was given
    the store's clock is set back        renews                                      take it, where its end is further
                                                                                     ahead than any lease is long

Not thread-safe: the scheduler's loop alone calls it. Every scheduler does all duties that need no leader; the lease
alone is exclusive.
"""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Callable
from time import monotonic
from typing import Protocol

from queueapp import metrics
from queueapp.conf import LEADER_MARGIN
from queueapp.errors import Fenced, LeaderAbsent, LeaseHeld
from queueapp.store.leader_records import Term

logger = logging.getLogger(__name__)

PROBE_S = 0.1
"""Between two looks of a standby at a leader whose death would show."""
SUBSCRIBE_S = 1.0
"""A candidate waits so long for its own subscription, and then asks without."""
SOON_S = 0.02


class LeadershipStore(Protocol):
    """The methods of `store.Store` that leadership calls."""

    def lead_acquire(self, owner: str, nonce: str, ttl_ms: int, *, channel: str = "", watch: bool = False) -> Term: ...

    def lead_renew(self, nonce: str, ttl_ms: int, fault: str = "", *, channel: str = "") -> Term: ...

    def lead_release(self, nonce: str) -> bool: ...


class Leadership:
    """One scheduler's candidacy for one shard. `tick` does what is due; `term` says whether it leads now."""

    def __init__(
        self,
        pool: str,
        store: LeadershipStore,
        owner: str,
        *,
        ttl_ms: int,
        renew_ms: int,
        retry_ms: int,
        channel: Callable[[], str] | None = None,
        doubt: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
        nonce: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        """`channel` answers where this process is subscribed now, "" = nowhere; None: presence plays no part.
        `doubt` is called when the store sees nobody there."""
        self._pool = pool
        self._store = store
        self._owner = owner
        self._ttl_ms = ttl_ms
        self._renew_s = renew_ms / 1000
        self._retry_s = retry_ms / 1000
        self._channel = channel
        self._doubt = doubt
        self._unsubscribed_until = clock() + SUBSCRIBE_S
        self._awaits_channel = False
        self._clock = clock
        self._new_nonce = nonce
        self._nonce = nonce()
        self._term: Term | None = None
        self._trusted_until = 0.0
        self._begun = metrics.terms_begun(pool)
        self._fenced = metrics.terms_fenced(pool)
        self.fault = ""
        """Why this scheduler cannot dispatch while it leads: kept with the lease, so that operators see it."""
        self.probe_s = PROBE_S
        self.next_at = 0.0
        """When `tick` wants to be called, on the monotonic clock."""

    @property
    def term(self) -> Term | None:
        """The term that this scheduler leads under, or None. Ask right before every act, not once."""
        return self._term if self._clock() < self._trusted_until else None

    def hurry(self) -> None:
        """Something happened: the next `tick` asks the store, whenever it comes."""
        self.next_at = 0.0

    def presence_changed(self) -> None:
        """This process's subscription came or went. A leader says so at once, and who waited for it asks now; another
        standby has nothing to say: it tells its channel when it gets the lease."""
        if self._term is not None or self._awaits_channel:
            self.next_at = 0.0

    def tick(self) -> None:
        """Acquires or renews when it is time. StoreError passes through: the caller waits, the trust window runs."""
        if self._clock() < self.next_at:
            return
        if self._term is None:
            self._acquire()
        else:
            self._renew()

    def release(self) -> None:
        """Gives the lease back, so that the next scheduler need not wait for its end."""
        if self._term is not None:
            # Another nonce whatever becomes of the call: a term that was given up has ended for good.
            nonce, self._nonce = self._nonce, self._new_nonce()
            self._term, self._trusted_until = None, 0.0
            self._store.lead_release(nonce)

    def _acquire(self) -> None:
        sent = self._clock()
        channel = self._channel() if self._channel else ""
        self._awaits_channel = self._channel is not None and not channel and sent < self._unsubscribed_until
        if self._awaits_channel:
            self.next_at = sent + SOON_S
            return
        watch = self._channel is not None
        try:
            term = self._store.lead_acquire(self._owner, self._nonce, self._ttl_ms, channel=channel, watch=watch)
        except LeaderAbsent as absent:
            self.next_at = self._clock() + absent.again_ms / 1000
            return
        except LeaseHeld as held:
            # A little jitter keeps standbys apart that were started together.
            pause_s = (self.probe_s if held.watched else self._retry_s) * random.uniform(0.9, 1.1)
            self.next_at = self._clock() + min(pause_s, held.left_ms / 1000 + SOON_S)
            return
        except Fenced:
            # The store knows this nonce as that of a term which has ended: no call with it is ever granted again.
            self._nonce = self._new_nonce()
            self.next_at = self._clock() + SOON_S
            return
        self._granted(term, sent, channel)
        self._begun.inc()
        logger.info("Leading", extra={"pool": self._pool, "epoch": term.epoch, "owner": self._owner})

    def _renew(self) -> None:
        sent = self._clock()
        try:
            channel = self._channel() if self._channel else ""
            term = self._store.lead_renew(self._nonce, self._ttl_ms, self.fault, channel=channel)
        except Fenced:
            lost = self._term
            self._term, self._trusted_until = None, 0.0
            self._nonce = self._new_nonce()
            # The new lease may end sooner than the next try: the store says when.
            self.next_at = self._clock() + min(self._retry_s, self._ttl_ms / 1000)
            self._fenced.inc()
            logger.warning(
                "No longer leading: another scheduler has the lease",
                extra={"pool": self._pool, "epoch": lost.epoch if lost else 0, "owner": self._owner},
            )
            return
        self._granted(term, sent, channel)

    def _granted(self, term: Term, sent: float, channel: str) -> None:
        if channel and not term.seen:
            self._doubt()
        self._term = term
        self._trusted_until = sent + term.ttl_ms / 1000 * (1 - LEADER_MARGIN)
        self.next_at = sent + self._renew_s

"""A lease of leadership in memory, on the clock of the test."""

from __future__ import annotations

from queueapp.errors import Fenced, LeaseHeld, StoreUnavailable
from queueapp.store.leader_records import Term
from tests.clock import Clock


class FakeLead:
    """The lease of one shard on the clock of the test; a call may take its time, or be lost."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.nonce = ""
        self.until = 0.0
        self.epoch = 0
        self.takes_s = 0.0
        self.away = False
        self.lose_replies = 0
        self.granted: list[str] = []
        self.told_fault = ""

    def lead_acquire(self, owner: str, nonce: str, ttl_ms: int) -> Term:
        self._reach()
        if nonce != self.nonce:
            if self.nonce and self.clock() < self.until:
                raise LeaseHeld
            self.epoch += 1
            self.nonce = nonce
            self.granted.append(nonce)
        return self._grant(ttl_ms)

    def lead_renew(self, nonce: str, ttl_ms: int, fault: str = "") -> Term:
        self._reach()
        self.told_fault = fault
        if nonce != self.nonce:
            raise Fenced
        return self._grant(ttl_ms)

    def lead_release(self, nonce: str) -> bool:
        self._reach()
        released = nonce == self.nonce
        if released:
            self.nonce = ""
        return released

    def _grant(self, ttl_ms: int) -> Term:
        self.until = self.clock() + ttl_ms / 1000
        self.clock.now += self.takes_s
        if self.lose_replies:
            self.lose_replies -= 1
            raise StoreUnavailable("the reply was lost")
        return Term(epoch=self.epoch, nonce=self.nonce, ttl_ms=ttl_ms)

    def _reach(self) -> None:
        if self.away:
            raise StoreUnavailable("away")

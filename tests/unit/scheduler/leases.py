"""A lease of leadership in memory, on the clock of the test."""

from __future__ import annotations

from queueapp.errors import Fenced, LeaderAbsent, LeaseHeld, StoreUnavailable
from queueapp.store.leader_records import Term
from tests.clock import Clock


class FakeLead:
    """The lease of one shard on the clock of the test; a call may take its time, or be lost.

    `channels` of the living: a leader that told one is watched, and absent once it stands there no more.
    """

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
        self.channels: set[str] = set()
        self.channel = ""
        self.absent_at: float | None = None
        self.asked: list[float] = []

    def lead_acquire(self, owner: str, nonce: str, ttl_ms: int, *, channel: str = "", watch: bool = False) -> Term:
        self._reach()
        self.asked.append(self.clock())
        if nonce != self.nonce:
            if self.nonce and self.clock() < self.until:
                self._refuse(watch)
            self.epoch += 1
            self.channel, self.absent_at = channel, None
            self.nonce = nonce
            self.granted.append(nonce)
        return self._grant(ttl_ms)

    def lead_renew(self, nonce: str, ttl_ms: int, fault: str = "", *, channel: str = "") -> Term:
        self._reach()
        self.told_fault, self.channel, self.absent_at = fault, channel, None
        if nonce != self.nonce:
            raise Fenced
        return self._grant(ttl_ms)

    def lead_release(self, nonce: str) -> bool:
        self._reach()
        released = nonce == self.nonce
        if released:
            self.nonce = ""
        return released

    def _refuse(self, watch: bool) -> None:
        watched = watch and self.channel != ""
        if not watched or self.channel in self.channels:
            held = LeaseHeld()
            held.detail = [round((self.until - self.clock()) * 1000), int(watched)]
            raise held
        if self.absent_at is None or self.clock() - self.absent_at < 0.025:
            self.absent_at = self.clock() if self.absent_at is None else self.absent_at
            absent = LeaderAbsent()
            absent.detail = [30]
            raise absent

    def _grant(self, ttl_ms: int) -> Term:
        self.until = self.clock() + ttl_ms / 1000
        self.clock.now += self.takes_s
        if self.lose_replies:
            self.lose_replies -= 1
            raise StoreUnavailable("the reply was lost")
        return Term(epoch=self.epoch, nonce=self.nonce, ttl_ms=ttl_ms, seen=self.channel in self.channels)

    def _reach(self) -> None:
        if self.away:
            raise StoreUnavailable("away")

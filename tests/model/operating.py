"""Rules of the machine of `test_store_machine.py`: what operators do to a shard, and who leads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from queueapp.errors import Fenced, LeaseHeld, OldVersion, PolicyBusy
from queueapp.policies.registry import DIRECT
from queueapp.states import State
from queueapp.store.configuration import PoolConf, ScopeLimits
from tests.model.machine import LANES, TENANTS, Machine
from tests.model.strategies import often, picks, twice


class OperatedMachine(Machine):
    """What people change by hand, and the lease of leadership."""

    # -- by hand ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.ledger.of(State.ACTIVE))
    @rule(chosen=picks, again=twice)
    def stop_what_runs(self, chosen: list[int], again: bool) -> None:
        """Also what a worker has that is gone, and what was told before."""
        ids = self.choose(chosen, [job.new.id for job in self.ledger.of(State.ACTIVE)])
        self.words(again, lambda: self.store.cancel(ids), lambda: self._model(self.ledger.cancel, ids))

    @precondition(lambda self: self.ledger.jobs)
    @rule(
        verb=st.sampled_from(["cancel", "bury", "redrive", "redrive", "discard"]),
        chosen=picks,
        again=twice,
        doubled=twice,
    )
    def by_hand(self, verb: str, chosen: list[int], again: bool, doubled: bool) -> None:
        """The same id may stand twice in a call."""
        ids = self.choose(chosen, list(self.ledger.jobs)) * (1 + doubled)
        ask: dict[str, Callable[[], list[str]]] = {
            "cancel": lambda: self.store.cancel(ids),
            "bury": lambda: self.store.move_to_dlq(ids, "by_hand"),
            "redrive": lambda: self.store.retry_from_dlq(ids),
            "discard": lambda: self.store.discard(ids),
        }
        self.words(again, ask[verb], lambda: self._model(getattr(self.ledger, verb), ids))

    @rule(
        tenant=st.sampled_from(TENANTS),
        lane=st.sampled_from(["", "", *LANES]),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        ceiling=st.sampled_from([None, None, None, 0, 1, 2, 3]),
        paused=st.sampled_from([False, False, False, True]),
        clear=twice,
        again=twice,
    )
    def configure_scope(
        self, tenant: str, lane: str, weight: float, ceiling: int | None, paused: bool, clear: bool, again: bool
    ) -> None:
        limits = ScopeLimits(tenant=tenant, lane=lane, weight=weight, max_in_flight=ceiling, paused=paused, clear=clear)
        self._configure(again, scopes=[limits])
        if clear:
            self.ledger.scopes.pop((tenant, lane), None)
        else:
            self.ledger.scopes[tenant, lane] = limits

    @rule(ceiling=st.sampled_from([None, None, None, 0, 3]), paused=st.sampled_from([False] * 4 + [True]), again=twice)
    def configure_pool(self, ceiling: int | None, paused: bool, again: bool) -> None:
        self.ledger.pool = replace(self.ledger.pool, max_in_flight=ceiling, paused=paused)
        self._configure(again, pool=self.ledger.pool)

    @rule(
        policy=st.sampled_from(sorted(DIRECT)),
        by=st.sampled_from(["deadline", "latest_start"]),
        step_ms=st.sampled_from([100, 60_000]),
        again=twice,
    )
    def change_policy(self, policy: str, by: Literal["deadline", "latest_start"], step_ms: int, again: bool) -> None:
        pool, armed = replace(self.ledger.pool, policy=policy, by=by, step_ms=step_ms), self.armed_known
        try:
            self._configure(again, pool=pool)
        except PolicyBusy:  # the change before is not through
            assert self.reads.configured().policy == self.ledger.pool.policy
            self.ledger.now()
            self.version, self.armed_known = self.version - 1, armed
        else:
            self.ledger.pool = pool

    @rule(most=st.sampled_from([1, 3, 250]), again=twice)
    def rerank(self, most: int, again: bool) -> None:
        """A share of a change of policy: no job changes its state."""
        for _ in range(1 + again):
            self.armed_known = True
            share = self.store.rerank(most)
            self.ledger.now()
            assert share.moved <= most
            assert share.more or not self.changes()

    @often()
    def everything_opens(self) -> None:
        """No limit stays for long: else most of a run would find nothing to lease."""
        if self.ledger.scopes or self.ledger.pool.paused or self.ledger.pool.max_in_flight is not None:
            self.configure_pool(None, False, False)
            self._configure(
                False, scopes=[ScopeLimits(tenant=tenant, lane=lane, clear=True) for tenant, lane in self.ledger.scopes]
            )
            self.ledger.scopes.clear()

    @rule()
    def configure_too_late(self) -> None:
        self.ledger.now()
        with pytest.raises(OldVersion):
            self.store.configure(self.version - 1, pool=PoolConf(paused=True))

    # -- leading --------------------------------------------------------------------------------------------------

    @rule(nonce=st.sampled_from(["n1", "n2"]), verb=st.sampled_from(["acquire", "renew", "release"]), again=twice)
    def lead(self, nonce: str, verb: str, again: bool) -> None:
        for _ in range(1 + again):
            now = self.ledger.now()
            mine = self.leader is not None and self.leader[0] == nonce
            live = self.leader is not None and now < self.leader[1] <= now + 600_000
            if verb == "release":
                assert self.store.lead_release(nonce) == mine
                self.leader = None if mine else self.leader
            elif verb == "acquire" and live and not mine:
                with pytest.raises(LeaseHeld):
                    self.store.lead_acquire("me", nonce, 2000)
            elif verb == "renew" and not mine:
                with pytest.raises(Fenced):
                    self.store.lead_renew(nonce, 2000)
            elif not mine and self.newest_term == nonce:  # given up: a late repeat must not bring it back
                with pytest.raises(Fenced):
                    self.store.lead_acquire("me", nonce, 2000)
            else:
                call = self.store.lead_renew if verb == "renew" else lambda n, t: self.store.lead_acquire("me", n, t)
                assert call(nonce, 2000).nonce == nonce
                self.leader = (nonce, now + 2000)
                self.newest_term = nonce

"""Lines: one pool's conversation with the store, and the protocol that lets a reply be lost without harm.

A line owns the sequence number of its calls, the outcomes not yet recorded, and the leases that this process holds in
its pool. A call that got no reply is made again, word for word, under the same number, until a reply comes; only then
is the next one composed. The store answers a repeat with the same leases, and outcomes are guarded by (id, attempts),
so nothing is leased twice and nothing recorded twice. Used by the I/O thread only; slot threads only
read `store`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from queueapp.errors import StoreError, StoreUnavailable
from queueapp.outage import Outage
from queueapp.store import shards
from queueapp.store.records import Cycle, Finish, LeasedJob, Returned, Word
from queueapp.worker.clearance import Clearance
from queueapp.worker.heartbeat import Heartbeat, lose, stop
from queueapp.worker.meter import PoolMeter
from queueapp.worker.slots import Held

logger = logging.getLogger(__name__)

CALL_JOBS = 100
"""Most leases, and most outcomes, of one call: 5 ms of the server's time."""
PAUSE_S = 0.005
PAUSE_MAX_S = 1.0
REGISTER_S = 30.0
REGISTER_TTL_MS = 90_000
MEAN_FACTOR = 0.125
QUIET_S = 6.0
"""How long it holds that nothing is runnable. An idle worker, which would be woken, asks a little more often."""


class WorkerStore(Protocol):
    """The methods of `store.Store` that a worker calls."""

    def cycle(
        self,
        worker: str,
        seq: int,
        *,
        want: int,
        begin: int,
        lease_ms: int,
        finished: Sequence[Finish] = (),
        extend: Sequence[tuple[str, int]] = (),
        begun: Sequence[tuple[str, int]] = (),
    ) -> Cycle: ...

    def partition_requeue(self, returned: Sequence[Returned]) -> list[Word]: ...

    def save(self, job_id: str, attempts: int, fields: Mapping[str, bytes]) -> Word: ...

    def register(self, worker: str, info: Mapping[str, str], ttl_ms: int, channel: str = "") -> bool: ...

    def forget(self, worker: str) -> object: ...

    def unlimited(self, scopes: Sequence[tuple[str, str]]) -> tuple[int, list[bool]]: ...


@dataclass(slots=True, frozen=True)
class Call:
    """What one `cycle` call says. It is kept until its reply came."""

    want: int
    begin: int
    finished: Sequence[Finish]
    extend: Sequence[tuple[str, int]]
    begun: Sequence[Held]


class Line:
    """One pool of a worker. `worker` is the id of this process, new at every start."""

    def __init__(
        self,
        pool: str,
        store: WorkerStore,
        worker: str,
        *,
        lease_ms: int,
        info: Mapping[str, str] | None = None,
        outage: Outage | None = None,
        meter: PoolMeter | None = None,
        channel: Callable[[], str] = lambda: "",
        doubt: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`channel` answers where this process is subscribed now (`store.presence`), "" = nowhere.
        `doubt` is called when the store sees nobody there."""
        self.pool = pool
        self.store = store
        self.worker = worker
        self.lease_ms = lease_ms
        self.held: dict[str, Held] = {}
        self.finished: deque[Finish] = deque()
        self.returned: deque[Returned] = deque()
        self.heartbeat = Heartbeat(lease_ms)
        self.meter = meter or PoolMeter(pool)
        self.mean_ms: float | None = None
        """Mean run time of the pool's jobs here lately; None until one has ended."""
        self.hungry = True
        """Asking for jobs makes sense: none has been asked for yet, the last reply left some, or a token came."""
        self.owes = False
        """A wake token was taken that may be this pool's: the next call, also one that asks for nothing, returns it."""
        self.empty = False
        """The last reply to asking was: nothing, neither now nor overdue."""
        self.due_at = float("inf")
        """The moment at which something becomes due by time alone."""
        self.away_until = 0.0
        """No call before this moment: the store is away."""
        self.ask_after = 0.0
        """No asking for jobs before this moment: a call got nothing although something was runnable."""
        self.asked_at = float("-inf")
        """When the store last answered a question for jobs."""
        self.registered = False
        """The store knows this worker in this pool."""
        self.clearance = Clearance()
        self._quiet_until = 0.0
        self.words: dict[str, int] = {}
        """What became of the outcomes, counted by word."""
        self._clock = clock
        self._seq = 0
        self._call: Call | None = None
        self._repeated = False
        self._refused = False
        self._pause_s = 0.0
        self._outage = outage or Outage(logger)
        self._info = dict(info or {})
        self._register_at = 0.0
        self._channel = channel
        self._doubt = doubt
        self._registered_channel = ""

    @property
    def wake_key(self) -> str:
        """Where tokens come that stand for work, one for whichever worker takes it."""
        return shards.keys(self.pool)["wake"]

    @property
    def stop_key(self) -> str:
        """Where tokens come for this worker alone: some of its jobs were told to stop."""
        return shards.keys(self.pool)[f"stop:{self.worker}"]

    @property
    def quiet(self) -> bool:
        """The store said a moment ago that nothing is runnable, and nothing has been heard since. For any thread."""
        return self._clock() < self._quiet_until

    @property
    def away(self) -> bool:
        return self._outage.away(self.pool)

    @property
    def promised(self) -> int:
        """Jobs asked for by a call that has no reply yet: room for them stays reserved.

        Not while the store refuses the call: that may last, and the other pools' jobs need the slots.
        """
        return self._call.want if self._call and not self._refused else 0

    @property
    def unsaid(self) -> int:
        """Outcomes and returns that the store has not confirmed."""
        return len(self.finished) + len(self.returned) + (len(self._call.finished) if self._call else 0)

    @property
    def settled(self) -> bool:
        """Nothing is held, nothing waits to be said, no reply is missing."""
        return not (self.held or self.finished or self.returned or self._call)

    def wants_call(self, room: int, now: float) -> bool:
        """Whether there is something to say, or to ask for while there is room."""
        if now < self.away_until:
            return False
        if self._call or self.finished or self.owes or now >= self.heartbeat.next_at or self._presence_changed:
            return True
        return now >= self.ask_after and ((room > 0 and self.hungry) or now >= self.due_at)

    def next_at(self, room: int) -> float:
        """The moment at which this line wants the I/O thread next, if nothing happens before."""
        if self._call or self.finished or self.returned or self.owes or self._presence_changed:
            return self.away_until
        ask_at = max(self.ask_after, 0.0 if room > 0 and self.hungry else self.due_at)
        return max(self.away_until, min(self.heartbeat.next_at, ask_at))

    def exchange(self, want: int, begin: int, begun: Sequence[Held] = ()) -> Sequence[Held]:
        """One round trip; returns the jobs leased. Their first `begin` are known to the store as begun.

        While an earlier call has no reply that call is repeated, and the arguments are not looked at. Never raises for
        a store that is away: the pause before the next try stands in `away_until`.
        """
        now = self._clock()
        if self._call is None:
            self._seq += 1
            self._call = Call(
                want=min(want, CALL_JOBS),
                begin=min(begin, want, CALL_JOBS),
                finished=self._next_finished(),
                extend=self.heartbeat.beat(self.held, now),
                begun=begun,
            )
        call = self._call
        try:
            if now >= self._register_at or self._presence_changed:
                channel = self._channel()
                seen = self.store.register(self.worker, self._info, REGISTER_TTL_MS, channel)
                if channel and not seen:
                    self._doubt()
                self._register_at, self._registered_channel = now + REGISTER_S, channel
                self.registered = True
            reply = self.store.cycle(
                self.worker,
                self._seq,
                want=call.want,
                begin=call.begin,
                lease_ms=self.lease_ms,
                finished=call.finished,
                extend=call.extend,
                begun=[(held.job.id, held.job.attempts) for held in call.begun],
            )
        except StoreError as error:
            self._repeated = True
            self._quiet_until = 0.0
            self._refused = not isinstance(error, StoreUnavailable)
            self.away_until = self._clock() + self._outage.failed(self.pool, error)
            return ()
        self._outage.worked(self.pool)
        return self._answered(call, reply)

    def give_back(self) -> None:
        """Tells the store which jobs go back unrun. A loss of the reply is harmless: the fence answers a repeat."""
        while self.returned:
            batch = [self.returned[index] for index in range(min(len(self.returned), CALL_JOBS))]
            try:
                words = self.store.partition_requeue(batch)
            except StoreError as error:
                self.away_until = self._clock() + self._outage.failed(self.pool, error)
                return
            self._outage.worked(self.pool)
            self.empty = False  # whatever the store said while they were held here
            for returned, word in zip(batch, words, strict=True):
                self.returned.popleft()
                if word == "dead":
                    logger.error(
                        "Dead letter: no worker knew the task in time", extra={"job_id": self.public_id(returned.id)}
                    )

    def give_up(self, held: Held) -> None:
        """A job goes back unrun; it is no longer held here."""
        if self.held.pop(held.job.id, None) is not None and not held.lost:
            self.returned.append(Returned(id=held.job.id, attempts=held.job.attempts))

    def public_id(self, job_id: str) -> str:
        """The id that users see, for log lines."""
        return shards.keys(self.pool).public_id(job_id)

    def ran(self, run_ms: float) -> None:
        """Learns from a job that ended."""
        mean = self.mean_ms
        self.mean_ms = run_ms if mean is None else mean + (run_ms - mean) * MEAN_FACTOR

    def woken(self) -> None:
        """There may be work."""
        self.hungry = True

    def took_token(self) -> None:
        """The parker took a token. Without a free slot here it must go back, or another worker sleeps beside work."""
        self.hungry = self.owes = True
        self._quiet_until = 0.0

    def granted(self, job: LeasedJob, now: float) -> None:
        """A lease came about outside of `exchange` (`match`)."""
        self.meter.leased([job])
        self.heartbeat.leased(now)

    def look_up(self) -> None:
        """Asks what holds back the tenants and lanes that somebody wants to know about (`clearance`)."""
        try:
            self.clearance.look_up(self.store.unlimited)
        except StoreError as error:
            logger.debug("Limits not looked up: %s", error)

    def flush(self) -> None:
        """Says all that there is to say, as long as the store answers; jobs that come with a late reply go back."""
        while self._call or self.finished:
            for held in self.exchange(0, 0):
                self.give_up(held)
            if self.away:
                return
        self.give_back()

    def forget(self) -> None:
        """Says good-bye. What the store does not hear it notices by itself when the registration expires."""
        try:
            self.store.forget(self.worker)
        except StoreError as error:
            logger.debug("Good-bye not heard: %s", error)

    @property
    def _presence_changed(self) -> bool:
        """The store watches for a sign of life that is gone, or does not know that there is one."""
        return self._channel() != self._registered_channel

    def _next_finished(self) -> list[Finish]:
        finished = self.finished
        return [finished.popleft() for _ in range(min(len(finished), CALL_JOBS))]

    def _answered(self, call: Call, reply: Cycle) -> Sequence[Held]:
        now = self._clock()
        self._call, self._refused, self.owes = None, False, False
        for held in call.begun:
            held.begun = True
        self.meter.answered(call.finished, reply.finished, reply.now_ms)
        for finish, word in zip(call.finished, reply.finished, strict=True):
            self.words[word] = self.words.get(word, 0) + 1
            if word in {"stale", "gone"}:
                logger.warning(
                    "Outcome refused (%s): this attempt no longer held the lease",
                    word,
                    extra={"job_id": self.public_id(finish.id), "attempt": finish.attempts, "word": word},
                )
        if reply.lost:
            lose(reply.lost, self.held)
        jobs = [Held(job, self, begun=index < call.begin) for index, job in enumerate(reply.jobs)]
        for held in jobs:
            self.held[held.job.id] = held
        if reply.cancelled:
            stop(reply.cancelled, self.held)  # after these: a repeated call leases again what was cancelled meanwhile
        if jobs:
            self.meter.leased(reply.jobs)
            self.heartbeat.leased(now)
        if self._repeated:
            self._repeated = False
            self.heartbeat.at_once(now)
        self._schedule(call, reply, now)
        return jobs

    def _schedule(self, call: Call, reply: Cycle, now: float) -> None:
        """When to ask again. A call that got nothing although something was runnable must not become a hot loop."""
        self.empty = call.want > 0 and not reply.jobs and not reply.runnable and reply.next_due_ms != 0
        self._quiet_until = 0.0 if reply.runnable else now + QUIET_S
        self.clearance.told(reply.version)
        self.hungry = reply.runnable or (call.want > 0 and len(reply.jobs) >= call.want)
        due_s = reply.next_due_ms / 1000 if reply.next_due_ms >= 0 else float("inf")
        fruitless = not reply.jobs and not reply.more and ((call.want > 0 and reply.runnable) or due_s < PAUSE_S)
        self._pause_s = min(PAUSE_MAX_S, max(PAUSE_S, self._pause_s * 2)) if fruitless else 0.0
        if call.want > 0:
            self.asked_at = now
        self.ask_after = now + self._pause_s
        self.due_at = now + due_s

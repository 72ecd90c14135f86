"""The worker's loop. What a slot does with one job is `attempt.run_one`: read that first.

A worker is one I/O thread, which runs `Worker.run`, and the threads that it hands work to: slots run bodies, the event
loop runs those that are coroutines, the parker waits for wake tokens. The I/O thread alone talks about leases with the
store. Everybody else only puts into its mailbox: slots the chunks that are through, the parker that it woke up, the
clock of time limits whose time is over, signal handlers that it is time to stop, code that enqueues that a body which
it began is leased (`match`).
Bodies are at the slots' mercy, never at the store's: while it is away they run on, and their outcomes wait in their
line.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic

from queueapp.store.records import Completed, Failed
from queueapp.sync.installation import Ownership
from queueapp.worker import around
from queueapp.worker.coroutines import LoopSlots
from queueapp.worker.faults import Faults
from queueapp.worker.limits import Limits
from queueapp.worker.line import Line
from queueapp.worker.match import Match, Matches
from queueapp.worker.meter import Meter
from queueapp.worker.parker import Parker
from queueapp.worker.parking import Parking
from queueapp.worker.placement import Placement
from queueapp.worker.room import Room
from queueapp.worker.slots import QUICK_MS, TICK_S, Chunk, Held, Outcome, Overdue, Slots, ThreadSlots
from queueapp.worker.stages import Stage

logger = logging.getLogger(__name__)

EXIT_DONE = 0
EXIT_CUT_SHORT = 4
"""Bodies still ran when the grace was over and were given back, or outcomes were not heard: those jobs run again."""
EXIT_OVERDUE = 5
"""Bodies that had passed their time limit still ran. Their jobs had been reported as failed; nothing is lost."""
UNHEARD_S = 0.5
"""Nobody waits for the wake tokens of a pool while another has work: so often it is asked without one."""
WOKEN, LOOK = object(), object()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How one worker process works."""

    slots: int = 4
    coroutines: int = 100
    """`async def` bodies that run at once, on one event loop; 0: in slots, as other bodies."""
    grace_ms: int = 25_000
    batch: bool = False
    """End when nothing is runnable and nothing runs; jobs due later do not count."""
    max_tasks: int | None = None
    """End after so many jobs."""
    replaceable: bool = False
    """Whoever started this process starts another when it ends: it need not live on beside a body that is stuck."""
    faults: Faults = field(default_factory=Faults)


class Worker:
    """One process's worker over the pools of `lines`. `run` is the I/O thread; `stop` may be called from anywhere."""

    def __init__(
        self,
        lines: Sequence[Line],
        options: WorkerOptions,
        parker: Callable[[Callable[[], None]], Parker],
        *,
        ownership: Ownership | None = None,
        clock: Callable[[], float] = monotonic,
        run: Callable[[Held, Faults, Limits], Outcome] = around.run,
        arun: Callable[[Held, Faults, Limits], Awaitable[Outcome]] = around.arun,
    ) -> None:
        self._lines = list(lines)
        self._options = options
        self._ownership = ownership
        self._clock = clock
        self._mail: SimpleQueue[object] = SimpleQueue()
        self._parker = parker(lambda: self._mail.put(WOKEN))
        self._limits = Limits(lambda held, overdue: self._mail.put((held, overdue)))
        threads = ThreadSlots(options.slots, lambda held: run(held, options.faults, self._limits), self._mail.put)
        self._slots: list[Slots] = [threads]
        if options.coroutines:
            loop = LoopSlots(options.coroutines, lambda held: arun(held, options.faults, self._limits), self._mail.put)
            self._slots.append(loop)
        self._placements = [Placement(slots) for slots in self._slots]
        on_loop = self._placements[1] if options.coroutines else None
        self._room = Room(self._placements[0], on_loop, self._lines)
        self._stage = Stage.WORKING
        self._grace_ends = float("inf")
        self._left = options.max_tasks
        self._parking = Parking(self._parker)
        self._matches = Matches(self._lines, self._placements[0], on_loop, self._mail.put, self.look)
        self._meter = Meter([line.meter for line in self._lines], self._slots, clock())
        self.turned_at = clock()
        """When the I/O thread last got on, on the monotonic clock: probes of health read it."""
        self.ran = 0
        """Jobs whose outcome a slot has delivered."""

    # -- from other threads and from signal handlers ---------------------------------------------------------------

    def look(self, _: object = None) -> None:
        """Something changed that the lines know by themselves."""
        self._mail.put(LOOK)

    def stop(self, *, now: bool = False) -> None:
        """Ask the worker to end: gracefully, or giving back at once what it holds. A second request means at once."""
        self._mail.put(Stage.LEAVING if now else Stage.DRAINING)

    def retire(self) -> None:
        """Ask the worker to lease nothing more, and to end when what runs has ended, however long that takes."""
        self._mail.put(Stage.RETIRING)

    @property
    def spent(self) -> bool:
        """It has leased as many jobs as `max_tasks` allows."""
        return self._left == 0

    @property
    def unready(self) -> str:
        """Why this worker takes no work just now; "" when it does. For probes."""
        if self._stage is not Stage.WORKING:
            return "it is stopping"
        if self._barred:
            return "the namespace belongs to another installation"
        away = [line.pool for line in self._lines if line.away or not line.registered]
        return f"the store has not heard of it in {', '.join(away)}" if away else ""

    # -- the I/O thread --------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Works until told to stop, or until `batch` or `max_tasks` say that it is over. Returns the exit code."""
        for slots in self._slots:
            slots.start()
        self._parker.start()
        self._matches.open()
        try:
            while not self._over():
                self._publish()
                self._listen(self._wait_s())
                self._turn()
                self._collect()
                self._tend()
                self._talk()
                self._park()
        finally:
            code = self._leave()
        return code

    def _listen(self, wait_s: float) -> None:
        """Waits for mail, at most so long; takes all that has come."""
        try:
            message = self._mail.get(timeout=wait_s) if wait_s > 0 else self._mail.get_nowait()
            while True:
                self._matches.count_in()
                if type(message) is Chunk:
                    for slots in self._slots:
                        slots.through(message)
                    self._take_done(message)
                elif message is WOKEN:
                    for line in self._lines:
                        line.took_token()
                elif isinstance(message, Stage):
                    self._stop(message)
                elif type(message) is tuple:
                    self._abandon(*message)
                elif type(message) is Match:
                    self._settle(message)
                message = self._mail.get_nowait()
        except Empty:
            return

    def _wait_s(self) -> float:
        now = self._clock()
        moments = [line.next_at(self._room_of(line, now)) for line in self._lines]
        if any(one.waiting for one in self._placements) or any(
            slots.has_unbegun() or slots.begun_unreported() for slots in self._slots
        ):
            moments.append(now + TICK_S)
        moments += [self._grace_ends, self._meter.next_at]
        if self._ownership is not None:
            moments.append(self._ownership.next_at)
        return min(moments) - now

    def _turn(self) -> None:
        """Once a second at least, so that probes see it and what runs is counted."""
        now = self.turned_at = self._clock()
        if now >= self._meter.next_at:
            self._meter.flush(now)

    def _collect(self) -> None:
        """Takes outcomes also of chunks that are not through: none waits for a slow job behind it."""
        for slots in self._slots:
            if slots.ahead:
                for chunk in slots.outstanding.values():
                    if chunk.done:
                        self._take_done(chunk)

    def _take_done(self, chunk: Chunk) -> None:
        done = chunk.done
        while done and not chunk.unrecorded:
            held, outcome, run_ms = done.popleft()
            line, job = held.line, held.job
            line.meter.ran(held, run_ms)
            if line.held.get(job.id) is not held:
                continue  # given back meanwhile: its fence would refuse the outcome; or given up, which is its outcome
            del line.held[job.id]
            if isinstance(outcome, (Completed, Failed)):
                self.ran += 1
                line.finished.append(outcome)
                line.meter.ended(job, run_ms)
                placement = self._room.place_of(held)
                if placement.slots.ahead:
                    line.ran(run_ms)
                    placement.learn(job.task, run_ms)
            elif outcome is not None:
                line.returned.append(outcome)
            else:
                line.empty = False  # it may have added children since the store was asked

    def _tend(self) -> None:
        """What is stuck behind a slow job moves to a free slot, or goes back so that others can run it."""
        for placement in self._placements:
            for held in placement.tend(self._clock()):
                self._give_up(held)
                self._room.missed(held)
                if placement.slots.ahead:
                    held.line.ran(QUICK_MS)  # the estimate was too low: look less far ahead

    def _talk(self) -> None:
        """One round over the pools: say what there is to say, and offer free slots first to who waited longest."""
        if self._ownership is not None:
            self._ownership.look()
        now = self._clock()
        for line in sorted(self._lines, key=lambda line: line.asked_at):
            if now < line.away_until:
                continue
            if self._options.batch and line.settled and not line.empty:
                line.woken()
            if not (self._parker.parked and self._parker.hears_work) and now - line.asked_at >= UNHEARD_S:
                line.woken()
            room = self._room_of(line, now)
            announced = [held for placement in self._placements for held in placement.announced(line)]
            slow = any(placement.slow_unreported(line, now) for placement in self._placements)
            self.turned_at = self._clock()
            if announced or slow or line.wants_call(room, now):
                unreported = [held for slots in self._slots for held in slots.begun_unreported() if held.line is line]
                begin = max(0, min(room, self._room.begins(line)))
                self._publish(room)
                self._place(line, line.exchange(room, begin, [*announced, *unreported]))
                self._room.begin(announced, self._clock())
            if line.returned and self._clock() >= line.away_until:
                line.give_back()
            if line.clearance.wanted and self._clock() >= line.away_until:
                line.look_up()

    @property
    def _barred(self) -> bool:
        """The namespace belongs to another installation: what runs here ends as usual, nothing more is leased."""
        return self._ownership is not None and self._ownership.barred

    def _room_of(self, line: Line, now: float) -> int:
        """How many of this pool's jobs may be asked for."""
        if self._stage is not Stage.WORKING or self._barred:
            return 0
        room = self._room.of(line, now)
        if self._left is not None:
            room = min(room, self._left - self._matches.pending - sum(line.promised for line in self._lines))
        return max(0, room)

    def _place(self, line: Line, jobs: Sequence[Held]) -> None:
        """Hands leased jobs over. What a late reply brings to a stopping worker goes back."""
        if self._left is not None:
            self._left -= len(jobs)
        self._matches.leased(jobs)
        if self._stage is Stage.WORKING:
            self._room.place(line, jobs, self._clock())
            self._publish()
        else:
            for held in jobs:
                self._give_up(held)

    def _give_up(self, held: Held) -> None:
        held.line.give_up(held)
        if self._left is not None:
            self._left += 1

    def _abandon(self, held: Held, overdue: Overdue) -> None:
        """A body has passed its time limit: its job is reported as failed, and its slot goes to others, as it cannot be
        stopped. Too many of those, and the process has to end; one is enough where another process follows."""
        line = held.line
        slots = self._room.place_of(held).slots
        if self._matches.overdue(held, overdue):
            return
        holds = line.held.get(held.job.id) is held
        behind = slots.abandon(held) if holds or held.lost else None
        if behind is None:
            return  # it ended just then
        held.lost = True
        held.interrupt()
        for one in behind:
            self._give_up(one)
        if holds:
            stand_in = Held(held.job, line, begun=True, overdue=overdue, cost=held.cost)
            line.held[held.job.id] = stand_in
            self._slots[0].put([stand_in], float("inf"))  # never taken back, however long it waits for a thread
        logger.error(
            "A body has not ended within its time limit of %g s; it is given up and runs on unheard",
            overdue.timeout_s,
            extra={"job_id": held.public_id, "task": held.job.task, "abandoned": slots.abandoned},
        )
        if self._stage is Stage.WORKING and (self._options.replaceable or slots.abandoned >= slots.count):
            self._stop(Stage.DRAINING)

    def _park(self) -> None:
        """See `Parking`."""
        now = self._clock()
        reached = [line for line in self._lines if not line.away]
        self._parking.tend(reached, {line.pool: self._room_of(line, now) for line in reached}, now)

    def _publish(self, asked: int = 0) -> None:
        """Says how many may begin at once (`Matches`) beside those that the store is asked for."""
        most = float("inf") if self._left is None else self._left - asked - sum(line.promised for line in self._lines)
        self._matches.publish(most if self._stage is Stage.WORKING and not self._barred else 0)

    def _settle(self, match: Match) -> None:
        """The store has answered about one of them."""
        if self._matches.settle(match, self._clock()) and self._left is not None:
            self._left -= 1
        self._take_done(match.chunk)
        if match.overdue is not None:
            self._abandon(match.held, match.overdue)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _stop(self, wanted: Stage) -> None:
        if self._stage < Stage.DRAINING and wanted > self._stage:
            self._stage = wanted
            self._matches.close()
            if wanted is not Stage.RETIRING:
                self._grace_ends = self._clock() + self._options.grace_ms / 1000
            for placement in self._placements:
                for held in placement.take_unbegun():
                    self._give_up(held)
            running = sum(len(line.held) for line in self._lines)
            logger.info("Stopping; waiting for running jobs", extra={"running": running})
        elif wanted is not Stage.RETIRING:
            self._stage = Stage.LEAVING

    def _over(self) -> bool:
        if self._stage is Stage.DRAINING and self._clock() >= self._grace_ends:
            self._stage = Stage.LEAVING
        if self._stage is Stage.LEAVING:
            return True
        if any(slots.outstanding for slots in self._slots) or not all(line.settled for line in self._lines):
            return False
        through = self._options.batch and (self._barred or all(line.empty for line in self._lines))
        if not (through or self._stage is not Stage.WORKING or self._left == 0):
            return False
        self._matches.close()
        return not self._matches.pending

    def _leave(self) -> int:
        """Gives back what is still held, says good-bye. The store gets one try; what it misses, leases settle."""
        self._stage = Stage.LEAVING
        self._parker.close()
        self._matches.close()
        self._listen(0)
        self._collect()
        abandoned = [held for line in self._lines for held in line.held.values()]
        for held in abandoned:
            held.line.give_up(held)
            held.lost = True
            held.interrupt()
        self._matches.give_up()
        for line in self._lines:
            line.flush()
            if not line.away:
                line.forget()
        self._meter.flush(self._clock())
        unsaid = sum(line.unsaid for line in self._lines)
        if abandoned or unsaid:
            logger.warning(
                "Stopped before everything had ended: %d running jobs given back, %d outcomes not reported",
                len(abandoned),
                unsaid,
                extra={"given_back": len(abandoned), "unsaid": unsaid},
            )
        self._limits.close()
        for slots in self._slots:
            slots.close(timeout_s=0.0 if abandoned else 1.0)
        if any(slots.abandoned for slots in self._slots):
            return EXIT_OVERDUE
        return EXIT_CUT_SHORT if abandoned or unsaid else EXIT_DONE

"""`bench record`: a trace of what goes through a pool of the project that the command is called from.

It looks at what runs and at what has ended since, and changes nothing. What has ended stays in the store for a minute
at least (`REPLAY_WINDOW_SECONDS`), so that nothing is missed between two looks; what runs for a shorter time than lies
between them may end unseen, which costs its priority and deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from queueapp.bench.harness import Progress, Report
from queueapp.bench.live.producing import require_pool
from queueapp.bench.live.recording import Recording
from queueapp.bench.live.stopping import stoppable
from queueapp.bench.workloads import Job, traces
from queueapp.conf import settings
from queueapp.errors import InvalidOption, StoreUnavailable
from queueapp.inspection.wording import counted
from queueapp.store import shards
from queueapp.store.reads import Reads
from queueapp.store.views import Cursor, JobRecord

PAGE = 500
READ_TOGETHER = 250
LAST = "~"
"""Behind every id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is recorded."""

    pool: str | None
    output: str | None
    seconds: float = 60.0
    wait: float = 30.0
    """Seconds after that in which the last arrivals may end."""
    every: int = 20
    """Milliseconds from look to look."""
    anonymous: bool = False
    force: bool = False

    def file(self) -> Path:
        """Where the trace goes. Raises InvalidOption before anything was recorded in vain."""
        if self.output is None:
            raise InvalidOption("--output is missing: name the file that the trace goes to.")
        path = Path(self.output)
        if path.is_dir() or not path.parent.is_dir():
            raise InvalidOption(f"--output is {self.output!r}: name a file in a directory that is there.")
        if path.exists() and not self.force:
            raise InvalidOption(f"--output is {self.output!r}, which is there: name another file, or say --force.")
        return path


class Watch:
    """Looks at a pool, again and again, for a recording."""

    def __init__(self, reads: Reads) -> None:
        began = reads.overview()
        self.recording = Recording(began.now_ms)
        self._reads = reads
        self._enqueued = began.stats.get("enqueued", 0)
        self._arrived: int | None = None
        after = _behind(began.now_ms - 1)
        self._after: dict[str, Cursor] = {"ended": after, "dead": after}

    def look(self) -> None:
        """Learns what waits to be run next or runs, and then, so that as much as can be was seen before, what has
        ended. Raises StoreUnavailable; the next look has what this one has not."""
        for index in ("ready", "active"):
            for ids in self._pages(index):
                self._read([job_id for job_id in ids if not self.recording.knows(job_id)], self.recording.saw)
        now_ms = self._reads.now_ms()
        for index in self._after:
            # Nothing comes to be there with an earlier moment than the server's clock shows.
            for ids in self._pages(index, before_ms=now_ms):
                self._read(ids, self.recording.ended)
            self._after[index] = _behind(now_ms - 1)

    def close(self) -> None:
        """From now on what arrives belongs to it no more."""
        there = self._reads.overview()
        self.recording.end_ms = there.now_ms
        self._arrived = there.stats.get("enqueued", 0) - self._enqueued

    @property
    def closed(self) -> bool:
        return self._arrived is not None

    @property
    def not_ended(self) -> int:
        """How many jobs have arrived and are not done with, once it is closed; 0 before."""
        return max(0, (self._arrived or 0) - self.recording.done)

    @property
    def state(self) -> str:
        """How far it is, in words."""
        return f"{self.recording.done:,} jobs are done" + (f", {self.not_ended:,} are not" if self.closed else "")

    def _pages(self, index: str, before_ms: int = 0) -> Iterator[Sequence[str]]:
        after = self._after.get(index)
        while True:
            page = self._reads.browse(index, before_ms=before_ms, after=after, count=PAGE)
            yield page.ids
            if (after := page.cursor) is None:
                return

    def _read(self, ids: Sequence[str], learn: Callable[[JobRecord], None]) -> None:
        for first in range(0, len(ids), READ_TOGETHER):
            for record in self._reads.letters(ids[first : first + READ_TOGETHER]):
                if record is not None:
                    learn(record)


def run(
    report: Report,
    progress: Progress,
    plan: Plan,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Records, and writes the trace. Ctrl-C ends the recording, and what there is by then is written.

    Raises what the store raises if it is away at the beginning; later it is waited for.
    """
    pool, path = require_pool(plan.pool), plan.file()
    watch = Watch(shards.reads(pool))
    progress.say(f"  {pool}, {plan.seconds:g} s; Ctrl-C ends it sooner and keeps what there is")
    with stoppable() as goes_on:
        gap_s = _watch(watch, progress, plan, clock, sleep, goes_on)
    jobs = watch.recording.jobs(anonymous=plan.anonymous)
    _tell(report, progress, watch, jobs)
    if gap_s * 1000 > settings.replay_window_ms:
        progress.say(f"  For {gap_s:.0f} s the store could not be asked: what ended meanwhile may be missing.")
    if not jobs:
        report.missed.append("No job arrived and ran to its end meanwhile: there is no trace.")
        return
    traces.write(path, jobs)
    progress.say(f"  written to {path}")


def _watch(
    watch: Watch,
    progress: Progress,
    plan: Plan,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
    goes_on: Callable[[], bool],
) -> float:
    """Looks until the time is over and the last arrivals have ended, the patience with these is over, or it is stopped.

    Answers the longest time in seconds between two looks that the store answered.
    """
    begun_s = looked_s = clock()
    ends_s, longest_s = begun_s + plan.seconds, 0.0
    while True:
        try:
            watch.look()
            longest_s, looked_s = max(longest_s, clock() - looked_s), clock()
            if not watch.closed and (looked_s >= ends_s or not goes_on()):
                watch.close()
            progress.show(f"  {looked_s - begun_s:.0f} of {plan.seconds:g} s, {watch.state}")
        except StoreUnavailable:
            progress.show("  the store cannot be reached; what ends meanwhile is found later")
        if not goes_on() or clock() >= ends_s + plan.wait or (watch.closed and not watch.not_ended):
            return max(longest_s, clock() - looked_s)
        sleep(plan.every / 1000)


def _tell(report: Report, progress: Progress, watch: Watch, jobs: Sequence[Job]) -> None:
    recording = watch.recording
    left_out, unseen = recording.left_out(), recording.unseen()
    busy_s = sum(job.service_us for job in jobs) / 1_000_000
    tenants = {job.tenant for job in jobs}
    report.figures |= {
        "jobs": len(jobs),
        "tenants": len(tenants),
        "busy_s": busy_s,
        "not_ended": watch.not_ended if watch.closed else None,
        "left_out": sum(left_out.values()),
        **{f"left_out_{reason}": number for reason, number in sorted(left_out.items())},
        "unseen": unseen,
    }
    progress.say(f"  {counted(len(jobs), 'job')} of {counted(len(tenants), 'tenant')}, {busy_s:,.1f} s of work")
    if watch.closed and watch.not_ended:
        progress.say(f"  {watch.not_ended:,} left out: they have arrived and not ended")
    for reason, number in sorted(left_out.items()):
        progress.say(f"  {number:,} left out: {reason}")
    if unseen:
        progress.say(f"  {unseen:,} ended before they were seen: their priority and deadline are not known")


def _behind(moment_ms: int) -> Cursor:
    """The place behind all that has come to be there in this millisecond."""
    return str(moment_ms), LAST

"""The demonstration from beginning to end: warm up, the same uploads under fifo and under tiered, one verdict.

Machines become faster and slower within seconds. So there are pairs of runs, fifo beside tiered, and what is judged is
the median of what the pairs show; in the first pair a worker is killed in either run.

`Demonstration.run` is the story. It drives real processes over HTTP and looks at nothing but what they recorded.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth import get_user_model
from django.core.management import call_command

from ductor_project.demo.show import figures, flowing, printing
from ductor_project.demo.show.figures import Figures, Import
from ductor_project.demo.show.judging import judge
from ductor_project.demo.show.load import SMALL, File, csv_text, plan
from ductor_project.demo.show.processes import HOST, RunningStack, kill_worker, stack
from ductor_project.demo.show.site import Site
from queueapp.bench.harness import Progress, Report, identity
from queueapp.bench.statistics import median
from queueapp.store import connection, shards

POOLS = {"fifo": "imports-fifo", "tiered": "imports-tiered"}
WARM_UP_POOL = "default"
WARM_UP_CHUNKS = (60, 160)
"""Chunks that make every process ready, then chunks that show how fast this machine is."""
PAIRS, PAIRS_MOST = 3, 5
"""Pairs of runs, at least and at most. How far apart they are decides whether there are more, not where they point."""
DISAGREEMENT = 0.15
PAIRS_UNTIL_S = 55.0
"""No pair is begun after that, unless there are fewer than three."""
LENGTH_S = 5.5
"""How long the workers are to be busy in each run; the number of jobs follows from it."""
JOBS_LEAST, JOBS_MOST = 250, 5_000
KILL_AT = 0.08
"""The worker dies when this part of the jobs has completed: in the flood, before the small tenants come."""
PATIENCE_S = 60.0
"""A run that has not ended by then has failed."""


class DemoFailed(Exception):
    """The demonstration could not be brought to an end. The message is one plain sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoCommand:
    """The options of one `manage.py demo`."""

    jobs: int | None = None
    """Imports of one run; None: as many as keep the workers busy for `LENGTH_S`."""
    keep: bool = False
    json: Path | None = None


class Demonstration:
    """One demonstration, on a server and in a directory that are its own."""

    def __init__(self, command: DemoCommand, directory: Path, progress: Progress) -> None:
        self._command = command
        self._directory = directory
        self._progress = progress
        self._begun = time.monotonic()

    def run(self) -> Report:
        """Everything. With `keep` it returns when Ctrl-C comes, after the figures."""
        say = self._progress.say
        report = Report(bench="demo", run=identity(connection.commands()))
        say("Ductor's demonstration: five tenants share two workers; one of them has nine tenths of the work.")
        say(f"  private directory {self._directory}, gone at the end")
        call_command("migrate", interactive=False, verbosity=0)
        with stack(self._directory, [WARM_UP_POOL, *POOLS.values()]) as running:
            running.await_ready(WARM_UP_POOL)
            say(f"  {report.run['server']}, web server, scheduler and two workers are up ({_since(self._begun):.1f} s)")
            per_s = self._warm_up(running)
            jobs = self._command.jobs or min(JOBS_MOST, max(JOBS_LEAST, round(per_s * LENGTH_S)))
            files = plan(jobs, jobs / per_s)
            texts = [csv_text(file) for file in files]
            chunks = sum(file.chunks for file in files)
            say(f"  warmed up: {per_s:.0f} imports a second; so {chunks} imports in {len(files)} files for each run")
            runs = self._runs(running, files, texts)
            judge(report, runs)
            mails = self._directory / "mails"
            summaries = len(list(mails.glob("*")))
            self._flow(running)
            flowed = flowing.read(mails)
            flowing.judge(report, flowed)
            say()
            for line in (*printing.comparison(runs), *printing.verdict(report, summaries), *flowing.sentences(flowed)):
                say(line)
            say(f"  {_since(self._begun):.1f} s in all")
            if self._command.json is not None:
                report.write(self._command.json)
                say(f"  figures written to {self._command.json}")
            if self._command.keep:
                self._keep(running)
        return report

    def _warm_up(self, running: RunningStack) -> float:
        """Makes processes and caches ready; returns how many imports a second the workers manage."""
        site = Site(HOST, running.port)
        done = 0
        for number, chunks in enumerate(WARM_UP_CHUNKS):
            file = File(at_s=0, tenant="warm-up", name=f"warm-up-{number}.csv", chunks=chunks)
            site.upload(file.tenant, file.name, csv_text(file), WARM_UP_POOL)
            done += chunks + 1
            self._await_completed(running, WARM_UP_POOL, done, "warming up")
        site.close()
        ends = sorted(job.ended_ms for job in figures.read(WARM_UP_POOL)[0])[-WARM_UP_CHUNKS[-1] :]
        # The fastest half: with too few jobs nobody would have to wait, with too many it only takes longer.
        half = len(ends) // 2
        fastest_ms = min(after - before for before, after in zip(ends, ends[half:], strict=False))
        return 1000 * half / max(1.0, fastest_ms)

    def _runs(self, running: RunningStack, files: Sequence[File], texts: Sequence[str]) -> dict[str, Figures]:
        """The workload under each policy. Uploads and their moments are the same in every run."""
        found: dict[str, list[list[Import]]] = {policy: [] for policy in POOLS}
        for policy in self._order(found):
            pool, kill = POOLS[policy], not found[policy]
            self._await_policy(running, pool, policy)
            before = {job.chunk for run in found[policy] for job in run}
            begun = time.monotonic()
            self._one_run(policy, running, files, texts, done=len(found[policy]), kill=kill)
            imports = [job for job in figures.read(pool)[0] if job.chunk not in before]
            self._progress.say(f"  {policy}: {len(imports)} imports done in {_since(begun):.1f} s")
            found[policy].append(imports)
        return {policy: figures.figures(found[policy], figures.read(pool)[1]) for policy, pool in POOLS.items()}

    def _await_policy(self, running: RunningStack, pool: str, policy: str) -> None:
        """Returns when a scheduler has set the policy of a pool: on a slow machine it is the last to come up."""
        end = time.monotonic() + PATIENCE_S
        while (configured := shards.reads(pool).configured().policy) != policy:
            running.require_running()
            if time.monotonic() > end:
                raise DemoFailed(f"The pool {pool} has the policy {configured} and not {policy}: no scheduler set it.")
            time.sleep(0.1)

    def _order(self, found: Mapping[str, Sequence[Sequence[Import]]]) -> Iterator[str]:
        """The policy of each run. Which one comes first changes from pair to pair."""
        for pair in range(PAIRS_MOST):
            ratios = list(map(figures.big_ratio, found["fifo"], found["tiered"]))
            if pair >= PAIRS and max(ratios) - min(ratios) <= DISAGREEMENT * median(ratios):
                return
            if pair >= 3 and _since(self._begun) > PAIRS_UNTIL_S:
                return
            yield from POOLS if pair % 2 == 0 else reversed(POOLS)

    def _one_run(
        self,
        policy: str,
        running: RunningStack,
        files: Sequence[File],
        texts: Sequence[str],
        *,
        done: int,
        kill: bool,
    ) -> None:
        """Uploads everything and waits for the end of the last job. `done` runs of this policy went before."""
        pool, chunks = POOLS[policy], sum(file.chunks for file in files)
        total = chunks + len(files)  # each upload ends with one summary
        uploads = _Uploads(running.port, pool, files, texts)
        uploads.start()
        try:
            if kill:
                self._await_completed(running, pool, round(chunks * KILL_AT), policy, uploads)
                pid, held = kill_worker(pool, list(POOLS).index(policy))
                self._progress.say(f"  {policy}: killed worker {pid}, which held {held} jobs; another one starts")
            self._await_completed(running, pool, total * (done + 1), policy, uploads)
        finally:
            uploads.stop()

    def _flow(self, running: RunningStack) -> None:
        """Files go through the flow, once nothing else is under way."""
        site, begun = Site(HOST, running.port), time.monotonic()
        flowing.upload(site, WARM_UP_POOL)
        site.close()
        while (ended := flowing.ended()) < len(flowing.TENANTS):
            running.require_running()
            if _since(begun) > PATIENCE_S:
                raise DemoFailed(
                    f"{ended} of {len(flowing.TENANTS)} runs of the flow ended within {PATIENCE_S:g} s. The stack "
                    f"said:\n{running.last_words()}"
                )
            self._progress.show(f"  flow: {ended} of {len(flowing.TENANTS)} runs have ended")
            time.sleep(0.05)
        self._progress.say(f"  flow: {ended} runs done in {_since(begun):.1f} s")

    def _await_completed(
        self,
        running: RunningStack,
        pool: str,
        wanted: int,
        what: str,
        uploads: _Uploads | None = None,
    ) -> None:
        """Returns when `wanted` jobs of the pool have completed, or are dead."""
        end = time.monotonic() + PATIENCE_S
        while True:
            seen = shards.reads(pool).overview()
            completed = seen.stats.get("completed", 0)
            if completed + seen.dead >= wanted:
                return
            running.require_running()
            if uploads is not None and uploads.error is not None:
                raise DemoFailed(f"An upload failed: {uploads.error}")
            if time.monotonic() > end:
                raise DemoFailed(
                    f"{completed} of {wanted} jobs of the pool {pool} completed within {PATIENCE_S:g} s; "
                    f"{seen.waiting} wait, {seen.active} run. The stack said:\n{running.last_words()}"
                )
            small = sum(count for tenant, count in seen.tenants.items() if tenant in SMALL)
            self._progress.show(f"  {what}: {completed} done, {seen.waiting} waiting ({small} of small tenants)")
            time.sleep(0.1)

    def _keep(self, running: RunningStack) -> None:
        """Leaves everything up until Ctrl-C, with an administrator."""
        password = secrets.token_urlsafe(12)
        get_user_model()._default_manager.create_superuser("admin", "admin@example.com", password)
        self._progress.say(f"  site:  {running.url}")
        self._progress.say(f"  admin: {running.url}admin/  (user admin, password {password})")
        self._progress.say(f"  mails: {self._directory / 'mails'}")
        self._progress.say("  The stack stays up until Ctrl-C.")
        try:
            while True:
                running.require_running()
                time.sleep(0.5)
        except KeyboardInterrupt:
            self._progress.say("  stopping")


class _Uploads(threading.Thread):
    """Uploads files at their moments, in order, over one connection."""

    def __init__(self, port: int, pool: str, files: Sequence[File], texts: Sequence[str]) -> None:
        super().__init__(name="uploads", daemon=True)
        self._site = Site(HOST, port)
        self._pool = pool
        self._files = files
        self._texts = texts
        self._stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        begun = time.monotonic()
        try:
            for file, text in zip(self._files, self._texts, strict=True):
                if self._stopped.wait(max(0.0, file.at_s - _since(begun))):
                    return
                self._site.upload(file.tenant, file.name, text, self._pool)
        except Exception as error:
            self.error = error
        finally:
            self._site.close()

    def stop(self) -> None:
        self._stopped.set()
        self.join(5.0)


def _since(begun: float) -> float:
    return time.monotonic() - begun

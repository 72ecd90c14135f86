"""The recount of a live shard: what `fsck` (lua/fsck.lua) is called with, in which order, and what its answers prove.

`queueapp.inspection.fsck` calls it. One call sees one moment and a few names, so that whatever a row contradicts in it
is wrong then. Two things need more than one look. A limit that is just being changed, or a wake token that a worker has
just taken along, is put right by somebody else within a moment: what was found is looked at again before it counts.
And sums over the whole shard (how many wait, how many use a key set) have no moment at which everything could be
counted: between two passes over all jobs stands the reading of the sums, and a job that both passes saw in the same
state, with nothing about it changed, was in that state at the reading, too. All others may have been. So the true sum
lies between two numbers, and what is stored outside of them is wrong by at least the distance: that much is added, as
an increment, which stays right whatever happens meanwhile. On a shard at rest the two numbers are equal.

Memory: about 300 bytes for each job of the shard, while it runs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from queueapp.store.connection import translate_errors
from queueapp.store.records import Difference, Share
from queueapp.store.store import Store

IDS, KEYS, MEMBERS, PAGE = 50, 5, 40, 500
"""Jobs and keys of a call, members of a key looked at in one, keys that one SCAN may look at: about 2 ms each."""
PASSES = 4
"""What was mended may show what stood behind it; a repair that has not come to an end by then says so."""
WAKE_LOOKS, WAKE_EVERY_S, AGAIN_S = 5, 0.2, 0.2
ENDED_KEPT_MS = 50_000
"""An ended job is kept at least a minute. A pass that took longer cannot say how many it did not see."""
OF_JOBS = frozenset({"job", "run", "result", "errors", "data", "checkpoint", "children"})

Subject = tuple[str, str]
"""A name and the cursor from which it is looked at."""
Stage = Literal["looking", "counting", "comparing"]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a pass saw of a job."""

    tenant: str
    waits: bool
    key_set: str
    mark: str
    """Changes with every transition that leads out of a state and back."""


KeySets = dict[str, tuple[str, ...]]
"""Key set → the digests of its keys."""


@dataclass(slots=True)
class Bounds:
    """Between which numbers the true sum lies."""

    sure: Counter[str] = field(default_factory=Counter)
    perhaps: Counter[str] = field(default_factory=Counter)


class Recount:
    """One `fsck` of one shard. `run` yields after each call of the store; `findings` grows meanwhile."""

    def __init__(self, store: Store, *, repair: bool, pause: Callable[[float], None] = time.sleep) -> None:
        self._store = store
        self._repair = repair
        self._pause = pause
        self.findings: list[Difference] = []
        self.looked_at = 0
        """Jobs and other keys, of the last pass."""
        self.passes = 0
        self.settled = False
        """The last pass found nothing that could be mended."""
        self._entry = ""

    def run(self) -> Iterator[Stage]:
        """Each step is one short call."""
        reported: dict[tuple[str, str, str], Difference] = {}
        while self.passes < (PASSES if self._repair else 1):
            self.passes += 1
            found: list[Difference] = []
            yield from self._pass(found)
            for one in found:
                reported.setdefault((one.kind, one.name, one.what), one)
            self.findings = list(reported.values())
            if not any(one.word == "mended" for one in found):
                self.settled = True
                return

    def _pass(self, found: list[Difference]) -> Iterator[Stage]:
        suspects: dict[tuple[str, Subject], None] = {}
        ingress: dict[str, str] = {}
        first: dict[str, Seen] = {}
        began_ms, steps = self._now_ms(), self._clock_steps()
        self.looked_at = 0
        yield from self._look("looking", keys=True, suspects=suspects, seen=first, ingress=ingress)
        sums: dict[str, int] = {}
        sets, texts = KeySets(), set[str]()
        yield from self._read_sums(sums, sets, texts)
        second: dict[str, Seen] = {}
        yield from self._look("counting", keys=False, suspects=suspects, seen=second)
        yield from self._ended_since(began_ms, second)
        bounded = 0 <= self._now_ms() - began_ms < ENDED_KEPT_MS and self._clock_steps() == steps
        # Not before all was looked at: it is long ago then that they were found.
        if suspects:
            self._pause(AGAIN_S)
        yield from self._look_again(suspects, found)
        yield from self._ingress(ingress, found)
        yield from self._limits(found)
        yield from self._wake(found)
        if any(one.word == "mended" for one in found):
            return  # the sums are for the next pass, which sees what is there now
        keyed = not self._aside()
        for name, by in sorted(drifts(first, second, sums, bounded=bounded, keyed=keyed).items()):
            yield from self._call("adjust", [(name, str(by))], found, "comparing", mend=self._repair)
        if not keyed or any(one.word == "mended" for one in found):
            return
        later: dict[str, int] = {}
        sets_later, texts_later = KeySets(), set[str]()
        yield from self._read_sums(later, sets_later, texts_later)
        # Users of a set may come and go; what both looks agree on has not moved.
        users = {seen.key_set for seen in (*first.values(), *second.values())}
        for subject in _key_faults(sums, sets, texts & texts_later, later, sets_later, users, bounded=bounded):
            yield from self._call("adjust", [subject], found, "comparing", mend=self._repair)

    # -- the parts of a pass ---------------------------------------------------------------------------------------

    def _look(
        self,
        stage: Stage,
        *,
        keys: bool,
        suspects: dict[tuple[str, Subject], None],
        seen: dict[str, Seen],
        ingress: dict[str, str] | None = None,
    ) -> Iterator[Stage]:
        """Everything, dry. `seen`: what it saw of each job; `ingress`: id and place of those that wait for a leader."""
        asked: set[str] = set()
        if keys:
            yield from self._share("whole", [("", "0")], suspects, seen, ingress, stage)
        for names in self._names():
            ids: dict[str, None] = {}
            others: list[Subject] = []
            for name in names:
                kind, _, rest = name.partition(":")
                if kind in OF_JOBS and rest:
                    if rest not in asked:
                        ids[rest] = None
                elif keys:
                    others.append((name, "0"))
            asked.update(ids)
            self.looked_at += (len(ids) + len(others)) * (stage == "looking")
            yield from self._share("jobs", [(job_id, "0") for job_id in ids], suspects, seen, ingress, stage)
            yield from self._share("keys", others, suspects, seen, ingress, stage)

    def _share(
        self,
        part: str,
        subjects: Sequence[Subject],
        suspects: dict[tuple[str, Subject], None],
        seen: dict[str, Seen],
        ingress: dict[str, str] | None,
        stage: Stage,
    ) -> Iterator[Stage]:
        left, size = list(subjects), IDS if part == "jobs" else KEYS
        while left:
            share = self._store.fsck(part, left[:size], mend=False, limit=MEMBERS)
            left = [*share.rest, *left[size:]]
            for one in share.findings:
                suspects[part, (one.subject, one.cursor)] = None
            for fact in share.facts:
                if fact[0] == "job":
                    _, job_id, tenant, waits, key_set, mark = fact
                    seen[job_id] = Seen(tenant, waits == "1", key_set, mark)
                elif fact[0] == "ingress" and ingress is not None:
                    ingress[fact[1]] = fact[2]
            yield stage

    def _look_again(self, suspects: Iterable[tuple[str, Subject]], found: list[Difference]) -> Iterator[Stage]:
        for part, subject in suspects:
            yield from self._call(part, [subject], found, "comparing", mend=self._repair)

    def _ended_since(self, began_ms: int, seen: dict[str, Seen]) -> Iterator[Stage]:
        """A job may come after the first pass was where its key stands, and end before the second one is."""
        for index in ("ended", "stubs"):
            after = 0
            while True:
                with translate_errors():
                    page: Any = self._store.client.zrangebyscore(
                        self._store.keys[index], began_ms - 5_000, "+inf", start=after, num=PAGE
                    )
                ids = [job_id.decode() for job_id in page]
                unseen = [(job_id, "0") for job_id in ids if job_id not in seen]
                yield from self._share("jobs", unseen, {}, seen, None, "counting")
                if len(page) < PAGE:
                    break
                after += PAGE

    def _read_sums(self, sums: dict[str, int], sets: KeySets, texts: set[str]) -> Iterator[Stage]:
        for name in ("counts", "tenants", "keyusers", "keysets", "keynames"):
            cursor = "0"
            while True:
                share = self._store.fsck("counters", [(name, cursor)], mend=False, limit=PAGE)
                sums |= {fact[1]: int(float(fact[2])) for fact in share.facts if fact[0] == "sum"}
                sets |= {fact[1]: fact[2:] for fact in share.facts if fact[0] == "set"}
                texts |= {fact[1] for fact in share.facts if fact[0] == "text"}
                yield "counting"
                if not share.rest:
                    break
                cursor = share.rest[0][1]

    def _ingress(self, waiting: dict[str, str], found: list[Difference]) -> Iterator[Stage]:
        """Jobs that wait for a leader and that no entry of the stream names."""
        if not waiting:
            return
        missing, last = dict(waiting), ""
        while True:
            with translate_errors():
                page: Any = self._store.client.xrange(
                    self._store.keys["ingress"], f"({last}" if last else "-", "+", count=PAGE
                )
            for entry, fields in page:
                last = entry.decode()
                missing.pop(fields.get(b"j", b"").decode(errors="replace").partition("|")[0], None)
            yield "comparing"
            if len(page) < PAGE:
                break
        for job_id, place in missing.items():
            subject = (job_id, f"{last}@{place}")
            yield from self._call("ingress", [subject], found, "comparing", mend=self._repair)

    def _limits(self, found: list[Difference]) -> Iterator[Stage]:
        """How many minima and rates are configured: counted twice under one version of the configuration."""
        looks = []
        for _ in range(2):
            counted, versions, stored, cursor = [0, 0], set(), ["0", "0"], "0"
            while True:
                share = self._store.fsck("counters", [("limits", cursor)], mend=False, limit=PAGE)
                for fact in share.facts:
                    if fact[0] == "limits":
                        versions.add(fact[1])
                        counted = [counted[0] + int(fact[2]), counted[1] + int(fact[3])]
                    elif fact[0] == "conf":
                        stored = list(fact[1:])
                yield "comparing"
                if not share.rest:
                    break
                cursor = share.rest[0][1]
            looks.append((counted, versions, stored))
        if looks[0] != looks[1] or len(looks[0][1]) != 1:
            return
        counted, (version,), stored = looks[0]
        for name, number, there in zip(("floors", "front"), counted, stored, strict=True):
            if number != int(there):
                subject = (name, f"{number - int(there)}@{version}")
                yield from self._call("adjust", [subject], found, "comparing", mend=self._repair)

    def _wake(self, found: list[Difference]) -> Iterator[Stage]:
        """Nobody is woken although there is something to do: not once in a second."""
        for look in range(WAKE_LOOKS):
            share = self._store.fsck("whole", [("", "0")], mend=False, limit=MEMBERS)
            yield "comparing"
            if not any(fact[0] == "unarmed" for fact in share.facts):
                return
            if look + 1 < WAKE_LOOKS:
                self._pause(WAKE_EVERY_S)
        yield from self._call("adjust", [("wake", "0")], found, "comparing", mend=self._repair)

    # -- how calls are made ----------------------------------------------------------------------------------------

    def _call(
        self, part: str, subjects: Sequence[Subject], found: list[Difference], stage: Stage, *, mend: bool
    ) -> Iterator[Stage]:
        """A second look, which mends what it finds."""
        left = list(subjects)
        while left:
            share: Share = self._store.fsck(part, left, mend=mend, limit=MEMBERS)
            found += share.findings
            # The page of this cursor was looked at; further pages have suspects of their own.
            left = [subject for subject in share.rest if subject in left]
            yield stage

    def _names(self) -> Iterator[list[str]]:
        prefix, cursor = self._store.keys.prefix, 0
        pattern = "".join(f"\\{sign}" if sign in "[]*?\\" else sign for sign in prefix) + "*"
        while True:
            with translate_errors():
                found: Any = self._store.client.scan(cursor, match=pattern, count=PAGE)
            cursor, page = found
            yield [key.decode(errors="replace")[len(prefix) :] for key in page]
            if cursor == 0:
                return

    def _aside(self) -> bool:
        with translate_errors():
            return bool(self._store.client.exists(self._store.keys["quarantine"]))

    def _clock_steps(self) -> int:
        """How often the clock was set back: moments of before and after do not compare."""
        with translate_errors():
            found: Any = self._store.client.hget(self._store.keys["stats"], "clock_steps")
        return int(found or 0)

    def _now_ms(self) -> int:
        return self._store.fsck("whole", [], mend=False, limit=MEMBERS).now_ms


def drifts(
    first: dict[str, Seen], second: dict[str, Seen], sums: dict[str, int], *, bounded: bool, keyed: bool
) -> dict[str, int]:
    """Sum → what is to be added to it, at least. `bounded`: no job can have gone unseen by both passes.

    `w`, `t:<tenant>` and, with `keyed`, `s:<key set>`; `sums` were read after the first pass and before the second.
    """
    bounds = Bounds()
    for job_id in first.keys() | second.keys():
        before, after = first.get(job_id), second.get(job_id)
        for names, then, later in (
            (_waiting(before) | _waiting(after), _waiting(before), _waiting(after)),
            (_using(before) | _using(after), _using(before), _using(after)),
        ):
            same = before is not None and after is not None and before.mark == after.mark
            for name in names:
                bounds.perhaps[name] += 1
                bounds.sure[name] += same and name in then and name in later
        over = before is not None and before.mark.startswith("e|")
        if not over and (before is None or after is None or before.mark != after.mark):
            # In neither pass it waited, or had keys, and yet it may have between them: it was leased and came back.
            seen = after or before
            assert seen is not None
            for name in {"w", f"t:{seen.tenant}"} - _waiting(before) - _waiting(after):
                bounds.perhaps[name] += 1
    found: dict[str, int] = {}
    for name in bounds.perhaps.keys() | sums.keys():
        if name != "w" and not name.startswith(("t:", "s:") if keyed else "t:"):
            continue
        stored = sums.get(name, 0)
        if stored < bounds.sure[name]:
            found[name] = bounds.sure[name] - stored
        elif bounded and stored > bounds.perhaps[name]:
            found[name] = bounds.perhaps[name] - stored
    return found


def _key_faults(
    sums: dict[str, int],
    sets: KeySets,
    texts: set[str],
    later: dict[str, int],
    sets_later: KeySets,
    users: set[str],
    *,
    bounded: bool,
) -> Iterator[Subject]:
    """What is counted of keys, and kept for them, otherwise than by the key sets that there are."""
    then, now = (Counter(digest for keys in known.values() for digest in keys) for known in (sets, sets_later))
    if bounded:
        for key_set in sorted(sets.keys() & sets_later.keys() - users):
            if f"s:{key_set}" not in sums and f"s:{key_set}" not in later:
                yield f"set:{key_set}", "0"
    counted = {name[2:] for name in sums.keys() & later.keys() if name.startswith("k:")}
    for digest in sorted(counted | (then.keys() & now.keys())):
        stored = sums.get(f"k:{digest}", 0)
        if stored == later.get(f"k:{digest}", 0) and then[digest] == now[digest] != stored:
            yield f"k:{digest}", f"{now[digest] - stored}@{stored}"
    for digest in sorted(texts - then.keys() - now.keys() - counted):
        yield f"text:{digest}", "0"


def _waiting(seen: Seen | None) -> set[str]:
    return {"w", f"t:{seen.tenant}"} if seen is not None and seen.waits else set()


def _using(seen: Seen | None) -> set[str]:
    return {f"s:{seen.key_set}"} if seen is not None and seen.key_set else set()

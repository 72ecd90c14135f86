"""The reasons of a job that waits: for its time, for a leader, for a place under a ceiling, or for its turn. Pure.

One function for each state that waits, called by `reasons.reasons_of`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from queueapp.inspection.reason import Kind, Reader, Reason, moment_of
from queueapp.inspection.wording import ago_words, ahead_words, counted, listed, moment_words, ordinal
from queueapp.store.views import JobRecord
from queueapp.store.wait_facts import Holder, RateFacts, TokenFacts, WaitFacts

HOLDERS_NAMED = 3
"""So many jobs that hold its place stand in a sentence; the reason itself has a few more."""


def pending(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    blocking = [
        *_paused(facts, record, reader),
        *_without_leader(facts, reader),
        *_without_worker(facts, reader),
        *_full(facts, record, reader),
        *_throttled(facts, record, reader),
        *_suspects(facts, reader),
    ]
    yield from blocking
    yield from _in_line(facts, reader, held=bool(blocking))
    if facts.unknown_since_ms:
        yield _unknown_task(facts, record, reader, blocks=False)
    yield from _expiry(facts)


def ingress(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    yield from _paused(facts, record, reader)
    yield from _without_leader(facts, reader)
    yield from _without_worker(facts, reader)
    text = "it has come in, and the leader ranks it next"
    if not facts.scheduled:
        text = "it came in for a leader, and the next calls of workers put it into line"
    elif reader.whole:
        text += f": {counted(facts.ingress, 'job')} of the pool {'waits' if facts.ingress == 1 else 'wait'} for that"
    yield Reason(kind=Kind.INGRESS, text=text, blocks=True)
    yield from _expiry(facts)


def ready(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    yield from _paused(facts, record, reader)
    yield from _without_worker(facts, reader)
    text = "the leader has chosen it, and the next worker with room takes it"
    if facts.ready_place and reader.whole:
        text += f", after {counted(facts.ready_place, 'job')} chosen before it"
    yield Reason(kind=Kind.READY, text=text, blocks=bool(facts.ready_place))
    yield from _expiry(facts)


def scheduled(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    due, error = record.due_ms, record.errors[-1] if record.errors else None
    when = f"due {ahead_words(due, facts.now_ms)}"
    if due <= facts.now_ms:
        when += " and is put into line by the next call of a scheduler or a worker"
    if facts.unknown_since_ms:
        yield _unknown_task(facts, record, reader, blocks=True)
    elif error is not None and error.kind == "error" and record.error_count:
        name = str(error.detail.get("class") or "an error")
        text = f"its {ordinal(max(1, record.error_count))} attempt failed with {name}; the next one is {when}"
        yield Reason(kind=Kind.BACKOFF, text=text, blocks=True, until=moment_of(due), since=moment_of(error.at_ms))
    else:
        yield Reason(kind=Kind.DUE, text=f"it is {when}", blocks=True, until=moment_of(due))
    yield from _paused(facts, record, reader)
    yield from _without_worker(facts, reader)
    yield from _expiry(facts)


def parked(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    rates = [_rate_words("rate", each, facts, record, reader) for each in facts.rates]
    above = f"above {' and '.join(rates)}" if rates else "above a rate that is not there any more"
    when = f"due {ahead_words(record.due_ms, facts.now_ms)}"
    if record.due_ms <= facts.now_ms:
        when += " and goes into line by the next draws of a scheduler or a worker"
    text = f"it came {above} and was parked; it is {when}"
    yield Reason(kind=Kind.PARKED, text=text, blocks=True, until=moment_of(record.due_ms))
    yield from _paused(facts, record, reader)
    yield from _without_worker(facts, reader)
    yield from _expiry(facts)


def _throttled(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    for each in facts.throttled:
        rate = _rate_words("dispatch rate", each, facts, record, reader)
        text = f"throttled until {moment_words(each.until_ms)}: {rate} lets no job start before"
        yield Reason(kind=Kind.THROTTLED, text=text, blocks=True, until=moment_of(each.until_ms))


def _rate_words(word: str, found: RateFacts | TokenFacts, facts: WaitFacts, record: JobRecord, reader: Reader) -> str:
    rate = found.rate
    what = f"the {word} of its {found.scope} {record.tenant if found.scope == 'tenant' else record.lane}"
    if found.scope not in ("tenant", "lane"):
        text = next((key.text for key in facts.keys if key.digest == found.scope), "")
        what = f"the {word} of its key {text!r}" if reader.contents and text else f"the {word} of one of its keys"
    burst = f", burst {rate.burst:,}" if rate.burst > 1 else ""
    return f"{what} ({rate.rate:,} per {rate.period_ms / 1000:g} s{burst})"


def _paused(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    if facts.pool.paused:
        yield Reason(kind=Kind.POOL_PAUSED, text=f"the pool {reader.pool} is paused", blocks=True)
    if facts.tenant.paused:
        text = f"its tenant {record.tenant} is paused in the pool {reader.pool}"
        yield Reason(kind=Kind.TENANT_PAUSED, text=text, blocks=True)
    if facts.lane.paused:
        text = f"its lane {record.lane} of the tenant {record.tenant} is paused"
        yield Reason(kind=Kind.LANE_PAUSED, text=text, blocks=True)


def _without_leader(facts: WaitFacts, reader: Reader) -> Iterator[Reason]:
    if facts.scheduled and not facts.led:
        pool = f"the pool {reader.pool}, whose dispatch is scheduled"
        text = f"no scheduler leads {pool}: nothing is chosen until one does"
        yield Reason(kind=Kind.NO_LEADER, text=text, blocks=True)


def _without_worker(facts: WaitFacts, reader: Reader) -> Iterator[Reason]:
    if facts.workers:
        return
    text = f"no live worker serves the pool {reader.pool}"
    if reader.whole and reader.elsewhere:
        text += f" (those that are alive serve {listed(list(reader.elsewhere), 5)})"
    elif reader.whole:
        text += ", nor any other"
    yield Reason(kind=Kind.NO_WORKER, text=text, blocks=True)


def _full(facts: WaitFacts, record: JobRecord, reader: Reader) -> Iterator[Reason]:
    if facts.pool.full:
        used, limit = (facts.pool.used, facts.pool.limit) if reader.whole else (None, None)
        text = f"the pool {reader.pool} is at its ceiling"
        if limit is not None:
            text += _of_limit(used or 0, limit)
        yield Reason(kind=Kind.POOL_FULL, text=text, blocks=True, used=used, limit=limit)
    for kind, what, scope in (
        (Kind.TENANT_FULL, f"its tenant {record.tenant}", facts.tenant),
        (Kind.LANE_FULL, f"its lane {record.lane} of the tenant {record.tenant}", facts.lane),
    ):
        if scope.full:
            yield _held(kind, f"{what} is at its ceiling", scope.used, scope.limit or 0, scope.holders, reader)
    for key in facts.keys:
        if key.full:
            name = f"its concurrency key {key.text!r}" if reader.contents else "one of its concurrency keys"
            known = reader.sees_all(key.holders, key.used)
            yield _held(Kind.KEY_FULL, f"{name} is full", key.used, key.limit or 0, key.holders, reader, known=known)
    of_keys = any(each.scope not in ("tenant", "lane") for each in facts.throttled)
    if facts.aside and not of_keys and not any(key.full for key in facts.keys):
        text = "a slot of its concurrency key is free again, and those that wait for it are offered it in turn"
        yield Reason(kind=Kind.KEY_FULL, text=text, blocks=True)


def _held(
    kind: Kind, text: str, used: int, limit: int, holders: Sequence[Holder], reader: Reader, *, known: bool = True
) -> Reason:
    """`known`: the reader may know how many hold it, and so how many of them are not among those it sees."""
    held_by = reader.named(holders)
    if not known:
        if held_by:
            text += f", held among others by {listed(list(held_by), HOLDERS_NAMED)}"
        return Reason(kind=kind, text=text, blocks=True, held_by=held_by)
    text += _of_limit(used, limit)
    if held_by:
        text += f", held by {listed(list(held_by), HOLDERS_NAMED, used)}"
    return Reason(kind=kind, text=text, blocks=True, used=used, limit=limit, held_by=held_by)


def _of_limit(used: int, limit: int) -> str:
    return f": {used:,} of {limit:,} running" if limit else ", which is 0: it is closed"


def _suspects(facts: WaitFacts, reader: Reader) -> Iterator[Reason]:
    if facts.suspect:
        text = "its worker died twice while it ran, so it is leased alone, by a worker that holds nothing else"
        if facts.passed_ms:
            text += f"; it was first passed over {ago_words(facts.passed_ms, facts.now_ms)}"
        yield Reason(kind=Kind.SUSPECT, text=text, blocks=True, since=moment_of(facts.passed_ms))
    elif facts.head_suspect:
        held_by = (reader.public_id(facts.head_suspect),)
        text = (
            f"the job at the head of its line, {held_by[0]}, twice lost its worker and must be leased alone before it"
        )
        yield Reason(kind=Kind.BEHIND_SUSPECT, text=text, blocks=True, held_by=held_by)


def _in_line(facts: WaitFacts, reader: Reader, *, held: bool) -> Iterator[Reason]:
    """Its turn. Behind something that holds it, the place is told, and blocks nothing by itself."""
    place = _place(facts)
    if facts.old_policy:
        text = (
            f"the policy of the pool {reader.pool} has become {facts.policy}, and it still stands in the order of "
            f"{facts.old_policy}" + (f", {place}" if place else "")
        )
        if reader.whole:
            text += f": {facts.moved:,} of {counted(facts.moving, 'job')} have moved over"
        yield Reason(kind=Kind.RERANKING, text=text, blocks=not held)
        return
    if held:
        if place:
            yield Reason(kind=Kind.TURN, text=f"it is {place}")
        return
    if facts.ahead is None or facts.ahead or not facts.ahead_exact:
        yield Reason(kind=Kind.TURN, text=_turn(facts, place, reader), blocks=True)
        return
    if facts.scheduled and facts.most_chosen is not None and facts.chosen >= facts.most_chosen:
        text = "it is next, and as many jobs are chosen and not done as the pool's window has room for"
        used, limit = (facts.chosen, facts.most_chosen) if reader.whole else (None, None)
        if limit is not None:
            text += f": {used:,} of {limit:,}"
        yield Reason(kind=Kind.WINDOW, text=text, blocks=True, used=used, limit=limit)
        return
    if facts.scheduled:
        yield Reason(kind=Kind.NEXT, text="it is next: the leader chooses it with its next call")
        return
    if facts.slots and facts.held >= facts.slots:
        text = "it is next, and the workers of the pool have no room"
        if reader.whole:
            who = f"{counted(facts.workers, 'live worker')} {'has' if facts.workers == 1 else 'have'}"
            text = f"it is next, and the pool's {who} no room: {facts.held:,} leased for {counted(facts.slots, 'slot')}"
        yield Reason(kind=Kind.BUSY, text=text, blocks=True)
        return
    yield Reason(kind=Kind.NEXT, text="it is next: the next worker that asks for work takes it")


def _place(facts: WaitFacts) -> str:
    if facts.place is None:
        return ""
    place = ordinal(facts.place + 1) if facts.place_exact else f"{ordinal(facts.place + 1)} or later"
    if facts.aside:
        return f"{place} of those in its lane that have the same keys"
    if not facts.others:
        return f"{place} in its lane"
    if facts.continues:
        return f"{place} among the continued work of its lane, beside {counted(facts.others, 'fresh job')}"
    return f"{place} among the fresh work of its lane, beside {counted(facts.others, 'continued job')}"


def _turn(facts: WaitFacts, place: str, reader: Reader) -> str:
    text = f"it waits for its turn: it is {place}" if place else "it waits for its turn"
    if not reader.whole:
        return text
    if facts.ahead or (facts.ahead is not None and facts.ahead_exact):
        number = counted(facts.ahead, "job") if facts.ahead_exact else f"at least {counted(facts.ahead, 'job')}"
        start = "starts" if facts.ahead == 1 else "start"
        text += f"{', and' if place else ':'} {number} of the pool {start} before it under the policy {facts.policy}"
    if not facts.ordered and facts.turn:
        turn = "has its" if facts.turn == 1 else "have their"
        text += f"; {facts.turn:,} of {counted(facts.turns, 'tenant')} {turn} turn before its own"
    return text


def _unknown_task(facts: WaitFacts, record: JobRecord, reader: Reader, *, blocks: bool) -> Reason:
    since, end = facts.unknown_since_ms, facts.unknown_since_ms + reader.grace_ms
    text = f"no worker that took it knows its task {record.task}: first given back {ago_words(since, facts.now_ms)}"
    if blocks:
        text += f", tried again {ahead_words(record.due_ms, facts.now_ms)}"
    if reader.grace_ms:
        text += f", a dead letter when none knows it by {moment_words(end)}"
    return Reason(
        kind=Kind.UNKNOWN_TASK,
        text=text,
        blocks=blocks,
        since=moment_of(since),
        until=moment_of(record.due_ms) if blocks else None,
    )


def _expiry(facts: WaitFacts) -> Iterator[Reason]:
    if facts.expires_ms:
        text = f"it is dropped unless it starts by {moment_words(facts.expires_ms)}"
        yield Reason(kind=Kind.EXPIRES, text=text, until=moment_of(facts.expires_ms))

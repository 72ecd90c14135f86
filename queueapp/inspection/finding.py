"""Going through the jobs that a selection means, page by page, in an order that any later call can go on with.

Called by `selection.count` and `selection.batches`, and by `bulk`, which acts on each page. Every page begins behind
the place where the one before ended, also while what was given is cancelled, retried or discarded. Nothing is left out
for want of room: tenants, lanes and sub-lanes are read in pages of their own.

A page costs one round trip or a few, and what holds nothing costs them too. So a web request says how many it may make;
`place` says then where the next one goes on. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeVar

from queueapp.errors import InvalidOption
from queueapp.models import TenantLimits
from queueapp.states import State
from queueapp.store import shards
from queueapp.store.queues import PAGE, Generations
from queueapp.store.reads import Reads
from queueapp.store.views import Cursor

if TYPE_CHECKING:
    from queueapp.inspection.selection import Filter, Selection

F = TypeVar("F", bound="Filter")

ONWARD = (
    State.WAITING,
    State.SCHEDULED,
    State.BACKLOG,
    State.INGRESS,
    State.PENDING,
    State.READY,
    State.ACTIVE,
    State.MOVING,
    State.DEAD,
    State.ENDED,
)
"""The way that jobs go. Who looks in this order meets, further on, what goes on meanwhile; who counts goes against it,
and counts nothing twice."""
TENANTS = 100
"""So many tenants' queues are looked for together."""
TIERS = ("<q", "<qc", "q", "qc")
BEHIND = "-"
"""In place of the score of a place in line: all of this queue, or tenant, was gone through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page begins: in this index, behind this score and id."""

    state: State
    index: str = ""
    score: str = ""
    id: str = ""
    tenant: str = ""
    """Of a place among the pending jobs, and `generation`: places of one are none in another."""
    generation: int = 0

    @property
    def cursor(self) -> Cursor | None:
        return (self.score, self.id) if self.id else None

    def __str__(self) -> str:
        return ",".join((self.state.value, self.index, self.score, self.id, self.tenant, str(self.generation)))


def read_place(text: str) -> Place:
    """The place that `str` wrote. Raises InvalidOption."""
    try:
        state, index, score, job_id, tenant, generation = text.split(",")
        return Place(state=State(state), index=index, score=score, id=job_id, tenant=tenant, generation=int(generation))
    except ValueError:
        raise InvalidOption(f"{text[:80]!r} is no place to go on from.") from None


Step = tuple[Sequence[str], Place | None]
"""The ids of one page, which may be none, and the place behind it; None = nothing of this state is left."""


class Finding:
    """One go through a selection, which has its moment (`Selection.fixed`): iterate once, then look at `place`."""

    def __init__(
        self, selection: Selection, *, size: int, reads: int | None = None, place: str = "", onward: bool = True
    ) -> None:
        """`size`: ids of a page at most. `reads`: pages that are read at most, those that hold nothing counted too.
        `place`: where another one stopped. `onward`: in the order of `ONWARD`, else against it.
        """
        self.begin = self.place = place
        """Where the page begins that was given last, and the one behind it; "" = at the beginning; at the end."""
        self.whole = True
        """False: the order of what waits changed meanwhile, so that some of it may not have been met."""
        self._selection, self._size, self._left, self._onward = selection, size, reads, onward
        self._store = shards.reads(selection.pool)
        self._states = sorted(selection.states, key=ONWARD.index, reverse=not onward)

    def __iter__(self) -> Iterator[tuple[State, list[str]]]:
        for state, ids, then in self._steps(read_place(self.place) if self.place else None):
            self.begin, self.place = self.place, then
            if ids:
                yield state, list(ids)
            if self._left is not None:
                self._left -= 1
                if self._left <= 0:
                    return

    def _steps(self, place: Place | None) -> Iterator[tuple[State, Sequence[str], str]]:
        if place is not None and place.state not in self._states:
            raise InvalidOption(f"Nothing of what is meant is {place.state.value}: there is no place to go on from.")
        states = self._states[self._states.index(place.state) :] if place else self._states
        for state, following in pairwise([*states, None]):
            assert state is not None
            begin = place if place is not None and place.state is state else Place(state=state)
            beyond = str(Place(state=following)) if following is not None else ""
            ended = False
            for ids, then in self._of_state(state, begin):
                ended = then is None
                yield state, ids, str(then) if then is not None else beyond
            if not ended:
                yield state, (), beyond

    def _of_state(self, state: State, begin: Place) -> Iterator[Step]:
        selection = self._selection
        match state:
            case State.PENDING:
                yield from self._pending(begin)
            case State.INGRESS:
                yield from self._ingress(begin)
            case State.DEAD:
                index, rest = dead_index(self._store, selection)
                if begin.index in ("dead", f"dead:{selection.tenant}", f"deadgroup:{selection.group}"):
                    index, rest = rest_of(selection, begin.index)  # places of one index are none in another
                else:
                    begin = Place(state=state)
                yield from self._pages(replace(begin, index=index), rest, before_ms=selection.as_of_ms)
            case State.ENDED:  # of its row little is left, not even the moment of submission for a lane
                yield from self._both(begin, ("ended", "stubs"), selection, before_ms=selection.as_of_ms)
            case State.BACKLOG if selection.tenant:
                indices = (f"bl:{selection.tenant}", f"blc:{selection.tenant}")
                yield from self._both(begin, indices, replace(selection, tenant=""))
            case State.ACTIVE:  # heartbeats move them behind others, so that one may be met again
                seen: set[str] = set()
                for ids, then in self._pages(replace(begin, index="active"), selection):
                    fresh = [job_id for job_id in ids if job_id not in seen]
                    seen.update(fresh)
                    yield fresh, then
            case _:
                yield from self._pages(replace(begin, index=state.value), selection)

    def _both(self, begin: Place, indices: tuple[str, str], rest: Selection, *, before_ms: int = 0) -> Iterator[Step]:
        """Of a state that has two indices."""
        first, second = indices
        if begin.index != second:
            for ids, then in self._pages(replace(begin, index=first), rest, before_ms=before_ms):
                yield ids, then or Place(state=begin.state, index=second)
            begin = Place(state=begin.state)
        yield from self._pages(replace(begin, index=second), rest, before_ms=before_ms)

    def _pages(self, begin: Place, rest: Selection, *, before_ms: int = 0) -> Iterator[Step]:
        place: Place | None = begin
        while place is not None:
            page = self._store.browse(
                place.index,
                before_ms=before_ms,
                after=place.cursor,
                count=self._size,
                tenant=rest.tenant,
                lane=rest.lane,
                task="\n".join(rest.tasks),
                reason=rest.reason,
                group=rest.group,
                submitted_by_ms=0 if before_ms else self._selection.as_of_ms,
            )
            place = replace(place, score=page.cursor[0], id=page.cursor[1]) if page.cursor is not None else None
            yield page.ids, place

    def _ingress(self, begin: Place) -> Iterator[Step]:
        """Entry by entry, up to those that stand there when it begins; their rows say the rest."""
        selection, after, left = self._selection, begin.id, None
        while left is None or left > 0:
            total, found = self._store.ingress(after, self._size)
            left = (total if left is None else left) - len(found)
            if not found:
                return
            after = found[-1][0]
            ids = [job_id for _, job_id, owner in found if job_id and selection.tenant in ("", owner)]
            matching = [
                job_id
                for job_id, record in zip(ids, self._store.letters(ids) if ids else [], strict=True)
                if record is not None
                and record.state is State.INGRESS
                and record.submitted_ms <= selection.as_of_ms
                and selection.lane in ("", record.lane)
                and (not selection.tasks or record.task in selection.tasks)
            ]
            yield matching, Place(state=State.INGRESS, id=after) if left > 0 else None

    # -- what stands in line -------------------------------------------------------------------------------------------

    def _pending(self, begin: Place) -> Iterator[Step]:
        """Tenant by tenant, by name: their lanes, by name, then what waits by concurrency key."""
        number = self._store.queues.generations().number
        while True:
            yield from self._all_pending(begin)
            now = self._store.queues.generations().number
            if now == number:
                return
            self.whole, number = False, now
            if not self._onward:
                return
            begin = Place(state=State.PENDING)  # the policy was changed meanwhile: once more, in its order

    def _all_pending(self, begin: Place) -> Iterator[Step]:
        tenants = [self._selection.tenant] if self._selection.tenant else sorted(self._waiting(begin.tenant))
        for at in range(0, len(tenants), TENANTS):
            chunk = tenants[at : at + TENANTS]
            of = self._store.queues.generations()
            if begin.generation != of.number:  # the places of another order are none in this one
                begin = Place(state=State.PENDING, tenant=begin.tenant, generation=of.number)
            lanes = self._lanes(chunk, of)
            yield (), begin
            yield from self._in_line(chunk, lanes, of, begin)
            begin = Place(state=State.PENDING, tenant=chunk[-1], score=BEHIND, generation=of.number)
            yield (), begin

    def _waiting(self, since: str) -> set[str]:
        """The tenants with waiting jobs, from this name on."""
        return {name for page in self._store.waiting_tenants() for name in page if name >= since}

    def _lanes(self, tenants: Sequence[str], of: Generations) -> dict[str, list[str]]:
        if self._selection.lane:
            return {tenant: [self._selection.lane] for tenant in tenants}
        return lanes_in_line(self._store, self._selection.pool, tenants, of)

    def _in_line(
        self, tenants: Sequence[str], lanes: dict[str, list[str]], of: Generations, begin: Place
    ) -> Iterator[Step]:
        """Queues that hold little are read several at a time."""
        task, by_ms = "\n".join(self._selection.tasks), self._selection.as_of_ms
        rest = replace(self._selection, tenant="", lane="")
        for names in self._queues(tenants, lanes, of, begin):
            places = [
                Place(state=State.PENDING, tenant=tenant, index=queue, generation=of.number) for tenant, queue in names
            ]
            sizes = self._store.queues.sizes([place.index for place in places], of)
            for group in self._groups(places, sizes):
                last = replace(group[-1], score=BEHIND)
                if len(group) == 1:
                    start = begin if begin.index == group[0].index and begin.tenant == group[0].tenant else group[0]
                    for ids, then in self._pages(start if start.id else group[0], rest):
                        yield ids, then or last
                    continue
                pages = self._store.browse_each(
                    [place.index for place in group], count=self._size, task=task, submitted_by_ms=by_ms
                )
                grown = [  # since they were counted
                    replace(place, score=page.cursor[0], id=page.cursor[1])
                    for place, page in zip(group, pages, strict=True)
                    if page.cursor is not None
                ]
                yield list(chain.from_iterable(page.ids for page in pages)), [*grown, last][0]
                for start, following in pairwise([*grown, last]):
                    for ids, then in self._pages(start, rest):
                        yield ids, then or following
            yield (), replace(places[-1], score=BEHIND)

    def _groups(self, places: Sequence[Place], sizes: Sequence[int]) -> Iterator[list[Place]]:
        """Those that hold something, in their order: together as long as one page may hold all of it."""
        group: list[Place] = []
        room = self._size
        for place, size in zip(places, sizes, strict=True):
            if size <= 0:
                continue
            if group and size > room:
                yield group
                group, room = [], self._size
            group.append(place)
            room -= size
        if group:
            yield group

    def _queues(
        self, tenants: Sequence[str], lanes: dict[str, list[str]], of: Generations, begin: Place
    ) -> Iterator[list[tuple[str, str]]]:
        """(tenant, queue) from that place on, in pages."""
        queues, lane, tiers = self._store.queues, self._selection.lane, of.tiers()
        places = [(tenant, tier) for tenant in tenants for tier in tiers]
        asked = [(tenant, tier, shortly_before(begin.index, tenant, tier)) for tenant, tier in places]
        first = dict(zip(places, queues.sub_lanes(asked, of, lane=lane), strict=True))
        page: list[tuple[str, str]] = []
        for tenant in tenants:
            names = [f"{tier}:{tenant}|{name}" for name in lanes[tenant] for tier in tiers]
            page += ((tenant, name) for name in names if _is_from(begin, tenant, name))
            for tier in tiers:
                found = first[tenant, tier]
                while found:
                    names = [f"{tier}:{tenant}|{name}" for name in found]
                    page += ((tenant, name) for name in names if _is_from(begin, tenant, name))
                    while len(page) >= PAGE:
                        yield page[:PAGE]
                        page = page[PAGE:]
                    if len(found) < PAGE:
                        break
                    [found] = queues.sub_lanes([(tenant, tier, found[-1])], of, lane=lane)
        while page:
            yield page[:PAGE]
            page = page[PAGE:]


def lanes_in_line(reads: Reads, pool: str, tenants: Sequence[str], of: Generations) -> dict[str, list[str]]:
    """Every lane of these tenants in which something may be pending, by name: those with work that may run, and those
    that are configured, as who is paused or full stands in no walk.
    """
    rows = TenantLimits.objects.filter(pool__name=pool, tenant__key__in=tenants).exclude(lane="").order_by()
    found = {tenant: {"main", *lanes} for tenant, lanes in reads.queues.lanes(tenants, of).items()}
    for tenant, lane in rows.values_list("tenant__key", "lane").iterator():
        found[tenant].add(lane)
    return {tenant: sorted(lanes) for tenant, lanes in found.items()}


def _is_from(begin: Place, tenant: str, queue: str) -> bool:
    """Whether a queue is that of the place or comes after it."""
    if begin.tenant != tenant or not (begin.index or begin.score):
        return begin.tenant <= tenant
    if not begin.index:
        return False
    here, there = order_in_line(queue), order_in_line(begin.index)
    return here > there or (here == there and begin.score != BEHIND)


def shortly_before(queue: str, tenant: str, tier: str) -> str:
    """A name before that of this queue, with little between them, where it is a sub-lane of this tenant and tier."""
    of, _, place = queue.partition(":")
    owner, _, name = place.partition("|")
    return name[:-1] if (owner, of) == (tenant, tier) and "|" in name else ""


def order_in_line(queue: str) -> tuple[bool, str, int, str]:
    """The order of a tenant's queues: its lanes by name, then its sub-lanes by tier and name."""
    tier, _, place = queue.partition(":")
    name = place.partition("|")[2]
    return (True, "", TIERS.index(tier), name) if "|" in name else (False, name, TIERS.index(tier), "")


# -- dead letters ------------------------------------------------------------------------------------------------------


def dead_index(reads: Reads, meant: F) -> tuple[str, F]:
    """The smallest index that holds all of these dead letters, and the conditions that are left to look up."""
    by_group, by_tenant = f"deadgroup:{meant.group}", f"dead:{meant.tenant}"
    if meant.group and meant.tenant:
        of_group, of_tenant = reads.sizes([by_group, by_tenant])
        return rest_of(meant, by_group if of_group < of_tenant else by_tenant)
    return rest_of(meant, by_group if meant.group else by_tenant if meant.tenant else "dead")


def rest_of(meant: F, index: str) -> tuple[str, F]:
    """The index, and the conditions that it does not answer."""
    if index.startswith("deadgroup:"):
        return index, replace(meant, group="")
    return index, replace(meant, tenant="") if index != "dead" else meant

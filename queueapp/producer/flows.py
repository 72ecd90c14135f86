"""Trees of jobs: `enqueue_flow(Tree(report.bind(5), children=[load.bind(1), load.bind(2)]))`.

A job with children waits until they have ended; it then runs, and reads what they gave (`context.children`). A tree
goes into the store of its root's pool in one call, all of it or nothing; the children that another pool shall run are
noted there and relayed (`store.families`). Every job is prepared before anything is written anywhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from queueapp.conf import our_aliases
from queueapp.errors import DuctorError, InvalidOption, NotWaiting, StoreError
from queueapp.producer import client, outbox, rows, transactions
from queueapp.producer.client import STAND_INS, Replay, announce, check
from queueapp.producer.kept_trees import KeptTree
from queueapp.producer.preparation import Prepared, prepare
from queueapp.producer.results import DuctorResult
from queueapp.producer.task import BoundTask
from queueapp.producer.tenancy import settle
from queueapp.states import State
from queueapp.store import families, shards, trees
from queueapp.store.family_records import Away, Node, OnFailure, Planted
from queueapp.store.ids import new_child_id
from queueapp.store.records import Enqueued

logger = logging.getLogger(__name__)

DEPTH_MAX = 32
"""Levels of one tree."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A job that waits for others. What has no children, and fails its parent when it fails, need not be one."""

    job: BoundTask
    children: Sequence[Tree | BoundTask] = field(default=(), kw_only=True)
    on_failure: OnFailure = field(default="fail_parent", kw_only=True)
    """What becomes of the job that waits for this one when this one fails, in whatever way it ends but by completing:

    - `fail_parent`: it is a dead letter at once (`child_failed`).
    - `retry_parent`: it counts as an error of its. If that was its last attempt it is a dead letter at once; else it
      runs when all children have ended, and may add others.
    - `continue`: it runs when all have ended, and is told (`context.children.failed`).
    - `ignore`: the same, and it is told nothing of this one.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A tree that nothing but the store can refuse any more."""

    root: Prepared
    jobs: Mapping[str, Prepared]
    """All of it by id."""
    parents: frozenset[str]
    nodes: Sequence[Node]
    """Those of the root's pool that hang together."""
    away: Sequence[Away]

    def results(self) -> dict[str, DuctorResult]:
        """The handles of its jobs, by id, once it is accepted."""
        return _results(self.jobs, self.parents)


def enqueue_flow(tree: Tree | BoundTask) -> DuctorResult:
    """Enqueue a tree, at once or after commit; the handle is that of its root, which runs last.

    All of it is accepted, or nothing. Up to 250 jobs of one pool are one step of the store. More go in several: then
    children may start before the last are there, but no parent runs before it has all of its own; and should the caller
    die in between, the root is a dead letter (`incomplete`) ten minutes later, and what has not started is cancelled.
    An idempotency key of the root stands for the whole; other jobs have none, and none a debounce or a singleton.
    Raises what `enqueue` raises: also for a tree that is refused as a whole.
    """
    for pool in pools_of([tree]):
        rows.require_pool(pool)
    planned = plan(tree)
    _require_tenants(planned.jobs)
    if deferred := _defer(planned):
        return deferred
    accepted = _accepted(planned, _send(planned, planned.nodes, planned.away))
    if accepted.outcome in STAND_INS:
        return client.standing_in([Replay(planned.root, accepted)])[0]
    results = planned.results()
    for job_id, prepared in planned.jobs.items():
        announce(prepared, results[job_id])
    return results[planned.root.job.id]


async def aenqueue_flow(tree: Tree | BoundTask) -> DuctorResult:
    """See `enqueue_flow`."""
    await settle()
    for pool in (pools := pools_of([tree])):
        await rows.arequire_pool(pool)
    planned = plan(tree)
    for prepared in planned.jobs.values():
        await rows.arequire_tenant(prepared.job.tenant)
    if deferred := _defer(planned):
        return deferred
    for pool in pools:
        await shards.arecord(pool)
    planted = await shards.async_store(planned.root.pool).enqueue_flow(planned.nodes, planned.away)
    await asyncio.to_thread(_relay, planned)
    accepted = _accepted(planned, planted)
    if accepted.outcome in STAND_INS:
        return (await client.astanding_in([Replay(planned.root, accepted)]))[0]
    results = planned.results()
    for job_id, prepared in planned.jobs.items():
        await client.aannounce(prepared, results[job_id])
    return results[planned.root.job.id]


def add_children(parent: DuctorResult | str, children: Sequence[Tree | BoundTask]) -> list[DuctorResult]:
    """Add children to a job that waits for others; handles of theirs, in order. At once, also inside a transaction.

    Raises NotWaiting for a job that does not wait (any more), and what `enqueue` raises for a job that cannot be one. A
    job that runs adds its own children with `context.add_children`.
    """
    public_id = parent if isinstance(parent, str) else parent.id
    place = shards.locate(public_id)
    if place is None:
        raise NotWaiting(f"{public_id!r} is the id of no job that waits for children.")
    pool, job_id = place
    planned = plan_children(pool, job_id, children)
    try:
        shards.store(pool).add_children(job_id, planned.nodes, planned.away)
    except NotWaiting as error:
        state = error.detail[0].decode() if error.detail and error.detail[0] else ""
        raise NotWaiting(
            f"Job {public_id} does not wait for children ({'it is over, or runs' if state else 'nobody knows it'}): "
            "none can be added."
        ) from error
    return planned.settle(pool)


# -- what goes where ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """Children for a job that is there already."""

    jobs: Mapping[str, Prepared]
    first: Sequence[str]
    """Ids of the children themselves."""
    nodes: Sequence[Node]
    away: Sequence[Away]
    parents: frozenset[str]

    def settle(self, pool: str) -> list[DuctorResult]:
        """They are accepted: relays what goes elsewhere, announces all; the handles of the children."""
        relay(pool, self.away)
        results = _results(self.jobs, self.parents)
        for job_id, prepared in self.jobs.items():
            announce(prepared, results[job_id])
        return [results[job_id] for job_id in self.first]


def plan(tree: Tree | BoundTask) -> Planned:
    """Prepares all jobs of a tree, and says what goes into the store of its root. Raises what `enqueue` raises."""
    plot = _Plot()
    root = plot.add(_as_tree(tree), None)
    plot.grow()
    nodes, away = plot.component(root, "", 0)
    return Planned(root=plot.jobs[root], jobs=plot.jobs, parents=frozenset(plot.children), nodes=nodes, away=away)


def plan_children(pool: str, parent: str, children: Sequence[Tree | BoundTask]) -> Grown:
    """The same of children of a job that is there, in this pool."""
    for name in pools_of(children):
        rows.require_pool(name)
        shards.store(name)
    plot = _Plot()
    first = [plot.add(_as_tree(child), parent) for child in children]
    plot.grow()
    nodes: list[Node] = []
    away: list[Away] = []
    for position, job_id in enumerate(first):
        if plot.jobs[job_id].pool == pool:
            some, elsewhere = plot.component(job_id, parent, position)
            nodes += some
            away += elsewhere
        else:
            away.append(plot.away(job_id, shards.keys(pool).public_id(parent), parent, position))
    _require_tenants(plot.jobs)
    return Grown(jobs=plot.jobs, first=first, nodes=nodes, away=away, parents=frozenset(plot.children))


class _Plot:
    """The jobs of a tree, by id, and how they hang together."""

    def __init__(self) -> None:
        self.jobs: dict[str, Prepared] = {}
        self.children: dict[str, list[str]] = {}
        self.on_failure: dict[str, OnFailure] = {}
        self._left: deque[tuple[str, Tree, int]] = deque()

    def add(self, tree: Tree, parent: str | None, depth: int = 1) -> str:
        if depth > DEPTH_MAX:
            raise InvalidOption(f"A tree of jobs has at most {DEPTH_MAX} levels; let the lower ones add children.")
        bound = tree.job
        if bound.task.backend not in our_aliases():
            raise InvalidOption(
                f"{bound.task.module_path} belongs to the backend {bound.task.backend!r}, which knows no trees of jobs."
            )
        _require_plain(bound, is_root=parent is None)
        bound.task.get_backend().validate_task(bound.task)
        prepared = prepare(bound.task, bound.args, bound.kwargs)
        job = prepared.job
        if parent is not None:
            job = replace(job, id=new_child_id())
        if tree.children:
            job = replace(job, tier="continue")  # by the time it runs, the work that it belongs to has begun
        self.jobs[job.id] = replace(prepared, job=job)
        self.on_failure[job.id] = tree.on_failure
        self._left.append((job.id, tree, depth))
        return job.id

    def grow(self) -> None:
        """All levels below those that were added."""
        while self._left:
            job_id, tree, depth = self._left.popleft()
            for child in tree.children:
                self.children.setdefault(job_id, []).append(self.add(_as_tree(child), job_id, depth + 1))

    def component(self, root: str, parent: str, position: int) -> tuple[list[Node], list[Away]]:
        """What hangs together in the pool of `root`, and what hangs on it in others."""
        pool = self.jobs[root].pool
        public_id = shards.keys(pool).public_id
        nodes: list[Node] = []
        away: list[Away] = []
        left = deque([(root, parent, position)])
        while left:
            job_id, above, at = left.popleft()
            below = self.children.get(job_id, [])
            nodes.append(
                Node(
                    job=self.jobs[job_id].job,
                    parent=above,
                    on_failure=self.on_failure[job_id],
                    position=at,
                    waits=bool(below),
                )
            )
            for number, child in enumerate(below):
                if self.jobs[child].pool == pool:
                    left.append((child, job_id, number))
                else:
                    away.append(self.away(child, public_id(job_id), job_id, number))
        return nodes, away

    def away(self, child: str, parent: str, inner: str, position: int) -> Away:
        """A child in another pool than its parent, of the public id `parent`."""
        job = self.jobs[child]
        return Away(
            id=shards.keys(job.pool).public_id(child),
            parent=inner,
            on_failure=self.on_failure[child],
            position=position,
            tenant=job.job.tenant,
            tree=trees.pack(*self.component(child, parent, position)),
        )


def _as_tree(given: object) -> Tree:
    tree = Tree(given) if isinstance(given, BoundTask) else given
    if not isinstance(tree, Tree) or not isinstance(tree.job, BoundTask):
        raise InvalidOption(
            f"A tree is made of Tree(...) and of bound tasks, not of {given!r}: write task.using(...).bind(...)."
        )
    if tree.on_failure not in get_args(OnFailure):
        raise InvalidOption(f"on_failure is {tree.on_failure!r}; it is one of {', '.join(get_args(OnFailure))}.")
    return tree


def _require_plain(bound: BoundTask, *, is_root: bool) -> None:
    """Raises InvalidOption for what would let another job stand for one of a tree."""
    task = bound.task
    given = [name for name in ("debounce", "singleton") if getattr(task, name) is not None]
    if not is_root and task.idempotency_key is not None:
        given.append("idempotency_key")
    if given:
        remedy = "Take it away." if is_root else "Take it away; the root may have an idempotency_key."
        raise InvalidOption(
            f"{task.module_path} has {' and '.join(given)}, by which another job could stand for it, and is a job of a "
            f"tree, which runs as a whole. {remedy}"
        )


def _results(jobs: Mapping[str, Prepared], parents: Container[str]) -> dict[str, DuctorResult]:
    found = {}
    for job_id, prepared in jobs.items():
        found[job_id] = prepared.result(Enqueued(outcome="enqueued", id=job_id))
        if job_id in parents:
            found[job_id]._set(state=State.WAITING.value)
    return found


def pools_of(trees_: Sequence[Tree | BoundTask]) -> list[str]:
    """The pools of all jobs of these, the roots' first."""
    found: dict[str, None] = {}
    left = deque(_as_tree(tree) for tree in trees_)
    while left:
        tree = left.popleft()
        found[tree.job.task.queue_name] = None
        left.extend(_as_tree(child) for child in tree.children)
    return list(found)


def _require_tenants(jobs: Mapping[str, Prepared]) -> None:
    for tenant in {prepared.job.tenant for prepared in jobs.values()}:
        rows.require_tenant(tenant)


# -- the store's answers -----------------------------------------------------------------------------------------


def _accepted(planned: Planned, planted: Planted) -> Enqueued:
    """Raises what the store refused, of the job for which it did."""
    about = planned.jobs.get(planted.id, planned.root)
    return check(about, Enqueued(outcome=planted.outcome, id=planted.id, wait_ms=planted.wait_ms))


def relay(pool: str, away: Sequence[Away]) -> None:
    """Makes at once what is to be made in other pools; what cannot be now, a scheduler makes later."""
    if not away:
        return
    try:
        families.deliver(pool)
    except StoreError as error:
        logger.warning("Children in other pools are made later: %s", error, extra={"pool": pool, "code": error.code})


def _relay(planned: Planned) -> None:
    relay(planned.root.pool, planned.away)


def _send(planned: Planned, nodes: Sequence[Node], away: Sequence[Away]) -> Planted:
    """Into the store of the root, and on from there. Raises StoreError."""
    for prepared in planned.jobs.values() if away else ():
        shards.store(prepared.pool)  # its code, by which others know its jobs
    planted = shards.store(planned.root.pool).enqueue_flow(nodes, away)
    _relay(planned)
    return planted


def _defer(planned: Planned) -> DuctorResult | None:
    """The handle of the root, when the tree goes out after commit."""
    handles: list[DuctorResult] = []
    task = planned.root.task
    if not transactions.defer(lambda aliases: _send_late(planned, handles[0], aliases), task.on_commit, task.database):
        return None
    handles.append(planned.root.deferred())
    return handles[0]


def _send_late(planned: Planned, handle: DuctorResult, aliases: Sequence[str]) -> None:
    """Sends a tree after the commits of `aliases`. Never raises: the caller is gone. What the store could not take is
    kept in the outbox, whole.
    """
    tree = KeptTree(nodes=planned.nodes, away=planned.away).with_jobs(planned.root.counted_from_call)
    away = outbox.away()
    if away and not _lost(planned, tree, handle, away, aliases):
        return  # as for single jobs, only what cannot be kept asks again
    try:
        accepted = _accepted(planned, _send(planned, tree.nodes, tree.away))
    except DuctorError as error:
        if _lost(planned, tree, handle, error, aliases):
            client.failed_late(planned.root, handle, error, kept=False)
        return
    results = planned.results()
    root = results[planned.root.job.id]
    handle._set(
        id=shards.keys(planned.root.pool).public_id(accepted.id),
        state=root.state,
        outcome=accepted.outcome,
        enqueued_at=root.enqueued_at,
    )
    if accepted.outcome not in STAND_INS:
        for job_id, prepared in planned.jobs.items():
            announce(prepared, handle if prepared is planned.root else results[job_id])


def _lost(planned: Planned, tree: KeptTree, handle: DuctorResult, error: DuctorError, aliases: Sequence[str]) -> bool:
    """Gives a tree to the outbox; whether that did not keep it."""
    return bool(client.keep([(replace(planned.root, tree=tree), handle, error)], aliases))

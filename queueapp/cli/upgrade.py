"""`manage.py ductor upgrade`: the shards of every pool are converted to the schema of this release."""

from __future__ import annotations

from collections.abc import Callable

from queueapp.store import scripts, shards, upgrades
from queueapp.store.store import Store
from queueapp.store.upgrades import Plan
from queueapp.sync import installation


def upgrade(*, dry_run: bool, say: Callable[[str], object]) -> str:
    """Says what it does, batch by batch; answers the closing line. Interrupted, it goes on where it stopped.

    Raises SchemaMismatch before anything was changed when a shard cannot be converted by this release.
    """
    if not dry_run:
        installation.claim()
    stores = {pool: shards.store(pool) for pool in sorted(shards.pools())}
    plans = {pool: upgrades.plan(store.client, store.keys) for pool, store in stores.items()}
    waiting = {pool: plan for pool, plan in plans.items() if plan.steps}
    for pool, plan in waiting.items():
        for step in plan.steps:
            say(f"{pool}: schema {step.source} → {step.target}: {step.title}")
        if plan.interrupted:
            say(f"{pool}: an upgrade was interrupted; it goes on where it stopped")
        if not dry_run:
            _convert(pool, stores[pool], plan, say)
    if not waiting:
        return f"Nothing to convert: every shard has schema {scripts.SCHEMA}, as this release wants it."
    pools = f"{len(waiting)} pool{'s' if len(waiting) > 1 else ''}"
    return f"{pools} to convert; nothing was changed." if dry_run else f"{pools} converted."


def _convert(pool: str, store: Store, plan: Plan, say: Callable[[str], object]) -> None:
    for progress in upgrades.convert(store.client, store.keys, plan):
        end = "done" if progress.done else "…"
        say(f"{pool}: {progress.converted} records converted to schema {progress.step.target} {end}")

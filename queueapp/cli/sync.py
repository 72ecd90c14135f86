"""`manage.py ductor sync`: what the rows say is brought into force now, and what differed is shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from queueapp.cli.table import as_json, printable
from queueapp.inspection.pools import all_pools, require
from queueapp.sync import installation
from queueapp.sync.enforcement import Difference, Enforced, Values, enforce

SHOWN = 20
"""Differences of a pool that the text names; `--json` has all."""


def sync(pools: Sequence[str], *, dry_run: bool, json: bool) -> str:
    """The text to print. Raises UnknownPool, ForeignInstallation and StoreError."""
    known = all_pools()
    require(list(pools), known)
    if not dry_run:
        installation.claim()
    found = list(enforce(list(pools) or known, dry_run=dry_run))
    if json:
        return as_json([{**asdict(pool), "dry_run": dry_run} for pool in found])
    return "\n".join(line for pool in found for line in _lines(pool, dry_run=dry_run))


def _lines(pool: Enforced, *, dry_run: bool) -> Iterator[str]:
    number = len(pool.differences)
    if not number:
        yield f"{pool.pool}: as the rows say"
        return
    done = "not as the rows say (nothing was changed)" if dry_run else "brought into force"
    yield f"{pool.pool}: {number} record{'s' if number > 1 else ''} {done}"
    for difference in pool.differences[:SHOWN]:
        yield f"  {_name(difference)}: {_values(difference.in_force)} → {_values(difference.wanted)}"
    if number > SHOWN:
        yield f"  … and {number - SHOWN} more; --json has all"
    if pool.policy_waits:
        yield "  The policy changes once the change before it is through; all else is in force."


def _name(difference: Difference) -> str:
    if difference.key:
        return printable(f"key {difference.key}")
    if not difference.tenant:
        return "pool settings"
    return printable(f"{difference.tenant} / {difference.lane}" if difference.lane else difference.tenant)


def _values(values: Values) -> str:
    if not values:
        return "defaults"
    return ", ".join(f"{name} {printable(value)}" for name, value in values.items())

"""The row of a job as the server keeps it, read in Python. Written only by `lua/include/row.lua`. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from queueapp.codec import well_formed
from queueapp.policies.registry import DIRECT
from queueapp.states import STATE_CODES, Outcome, State
from queueapp.store.records import LeasedJob
from queueapp.store.views import ErrorRecord, JobRecord
from queueapp.store.waits import waits_of_job, waits_of_lease

TIED = frozenset({"aging", "edf", "wfq"})
"""Policies of the store whose ranks may be equal."""
ERROR_FORM = re.compile(rb"(\w+)\|(\d+)\|(.*?)\|(\d+)\|(\d+)\|(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Header and payload of `job:<id>`. `state` is the byte: p, s, i, b, or h when the run hash holds the state."""

    state: str
    seq: int
    """Number of submission; 0 = it had no place in line yet."""
    submitted_ms: int
    due_ms: int
    """When the job was due that was enqueued for later; else as `submitted_ms`."""
    task_number: str
    tenant: str
    lane: str
    priority: int
    tier: str
    cost: float
    max_attempts: int
    max_crashes: int
    expires_ms: int
    deadline_ms: int
    keys: str
    """Id of its key set (lua/include/keysets.lua); "" = it has no concurrency keys."""
    fingerprint: str
    payload: bytes


def parse_row(text: bytes) -> Row:
    """The row that `text` spells. ValueError when it is none of ours."""
    header, newline, payload = text.partition(b"\n")
    parts = header.decode().split("|")
    if not newline or len(parts) != 13 or parts[0][1:2] != "1":
        raise ValueError(f"not a row of this release: {header[:80]!r}")
    first, task, tenant, lane, priority, tier, cost, attempts, crashes, expires, deadline, keys, fingerprint = parts
    submitted, _, delay = first[14:].partition("@")[0].partition("+")
    return Row(
        state=first[0],
        seq=int(first[2:14], 16),
        submitted_ms=int(submitted),
        due_ms=int(submitted) + int(delay or 0),
        task_number=task,
        tenant=tenant,
        lane=lane or "main",
        priority=int(priority or 0),
        tier="continue" if tier else "start",
        cost=float(cost or 0),
        max_attempts=int(attempts or 1),
        max_crashes=int(crashes or 3),
        expires_ms=int(expires or 0),
        deadline_ms=int(deadline or 0),
        keys=keys,
        fingerprint=fingerprint,
        payload=payload,
    )


def has_ties(policy: bytes | None) -> bool:
    """Do the members of queues and walks begin with the 12 digits of a number of submission? So they do where ranks may
    be equal: also under every policy that the store does not know itself (`pool.ties` of lua/include/shard.lua)."""
    name = "tiered" if policy is None else policy.decode()
    return name in TIED or name not in DIRECT


def child_of(member: bytes, policy: bytes | None) -> str:
    """The tenant, lane or job behind a member of a walk or a queue in a shard under `policy`."""
    text = member.decode()
    return text[12:] if has_ties(policy) else text


def leased_job(reply: Sequence[Any], task_names: Mapping[bytes, str]) -> LeasedJob:
    """A row of the reply of `check_and_lease` or `cycle` (lua/include/lease.lua names its parts)."""
    job_id, attempts, errors, crashes, leased, deadline, task, text, ready, waited = reply
    row = parse_row(text)
    return LeasedJob(
        id=job_id.decode(),
        attempts=int(attempts),
        errors=int(errors),
        crashes=int(crashes),
        task=task_names[task],
        tenant=row.tenant,
        lane=row.lane,
        priority=row.priority,
        cost=row.cost,
        submitted_ms=row.submitted_ms,
        ready_ms=int(ready or row.due_ms),
        leased_ms=int(leased),
        waits=waits_of_lease(waited.decode(), int(ready or row.due_ms), int(leased)),
        deadline_ms=int(deadline),
        max_attempts=row.max_attempts,
        payload=row.payload,
    )


def error_record(text: bytes) -> ErrorRecord:
    """One entry of `errors:<id>`: `kind|attempt|worker|start|at|` and JSON."""
    match = ERROR_FORM.match(text)
    if match is None:
        raise ValueError(f"not an error record: {text[:80]!r}")
    kind, attempt, worker, started, at, detail = match.groups()
    return ErrorRecord(
        kind=kind.decode(),
        attempt=int(attempt),
        worker=worker.decode(),
        started_ms=int(started),
        at_ms=int(at),
        detail=_detail(detail),
    )


def _detail(text: bytes) -> dict[str, object]:
    """What an error said, as text that UTF-8 can hold: an exception may quote the name of a file that it cannot."""
    try:
        detail = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        detail = None
    if not isinstance(detail, dict):
        detail = {"message": text.decode(errors="replace")}
    return {
        well_formed(name): well_formed(value if isinstance(value, str) else repr(value))
        for name, value in detail.items()
    }


def job_record(
    job_id: str,
    text: bytes | None,
    run: Mapping[bytes, bytes],
    *,
    result: bytes | None,
    errors: Sequence[bytes],
    data: Mapping[bytes, bytes],
    due_ms: int,
    task_names: Mapping[bytes, str],
) -> JobRecord | None:
    """All that is known of one job, from its raw keys; None when there is none."""
    row = parse_row(text) if text else None
    fields = {name.decode(): value.decode() for name, value in run.items()}
    if row is None and not fields:
        return None
    code = row.state if row is not None and row.state != "h" and not fields else fields["s"]
    state = STATE_CODES[code]
    number = (row.task_number if row else fields["n"]).encode()
    first = int(fields.get("s1", fields.get("st", 0)))
    submitted_ms = row.submitted_ms if row else int(fields["sm"])
    edits, edited_ms, *_ = fields.get("ed", "0|0").split("|")
    return JobRecord(
        id=job_id,
        state=state,
        task=task_names.get(number, f"unknown task {number.decode()}"),
        tenant=row.tenant if row else fields["t"],
        lane=row.lane if row else fields.get("l", "main"),
        outcome=Outcome(fields["o"]) if state is State.ENDED else None,
        reason=fields.get("o", "") if state is State.DEAD else "",
        group=fields.get("g", ""),
        priority=row.priority if row else 0,
        charged=float(fields.get("ch", "").partition("|")[0] or 0),
        learnt="1" in fields.get("ch", "").rpartition("|")[2],
        attempts=int(fields.get("a", 0)),
        error_count=int(fields.get("e", 0)),
        crashes=int(fields.get("c", 0)),
        submitted_ms=submitted_ms,
        ready_ms=int(fields.get("rd", row.due_ms if row else submitted_ms)),
        first_leased_ms=first,
        leased_ms=int(fields.get("st", 0)),
        waits=waits_of_job(submitted_ms, int(fields.get("st", 0)), fields),
        ended_ms=int(fields.get("te", 0)),
        due_ms=row.due_ms if row and state is State.BACKLOG else due_ms,
        moved_to=fields.get("mv", ""),
        failed_child=fields.get("by", ""),
        deadline_ms=row.deadline_ms if row else 0,
        worker=fields.get("w", ""),
        cancelling_ms=int(fields.get("cx", 0)),
        max_attempts=row.max_attempts if row else 0,
        edits=int(edits),
        edited_ms=int(edited_ms),
        payload=row.payload if row else None,
        result=result,
        errors=tuple(error_record(entry) for entry in errors),
        data={name.decode(): value for name, value in data.items()},
    )

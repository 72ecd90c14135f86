"""One job, as every skin shows it: facts, and, for those who may see them, arguments and result, masked."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from queueapp.codec import decode_arguments, decode_result
from queueapp.inspection.masking import masked, masked_args
from queueapp.producer.results import moment
from queueapp.store import shards
from queueapp.store.records import ErrorRecord, JobRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job of `pool` under its public id. Moments are aware datetimes or None."""

    id: str
    pool: str
    record: JobRecord

    @property
    def state(self) -> str:
        """The state; of an ended job its outcome."""
        return (self.record.outcome or self.record.state).value

    @property
    def submitted_at(self) -> datetime | None:
        return moment(self.record.submitted_ms)

    @property
    def leased_at(self) -> datetime | None:
        return moment(self.record.leased_ms)

    @property
    def ended_at(self) -> datetime | None:
        return moment(self.record.ended_ms)

    @property
    def due_at(self) -> datetime | None:
        return moment(self.record.due_ms)

    @property
    def last_error(self) -> ErrorRecord | None:
        return self.record.errors[-1] if self.record.errors else None

    def arguments(self) -> tuple[list[Any], dict[str, Any]] | None:
        """`(args, kwargs)`, masked; None once the job has ended. For those who may see payloads."""
        if self.record.payload is None:
            return None
        args, kwargs, _ = decode_arguments(self.record.payload)
        return masked_args(self.record.task, args), masked(kwargs)

    def result(self) -> Any:
        """What the task returned, masked. For those who may see payloads."""
        return masked(decode_result(self.record.result))

    def saved(self) -> dict[str, Any]:
        """Progress and metadata that the task saved, masked."""
        return {name: masked(decode_result(value)) for name, value in self.record.data.items()}


def view(pool: str, record: JobRecord) -> JobView:
    """The view of a record that was read from this pool."""
    return JobView(id=shards.keys(pool).public_id(record.id), pool=pool, record=record)


def find_job(public_id: str) -> JobView | None:
    """The job of this id; None when it is no job id, of no known pool, or the job is gone."""
    place = shards.locate(public_id)
    if place is None:
        return None
    pool, job_id = place
    record = shards.reads(pool).job(job_id)
    return view(pool, record) if record is not None else None

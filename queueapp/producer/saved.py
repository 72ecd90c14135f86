"""What a job has saved beside its result: its progress and its metadata. Pure but for the codec.

The worker saves (`worker.context`); results and `inspection.masking` read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from queueapp.codec import decode_arguments, decode_result
from queueapp.store.views import JobRecord

CHECKPOINT = "checkpoint"
"""Name under which a run saves where the next one may go on. The store keeps it apart, and not beyond the job's end."""
PROGRESS, METADATA, GIVEN = "progress", "metadata", "given"
"""Names in a job's saved data: what the body saved, and the metadata that the job was given, saved when it first runs.

An ended job keeps no payload, in which its metadata came; two names, because the worker need not know what an earlier
run saved in order to save what was given again.
"""


def metadata_of(record: JobRecord) -> dict[str, Any]:
    """A job's metadata, wherever it stands now."""
    saved = saved_metadata(record.data)
    if saved is not None:
        return saved
    given: dict[str, Any] = decode_arguments(record.payload)[2].get("metadata", {}) if record.payload else {}
    return given


def saved_metadata(data: Mapping[str, bytes]) -> dict[str, Any] | None:
    """The metadata among what a job saved; None when it saved none.

    What the body saved stands whole: it began with what the job was given.
    """
    encoded = data.get(METADATA, data.get(GIVEN))
    metadata: dict[str, Any] | None = decode_result(encoded)
    return metadata

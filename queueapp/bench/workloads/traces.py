"""Recorded workloads: a file of JSON lines, read and written with every field looked at.

The first line is `{"ductor_trace": 1}`. Each further line is a job in order of arrival: `at_us`, `tenant` and
`service_us`, and, where they are not the defaults, `lane`, `priority`, `deadline_us` and `cost`, all as in `Job`.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from queueapp.bench.workloads.jobs import Job, Workload
from queueapp.errors import DuctorError
from queueapp.names import LANE_FORM, TENANT_FORM

VERSION = 1
HEADER = {"ductor_trace": VERSION}
MOST_US = 2**53
"""285 years: what a double still holds to the microsecond."""
WHOLE = {
    "at_us": (0, MOST_US),
    "service_us": (1, MOST_US),
    "priority": (-100, 100),
    "deadline_us": (0, MOST_US),
}
"""Field → least and most of its whole numbers."""
FORMS = {"tenant": TENANT_FORM, "lane": LANE_FORM}
NEEDED = ("at_us", "tenant", "service_us")
KNOWN = (*WHOLE, *FORMS, "cost")
DEFAULTS = {one.name: one.default for one in dataclasses.fields(Job) if one.name in KNOWN}
"""Field → what stands where it is left out, in the order in which fields are written."""
PART = ".part"
"""Behind the name of a file that is being written."""


class InvalidTrace(DuctorError, ValueError):
    """A recorded workload that cannot be replayed."""

    code = "invalid_trace"


def read(path: Path, *, seed: int, slots: int, jobs: int | None = None) -> Workload:
    """The recorded workload, or its first `jobs` jobs. Raises InvalidTrace, which names line, field, value and remedy.

    `seed` decides what fails in a simulation, nothing of the jobs. Of two tenants that send equally much none is the
    big one, nor is one that sends less than half.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            found = list(_jobs(lines, str(path), jobs))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidTrace(f"{path} cannot be read ({error}): name a trace in JSON lines.") from error
    if not found:
        raise InvalidTrace(f"{path} has no jobs: record a trace that has some.")
    sent: dict[str, int] = {}
    for job in found:
        sent[job.tenant] = sent.get(job.tenant, 0) + 1
    busy_us, span_us = sum(job.service_us for job in found), max(1, found[-1].at_us - found[0].at_us)
    return Workload(
        name="trace",
        seed=seed,
        slots=slots,
        load=busy_us / (slots * span_us),
        jobs=found,
        big=next((tenant for tenant, count in sent.items() if 2 * count > len(found) and len(sent) > 1), None),
        tenants=tuple(sorted(sent)),
    )


def write(path: Path, jobs: Iterable[Job]) -> None:
    """Writes jobs, in order of arrival, as a trace that `read` reads.

    The file is whole or not there: it is written beside its place, and put there in the end. Raises InvalidTrace for a
    job that could not be read again, or a file that cannot be written.
    """
    part = path.with_name(path.name + PART)
    at_us = 0
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(json.dumps(HEADER) + "\n")
            for job in jobs:
                if job.at_us < at_us:
                    raise InvalidTrace(f"{path}: at_us is {job.at_us}, after {at_us}: sort the jobs by at_us.")
                at_us = job.at_us
                file.write(json.dumps(_written(job, str(path))) + "\n")
        os.replace(part, path)
    except OSError as error:
        raise InvalidTrace(f"{path} cannot be written ({error}): name a file in a directory of yours.") from error
    finally:
        with suppress(OSError):
            part.unlink()


def _written(job: Job, file: str) -> dict[str, Any]:
    """The fields of a job that are not as by default."""
    found = {name: value for name, default in DEFAULTS.items() if (value := getattr(job, name)) != default}
    for field, value in found.items():
        if (remedy := _remedy(field, value)) is not None:
            raise InvalidTrace(f"{file}: {field} is {repr(value)[:80]}: {remedy}.")
    return found


def _jobs(lines: Iterable[str], name: str, most: int | None) -> Iterator[Job]:
    at_us = 0
    for place, line in enumerate(lines, start=1):
        if most is not None and place > most + 1:
            return
        fields = _fields(line, f"{name}, line {place}")
        if place == 1:
            if fields != HEADER:
                raise InvalidTrace(
                    f"{name}, line 1 is {line.strip()[:80]!r}: a trace begins with {json.dumps(HEADER)}."
                )
            continue
        job = _job(place - 1, fields, f"{name}, line {place}")
        if job.at_us < at_us:
            raise InvalidTrace(f"{name}, line {place}: at_us is {job.at_us}, after {at_us}: sort the jobs by at_us.")
        at_us = job.at_us
        yield job


def _fields(line: str, where: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidTrace(f"{where} is no JSON ({error}): write one object on each line.") from error
    if not isinstance(fields, dict):
        raise InvalidTrace(f"{where} is {line.strip()[:80]!r}: write one object on each line.")
    return fields


def _job(number: int, fields: Mapping[str, Any], where: str) -> Job:
    for name in NEEDED:
        if name not in fields:
            raise InvalidTrace(f"{where}: {name} is missing: each job needs {', '.join(NEEDED)}.")
    for name, value in fields.items():
        if (remedy := _remedy(name, value)) is not None:
            raise InvalidTrace(f"{where}: {name[:80]} is {repr(value)[:80]}: {remedy}.")
    return Job(number=number, **fields)


def _remedy(name: str, value: Any) -> str | None:
    """What to do about a value; None for a good one."""
    if name not in KNOWN:
        return f"there is no such field, leave it out; there are {', '.join(KNOWN)}"
    if name in FORMS:
        good = isinstance(value, str) and FORMS[name].fullmatch(value) is not None
        return None if good else f"give a name of the form {FORMS[name].pattern}"
    if name == "cost":
        good = type(value) in (int, float) and 0 <= value < math.inf
        return None if good else "give a number from 0 on"
    least, most = WHOLE[name]
    return None if type(value) is int and least <= value <= most else f"give a whole number from {least} to {most}"

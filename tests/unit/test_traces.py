"""Recorded workloads: read and written as they are, with every field looked at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueapp.bench.workloads import Job, Workload
from queueapp.bench.workloads.traces import InvalidTrace, read, write

HEADER = '{"ductor_trace": 1}'
PLAIN: dict[str, Any] = {"at_us": 5, "tenant": "ant", "service_us": 10}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace"


def written(file: Path, *jobs: Any, header: str = HEADER) -> Workload:
    file.write_text("\n".join([header, *(job if isinstance(job, str) else json.dumps(job) for job in jobs)]) + "\n")
    return read(file, seed=3, slots=2)


def test_a_trace_is_the_jobs_as_they_came(file: Path) -> None:
    full = PLAIN | {"at_us": 7, "lane": "mail", "priority": -2, "deadline_us": 900, "cost": 1.5}
    found = written(file, PLAIN, full)
    assert found.jobs == [
        Job(number=1, at_us=5, tenant="ant", service_us=10),
        Job(number=2, at_us=7, tenant="ant", service_us=10, lane="mail", priority=-2, deadline_us=900, cost=1.5),
    ]
    assert (found.name, found.seed, found.slots, found.load, found.tenants) == ("trace", 3, 2, 5.0, ("ant",))


def test_the_first_jobs_can_be_read_alone(file: Path) -> None:
    written(file, PLAIN, PLAIN)
    file.write_text(file.read_text() + "no more JSON\n")
    assert len(read(file, seed=1, slots=1, jobs=2).jobs) == 2


@pytest.mark.parametrize(("senders", "big"), [("aab", "a"), ("aabb", None), ("aaa", None), ("aabcd", None)])
def test_the_big_tenant_sends_more_than_half(file: Path, senders: str, big: str | None) -> None:
    assert written(file, *(PLAIN | {"tenant": sender} for sender in senders)).big == big


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([], " has no jobs: record a trace that has some."),
        (["[1]"], ", line 2 is '[1]': write one object on each line."),
        (["{"], ", line 2 is no JSON ("),
        ([PLAIN, {"at_us": 5}], ", line 3: tenant is missing: each job needs at_us, tenant, service_us."),
        ([PLAIN | {"at": 1}], ", line 2: at is 1: there is no such field, leave it out; there are at_us, "),
        ([PLAIN | {"at_us": -1}], ", line 2: at_us is -1: give a whole number from 0 to 9007199254740992."),
        ([PLAIN | {"at_us": True}], ", line 2: at_us is True: give a whole number from 0"),
        ([PLAIN | {"service_us": 0}], ", line 2: service_us is 0: give a whole number from 1"),
        ([PLAIN | {"service_us": 1.5}], ", line 2: service_us is 1.5: give a whole number from 1"),
        ([PLAIN | {"priority": 101}], ", line 2: priority is 101: give a whole number from -100 to 100."),
        ([PLAIN | {"tenant": "=1+1"}], ", line 2: tenant is '=1+1': give a name of the form "),
        ([PLAIN | {"tenant": 3}], ", line 2: tenant is 3: give a name of the form "),
        ([PLAIN | {"lane": "\x1b[2J"}], ", line 2: lane is '\\x1b[2J': give a name of the form "),
        ([PLAIN | {"cost": -1}], ", line 2: cost is -1: give a number from 0 on."),
        (['{"at_us": 5, "tenant": "a", "service_us": 1, "cost": NaN}'], ", line 2: cost is nan: give a number from 0"),
        ([PLAIN, PLAIN | {"at_us": 4}], ", line 3: at_us is 4, after 5: sort the jobs by at_us."),
    ],
)
def test_an_error_names_line_field_value_and_remedy(file: Path, jobs: list[Any], told: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        written(file, *jobs)
    assert str(caught.value).startswith(f"{file}{told}")


@pytest.mark.parametrize("header", ['{"ductor_trace": 2}', json.dumps(PLAIN)])
def test_a_file_that_is_no_trace_of_this_version_is_refused(file: Path, header: str) -> None:
    with pytest.raises(InvalidTrace, match=r', line 1 is .*: a trace begins with {"ductor_trace": 1}\.$'):
        written(file, PLAIN, header=header)


def test_a_file_that_cannot_be_read_is_refused_by_name(file: Path) -> None:
    with pytest.raises(InvalidTrace, match=r"trace cannot be read \(.*\): name a trace in JSON lines\.$"):
        read(file, seed=1, slots=1)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidTrace, match="cannot be read"):
        read(file, seed=1, slots=1)


@given(st.text(max_size=200))
def test_no_text_does_more_than_be_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any"
    file.write_text(f"{HEADER}\n{text}", encoding="utf-8", errors="replace")
    with pytest.raises(InvalidTrace):
        read(file, seed=1, slots=1)


JOBS = st.lists(
    st.builds(
        Job,
        number=st.just(0),
        at_us=st.integers(0, 2**53),
        tenant=st.sampled_from(["ant", "bee:1"]),
        service_us=st.integers(1, 2**53),
        lane=st.sampled_from(["main", "_mail"]),
        priority=st.integers(-100, 100),
        deadline_us=st.integers(0, 2**53),
        cost=st.floats(0, allow_infinity=False, allow_nan=False),
    ),
    min_size=1,
)


@given(JOBS)
def test_what_is_written_is_read_as_it_was(tmp_path_factory: pytest.TempPathFactory, jobs: list[Job]) -> None:
    file = tmp_path_factory.getbasetemp() / "written"
    ordered = sorted(jobs, key=lambda job: job.at_us)
    write(file, ordered)
    assert read(file, seed=1, slots=1).jobs == [replace(job, number=n) for n, job in enumerate(ordered, start=1)]


def test_a_line_has_no_more_than_it_needs(file: Path) -> None:
    write(file, [Job(number=1, **PLAIN)])
    assert file.read_text().splitlines() == [HEADER, json.dumps(PLAIN)]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ({"at_us": 4}, ": at_us is 4, after 5: sort the jobs by at_us."),
        ({"service_us": 0}, ": service_us is 0: give a whole number from 1"),
        ({"tenant": "_ductor"}, ": tenant is '_ductor': give a name of the form "),
    ],
)
def test_what_could_not_be_read_again_is_not_written(file: Path, second: dict[str, Any], told: str) -> None:
    file.write_text("what was there before")
    with pytest.raises(InvalidTrace) as caught:
        write(file, [Job(number=1, **PLAIN), Job(number=2, **PLAIN | second)])
    assert str(caught.value).startswith(f"{file}{told}")
    assert [(path.name, path.read_text()) for path in file.parent.iterdir()] == [("trace", "what was there before")]


def test_a_file_that_cannot_be_written_is_told_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match=r"trace cannot be written \(.*\): name a file in a directory of yours\.$"):
        write(tmp_path / "nowhere" / "trace", [])

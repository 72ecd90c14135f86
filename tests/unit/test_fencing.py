"""FencedModel and fenced_update: a row refuses whoever is older than its last writer."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, connections, models, transaction
from django.db.models import F

from queueapp.errors import InvalidOption, StaleWriter, UnfencedWrite
from queueapp.fencing import Fence, FencedModel, fenced_update
from queueapp.store import ids

pytestmark = pytest.mark.django_db(transaction=True)

OLD, NEW = ids.new_id(), ids.new_id()


class Report(FencedModel):
    text = models.CharField(max_length=50, default="")
    pages = models.IntegerField(default=0)
    changed = models.DateTimeField(auto_now=True)

    class Meta:
        app_label = "tests_fencing"


@pytest.fixture(scope="module", autouse=True)
def _not_known_elsewhere() -> Iterator[None]:
    """No other test flushes or checks a model that has no migration."""
    yield
    from django.apps import apps

    apps.all_models.pop("tests_fencing", None)
    apps.clear_cache()


@pytest.fixture
def report(transactional_db: None) -> Iterator[Report]:
    with connection.schema_editor() as editor:
        editor.create_model(Report)
    try:
        yield Report.objects.create(text="new")
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Report)


def fence(lease: int, job: str = OLD) -> Fence:
    return Fence(lease, job_id=job)


def by_function(row: Report, given: Fence, text: str) -> None:
    fenced_update(row, given, text=text)


def by_query(row: Report, given: Fence, text: str) -> None:
    Report.objects.filter(pk=row.pk).fenced_update(given, text=text)


def by_save(row: Report, given: Fence, text: str) -> None:
    mine = Report.objects.get(pk=row.pk)
    mine.text = text
    mine.save(fence=given)


def by_named_fields(row: Report, given: Fence, text: str) -> None:
    mine = Report.objects.get(pk=row.pk)
    mine.text = text
    mine.save(fence=given, update_fields=["text"])


WAYS = pytest.mark.parametrize("write", [by_function, by_query, by_save, by_named_fields])
Write = Callable[[Report, Fence, str], None]


def stored(row: Report) -> str:
    text: str = Report.objects.get(pk=row.pk).text
    return text


@WAYS
def test_an_attempt_that_wakes_late_is_refused(report: Report, write: Write) -> None:
    write(report, fence(1), "first")
    write(report, fence(2), "second")
    with pytest.raises(StaleWriter, match=rf"Report {report.pk}: lease 2 of job {OLD} has written it, this is lease 1"):
        write(report, fence(1), "late")
    assert stored(report) == "second"


@WAYS
def test_the_same_attempt_may_repeat_itself(report: Report, write: Write) -> None:
    write(report, fence(2), "once")
    write(report, fence(2), "once")
    assert stored(report) == "once"


@WAYS
def test_a_newer_job_goes_before_every_lease_of_an_older_one(report: Report, write: Write) -> None:
    """Leases alone would let the old job in: its 7 is more than the new one's 1, and no row remembers each job."""
    write(report, fence(7), "old")
    write(report, fence(1, NEW), "new")
    with pytest.raises(StaleWriter, match=f"a job made after {OLD}"):
        write(report, fence(7), "late")
    with pytest.raises(StaleWriter):
        write(report, fence(8), "late, too")
    write(report, fence(2, NEW), "newest")
    assert stored(report) == "newest"


@WAYS
def test_what_is_refused_in_a_transaction_takes_nothing_else_along(report: Report, write: Write) -> None:
    write(report, fence(2), "second")
    with transaction.atomic():
        other = Report.objects.create(text="other")
        with pytest.raises(StaleWriter):
            write(report, fence(1), "late")
        assert stored(report) == "second"
    assert stored(other) == "other"


def test_a_query_writes_all_or_none(report: Report) -> None:
    other = Report.objects.create(text="other")
    fenced_update(other, fence(3), text="third")
    with pytest.raises(StaleWriter, match=f"Report {other.pk}"):
        fenced_update(Report.objects.all(), fence(2), text="both")
    assert (stored(report), stored(other)) == ("new", "third")
    assert Report.objects.fenced_update(fence(3), text="both") == 2
    assert Report.objects.filter(text="nobody").fenced_update(fence(4), text="x") == 0


def test_without_values_it_only_raises_the_fence(report: Report) -> None:
    fenced_update(report, fence(2))
    assert (report.fence_job, report.fence, report.text) == (ids.made_order(OLD), 2, "new")
    with pytest.raises(StaleWriter):
        fenced_update(report, fence(1))


def test_the_instance_has_what_was_written(report: Report) -> None:
    fenced_update(report, fence(1), text="x", pages=F("pages") + 2)
    assert (report.text, report.pages, report.fence) == ("x", 2, 1)
    stale = Report.objects.get(pk=report.pk)
    fenced_update(report, fence(2), text="y")
    with pytest.raises(StaleWriter):
        fenced_update(stale, fence(1), text="z")
    assert (stale.text, stale.fence) == ("x", 1)


def test_a_row_that_is_gone_is_not_called_stale(report: Report) -> None:
    Report.objects.all().delete()
    with pytest.raises(Report.DoesNotExist):
        fenced_update(report, fence(1), text="x")
    with pytest.raises(Report.DoesNotExist):
        report.save(fence=fence(1))


def test_nothing_goes_past_the_fence_unsaid(report: Report) -> None:
    acts: list[Callable[[], Any]] = [
        report.save,
        lambda: Report.objects.update(text="x"),
        lambda: Report.objects.filter(pk=report.pk).update(text="x"),
        lambda: Report.objects.update_or_create(pk=report.pk, defaults={"text": "x"}),
        lambda: Report.objects.bulk_update([report], ["text"]),
        lambda: Report.objects.bulk_create(
            [Report(pk=report.pk)], update_conflicts=True, update_fields=["text"], unique_fields=["id"]
        ),
    ]
    for act in acts:
        with pytest.raises(UnfencedWrite):
            act()
    with pytest.raises(Exception, match=r"(?i)unique"):
        Report(pk=report.pk, text="x").save()
    assert stored(report) == "new"


def test_whoever_says_so_writes_past_it_and_leaves_it(report: Report) -> None:
    stale = Report.objects.get(pk=report.pk)
    fenced_update(report, fence(2), text="second")
    stale.text = "by hand"
    stale.save(fence=None)
    assert Report.objects.unfenced_update(pages=3) == 1
    with pytest.raises(InvalidOption):
        Report.objects.unfenced_update(fence=0)
    now = Report.objects.get(pk=report.pk)
    assert (now.text, now.pages, now.fence) == ("by hand", 3, 2)


def test_a_new_row_may_come_with_a_fence(report: Report) -> None:
    made = Report(text="made")
    made.save(fence=fence(2))
    with pytest.raises(StaleWriter):
        fenced_update(Report.objects.get(pk=made.pk), fence(1), text="x")


def test_a_plain_number_is_no_fence(report: Report) -> None:
    plain: Any = 3
    for act in (
        lambda: fenced_update(report, plain, text="x"),
        lambda: Report.objects.fenced_update(plain, text="x"),
        lambda: report.save(fence=plain),
        lambda: fenced_update(report, fence(1), fence_job=0),
    ):
        with pytest.raises(InvalidOption):
            act()


def test_a_fence_is_the_number_of_its_lease(report: Report) -> None:
    one = fence(3)
    assert one == 3
    for same in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert (same, same.job_id, same.job) == (3, OLD, one.job)


def test_two_that_write_at_once_leave_the_newer(report: Report) -> None:
    """The older one waits for the row, and looks at what the newer one has committed."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite lets one transaction write at a time")
    heard: list[str] = []

    def late() -> None:
        try:
            fenced_update(Report.objects.get(pk=report.pk), fence(1), text="late")
        except StaleWriter:
            heard.append("stale")
        finally:
            connections.close_all()

    thread = threading.Thread(target=late)
    with transaction.atomic():
        fenced_update(report, fence(2), text="second")
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(30)
    assert (heard, stored(report)) == (["stale"], "second")


def test_ids_stand_in_the_order_in_which_they_were_made() -> None:
    made = [ids.new_id() for _ in range(3000)]
    orders = [ids.made_order(each) for each in made]
    assert orders == sorted(set(orders))
    assert all(0 < order < 2**63 for order in orders)

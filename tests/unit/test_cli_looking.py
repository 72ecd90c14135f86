"""`ductor dlq`, `jobs`, `status`: whole groups of dead letters at a time, told before it is done, JSON where asked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.utils import timezone

from queueapp.cli import status
from queueapp.cli.console import Console, Progress
from queueapp.codec import encode_arguments
from queueapp.errors import StoreMisconfigured, StoreUnavailable
from queueapp.inspection import deadletters
from queueapp.inspection.jobs import STATES
from queueapp.inspection.waits import _sweeps
from queueapp.models import DeadLetterInspection, Installation, OutboxEntry
from queueapp.store import shards
from queueapp.store.configuration import PoolConf, Rate, ScopeLimits
from queueapp.store.family_records import Node
from queueapp.store.ids import new_child_id, new_id
from queueapp.store.records import NewJob
from tests.unit.inspection.conftest import Scene

pytestmark = pytest.mark.django_db

ONE, TWO = "0123456789ab", "ba9876543210"


@pytest.fixture
def scene(store: Any, shard_keys: Any) -> Scene:
    return Scene(store, shard_keys)


def ductor(*arguments: str) -> str:
    out = io.StringIO()
    call_command("ductor", *arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def as_json(*arguments: str) -> Any:
    return json.loads(ductor(*arguments, "--json"))


def test_lists_by_each_condition(scene: Scene) -> None:
    scene.kill(2, group=ONE)
    scene.kill(1, group=TWO, tenant="zeta", task="shop.tasks.mail")
    scene.bury(3, reason="looks_wrong")
    for option, value, number in (
        ("--group", ONE, 2),
        ("--tenant", "zeta", 1),
        ("--task", "shop.tasks.pay", 5),
        ("--reason", "looks_wrong", 3),
    ):
        [page] = as_json("dlq", "list", option, value)
        assert (len(page["letters"]), page["total"], page["exact"]) == (number, number, True), option
    [page] = as_json("dlq", "list", "--group", TWO)
    assert page["letters"][0]["group"] == TWO
    assert ONE in ductor("dlq", "list", "--group", ONE)


def test_a_list_goes_on_as_of_its_moment(scene: Scene) -> None:
    scene.kill(5)
    first = ductor("dlq", "list", "--pool", "default", "--count", "2").splitlines()
    assert first[-1].startswith("2 of 5; go on with --offset 2 --as-of 1")
    [page] = as_json("dlq", "list", "--count", "2")
    more = ("dlq", "list", "--offset", str(page["next_offset"]), "--as-of", str(page["as_of_ms"]))
    [further] = as_json(*more)
    assert len({letter["id"] for letter in page["letters"] + further["letters"]}) == 5


def test_a_list_that_was_not_looked_through_says_so(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadletters, "LOOKS", 5)
    scene.bury(30, task="shop.tasks.one")
    scene.bury(30, task="shop.tasks.two")
    text = ductor("dlq", "list", "--pool", "default", "--task", "shop.tasks.one", "--count", "3")
    assert text.startswith("0 of up to 60 that were looked through; go on with --offset 20 --as-of")


def test_groups(scene: Scene) -> None:
    assert ductor("dlq", "groups").strip() == "No dead letters."
    scene.kill(3, group=ONE)
    scene.kill(1, group=TWO, task="shop.tasks.mail")
    text = ductor("dlq", "groups", "--pool", "default", "--count", "1")
    assert "1 of 2 groups of default; go on with --offset 1" in text
    found = as_json("dlq", "groups")
    assert {(group["group"], group["count"], group["task"], group["error"]) for group in found} == {
        (ONE, 3, "shop.tasks.pay", "builtins.ValueError"),
        (TWO, 1, "shop.tasks.mail", "builtins.ValueError"),
    }


def test_export_is_a_line_each_without_contents_unless_asked_for(scene: Scene) -> None:
    payload = encode_arguments([], {"password": "hunter2", "rows": 3})
    ids = scene.kill(130, payload=payload)
    scene.kill(2, tenant="zeta")
    lines = ductor("dlq", "export", "--tenant", "acme").splitlines()
    assert sorted(json.loads(line)["id"] for line in lines) == sorted(ids)
    assert "kwargs" not in json.loads(lines[0])
    assert "bad row" not in "".join(lines), "an error's message may quote an argument"
    text = ductor("dlq", "export", "--tenant", "acme", "--payload")
    assert json.loads(text.splitlines()[0])["kwargs"] == {"password": "********", "rows": 3}
    assert "hunter2" not in text
    rows = DeadLetterInspection.objects.filter(action="exported")
    assert (rows.count(), rows.values("job_id").distinct().count()) == (260, 130)


def test_retry_and_discard_by_group_are_written_down(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "kim")
    scene.kill(3, group=ONE)
    scene.kill(2, group=TWO)
    assert ductor("dlq", "retry", "--group", ONE, "--yes", "--note", "fixed").strip() == "3 retried."
    assert ductor("dlq", "discard", "--group", TWO, "--yes").strip() == "2 discarded."
    rows = DeadLetterInspection.objects.order_by("pk")
    assert [(row.action, row.by, row.note) for row in rows] == [("retried", "kim", "fixed")] * 3 + [
        ("discarded", "kim", "")
    ] * 2


def test_a_dry_run_counts_and_changes_nothing(scene: Scene) -> None:
    ids = scene.kill(3, group=ONE)
    scene.kill(2, tenant="zeta", group=TWO)
    before = as_json("dlq", "list")
    for arguments, what in (
        (("retry", "--group", ONE), "Would retry 3 dead letters of default."),
        (("discard", "--tenant", "zeta", "--group", TWO), "Would discard 2 dead letters of default."),
        (("discard", "--all"), "Would discard 5 dead letters of default."),
        (("retry", ids[0]), "Would retry 1 dead letter."),
    ):
        assert ductor("dlq", *arguments, "--dry-run").strip() == f"{what} Nothing was changed."
    [after] = as_json("dlq", "list")
    assert after["letters"] == before[0]["letters"]
    assert not DeadLetterInspection.objects.exists()


def test_what_died_after_the_question_is_left_alone(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.kill(2)

    def answer(question: str) -> str:
        asked_ms = shards.reads("default").behind("dead")
        while shards.reads("default").behind("dead") <= asked_ms:
            pass  # until the server's clock has moved on
        scene.kill(3, tenant="later")
        return "y"

    monkeypatch.setattr("builtins.input", answer)
    assert ductor("dlq", "discard", "--all").strip() == "2 discarded."
    [page] = as_json("dlq", "list")
    assert page["total"] == 3


def test_by_hand_asks_once_and_does_nothing_without_a_yes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = scene.kill()
    asked: list[str] = []

    def enter(question: str) -> str:
        asked.append(question)
        return ""

    monkeypatch.setattr("builtins.input", enter)
    assert ductor("dlq", "retry", one).strip() == "Nothing was changed."
    assert asked == ["Retry 1 dead letter? [y/N] "]


def test_ids_that_are_none_are_an_error(scene: Scene) -> None:
    with pytest.raises(CommandError, match="No job is called 'nonsense'; `ductor jobs` and `dlq list` show the ids"):
        ductor("dlq", "retry", "nonsense", "--yes")


def test_jobs(scene: Scene) -> None:
    scene.add(5, tenant="a")
    scene.lease(2)
    text = ductor("jobs", "default")
    assert "w.1" in text
    assert len(text.splitlines()) == 3
    page = as_json("jobs", "default", "--state", "pending", "--tenant", "a", "--count", "2")
    assert (page["total"], len(page["jobs"])) == (3, 2)
    further = as_json("jobs", "default", "--state", "pending", "--tenant", "a", f"--cursor={page['next_cursor']}")
    assert len({job["id"] for job in page["jobs"] + further["jobs"]}) == 3
    text = ductor("jobs", "default", "--state", "pending", "--count", "1")
    assert text.splitlines()[-1] == "1 of 3; go on with --cursor=1"
    by_name = as_json("jobs", "default", "--state", "pending", "--count", "1")
    assert as_json("jobs", "--state", "pending", "--count", "1")["pool"] == by_name["pool"]
    assert ductor("jobs", "default", "--state", "ended").strip() == "No ended jobs."
    with pytest.raises(CommandError, match="'nowhere' is not a known pool"):
        ductor("jobs", "nowhere")


def came_in(scene: Scene) -> None:
    scene.store.configure(1, pool=PoolConf(policy="fifo", dispatch="scheduled", window=5))
    scene.add()


def chosen(scene: Scene) -> None:
    came_in(scene)
    scene.store.register("w.1", {"slots": "2"}, 60_000)
    term = scene.store.lead_acquire("me", "nonce", 60_000)
    scene.store.admit(term, [(entry.entry, entry.id, float(entry.seq)) for entry in scene.store.read_ingress("me")])
    scene.store.dispatch(term, 10, 10)


def parked(scene: Scene) -> None:
    scene.store.configure(1, scopes=[ScopeLimits(tenant="acme", rate=Rate(rate=1, period_ms=3_600_000))])
    given: dict[str, Any] = {"task": "shop.tasks.pay", "tenant": "acme", "payload": encode_arguments([1], {})}
    scene.store.enqueue([NewJob(id=new_id(), fingerprint="f" * 16, parks=True, **given) for _ in range(2)])


def waits_for_a_child(scene: Scene) -> None:
    scene.add()
    [job] = scene.lease()
    child = NewJob(id=new_child_id(), task="shop.tasks.pay", tenant="acme", payload=b"{}", fingerprint="f" * 16)
    scene.store.add_children(job.id, [Node(job=child, parent=job.id)], attempts=job.attempts)


@pytest.mark.parametrize("state", STATES)
def test_jobs_of_every_state_have_columns(scene: Scene, state: str) -> None:
    make: dict[str, Callable[[], object]] = {
        "ingress": lambda: came_in(scene),
        "pending": scene.add,
        "ready": lambda: chosen(scene),
        "scheduled": lambda: scene.add(delay_ms=60_000),
        "backlog": lambda: parked(scene),
        "active": lambda: (scene.add(), scene.lease()),
        "waiting": lambda: waits_for_a_child(scene),
        "moving": lambda: scene.store.depart(scene.inner(scene.add()), "abcdef.0"),
        "dead": scene.kill,
        "ended": scene.end,
    }
    make[state]()
    head, line = ductor("jobs", "default", "--state", state).splitlines()
    assert head.startswith("id ")
    assert "shop.tasks.pay" in line


def test_a_job_that_was_told_to_stop_says_so(scene: Scene) -> None:
    [job_id] = scene.add()
    scene.lease(1)
    assert as_json("job", job_id)["cancelling"] is None
    assert "cancelling" not in ductor("job", job_id)
    scene.store.cancel(scene.inner([job_id]))
    told = as_json("job", job_id)
    assert (told["state"], told["outcome"], told["cancelling"]) == ("active", None, True)
    assert "cancelling" in ductor("job", job_id)


def test_a_job_shows_its_group_and_times(scene: Scene) -> None:
    (one,) = scene.kill(1, group=ONE)
    found = as_json("job", one)
    assert found["group"] == ONE
    assert found["waited_s"] >= 0
    assert found["ran_s"] >= 0
    assert ONE in ductor("job", one)


def test_status_tells_the_longest_wait(scene: Scene) -> None:
    _sweeps.clear()
    line = ductor("status", "default").splitlines()[1]
    assert " s " not in line
    scene.add(tenant="a")
    head, line, *_ = ductor("status", "default").splitlines()
    assert "longest wait" in head
    assert " s " in line
    assert as_json("status", "default")[0]["oldest_wait_exact"] is True


def test_status_tells_what_waits_in_the_outbox(scene: Scene) -> None:
    def keep(name: str, state: str, pool: str = "default") -> None:
        OutboxEntry.objects.create(
            job_id=name, pool=pool, tenant="a", task="t", job={}, payload=b"", state=state, due=timezone.now()
        )

    keep("a", "waiting")
    keep("b", "waiting")
    keep("c", "refused")
    keep("d", "waiting", "elsewhere")
    text = ductor("status", "default")
    assert "default: 2 jobs wait in the outbox for the store; no scheduler runs that would send them." in text
    assert "default: 1 jobs in the outbox were refused for good" in text
    scene.store.lead_acquire("me", "nonce", 60_000)
    assert "a scheduler sends them" in ductor("status", "default")
    [pool] = as_json("status", "default")
    assert (pool["outbox_waiting"], pool["outbox_refused"]) == (2, 1)


def status_with_an_outage() -> tuple[str, str]:
    """What `ductor status` prints, and what it ends with."""
    out = io.StringIO()
    with pytest.raises(CommandError) as raised:
        call_command("ductor", "status", stdout=out, stderr=io.StringIO())
    return out.getvalue(), str(raised.value)


def test_status_without_a_store_tells_what_the_outbox_keeps(settings: Any) -> None:
    OutboxEntry.objects.create(
        job_id="a", pool="mail", tenant="a", task="t", job={}, payload=b"", state="waiting", due=timezone.now()
    )
    settings.DUCTOR = {**settings.DUCTOR, "REDIS_URL": "redis://127.0.0.1:1/0", "POOLS": {"mail": {}, "other": {}}}
    text, fault = status_with_an_outage()
    assert (
        text.strip()
        == "mail: 1 jobs wait in the outbox for the store; a scheduler sends them when the store can be used again."
    )
    assert "cannot be reached" in fault
    assert fault.count("cannot be reached") == 1, "once, not for each pool"

    out = io.StringIO()
    with pytest.raises(CommandError):
        call_command("ductor", "status", "--json", stdout=out)
    found = {pool["pool"]: pool for pool in json.loads(out.getvalue())}
    assert (found["mail"]["outbox_waiting"], found["other"]["outbox_waiting"]) == (1, 0)
    assert "cannot be reached" in found["other"]["fault"]
    assert "waiting" not in found["mail"]


def test_status_asks_a_store_that_hangs_once_and_not_for_each_pool(
    scene: Scene, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def hang(pool: str) -> Any:
        asked.append(pool)
        raise StoreUnavailable("The store did not answer in time.")

    monkeypatch.setattr(status, "pool_status", hang)
    settings.DUCTOR = {**settings.DUCTOR, "POOLS": {"mail": {}, "other": {}}}
    assert status_with_an_outage()[1] == "The store did not answer in time."
    assert len(asked) == 1


def test_status_tells_why_a_store_that_answers_takes_no_work(
    scene: Scene, redis_client: Any, shard_keys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = {"maxmemory": 100, "mem_not_counted_for_evict": 10}
    monkeypatch.setattr(redis.Redis, "info", lambda self, section: memory)
    redis_client.set(f"{shard_keys.namespace}:owner", "somebody-else")
    monkeypatch.setattr(
        redis.Redis,
        "info",
        lambda self, section: {"maxmemory": 100, "used_memory": 111, "mem_not_counted_for_evict": 10},
    )
    text, fault = status_with_an_outage()
    assert text.startswith("pool "), "it is shown all the same"
    assert "is full" in fault
    assert "belongs to installation somebody" in fault
    assert not Installation.objects.exists(), "looking makes no row"

    redis_client.delete(f"{shard_keys.namespace}:owner")
    monkeypatch.setattr(
        redis.Redis,
        "info",
        lambda self, section: {"maxmemory": 100, "used_memory": 110, "mem_not_counted_for_evict": 10},
    )
    assert ductor("status").startswith("pool ")

    def replica(pool: str) -> None:
        raise StoreMisconfigured("a read-only replica")

    monkeypatch.setattr(status, "check_scripts", replica)
    assert status_with_an_outage()[1] == "a read-only replica"


def test_status_without_a_database_tells_what_the_store_knows(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> list[str]:
        raise OperationalError("connection refused")

    scene.kill(3, group=ONE)
    monkeypatch.setattr(status, "declared_pools", away)
    text, fault = status_with_an_outage()
    assert "default" in text
    assert "connection refused" in fault


def test_status_says_what_stands_still_without_a_scheduler(store: object) -> None:
    assert "What stands still: relay of the outbox, sync repair of saved limits" in ductor("status")


def test_work_over_a_second_says_how_far_it_is() -> None:
    said: list[str] = []
    now = [0.0]
    progress = Progress(said.append, "of 900 done", clock=lambda: now[0])
    for moment in (0.2, 0.9, 1.1, 1.9, 2.2):
        now[0] = moment
        assert progress.add(100) == 100
    assert said == ["  300 of 900 done", "  500 of 900 done"]


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert Console(print, print).user == ""

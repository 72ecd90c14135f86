"""Cases that other queues met with Django's database: C130, C134, C135, C136. On SQLite and on PostgreSQL alike."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import Group
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from queueapp import enqueue_many, task
from queueapp.cli.worker import WorkerCommand, WorkerProcess
from queueapp.compat import TaskResultStatus
from queueapp.producer.results import DuctorResult
from queueapp.store.reads import Reads
from queueapp.worker import slots
from queueapp.worker.loop import WorkerOptions
from tests.integration.conftest import ROOT, record, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

PATIENCE_S = 30.0
started, may_go = threading.Event(), threading.Event()
sessions: list[Any] = []


class Rollback(Exception):
    """Rolls a block back."""


@task
def count(name: str) -> int:
    return Group.objects.filter(name=name).count()


@task
def count_in(alias: str, name: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM things WHERE name = %s", [name])
        return int(cursor.fetchone()[0])


@task
def long_and_silent() -> str:
    """Uses the database, and then for a long time no more."""
    Group.objects.count()
    sessions.append(connection.connection)
    started.set()
    assert may_go.wait(PATIENCE_S)
    return "went"


results: dict[str, DuctorResult] = {}


def view(request: HttpRequest, how: str) -> HttpResponse:
    """Makes a row, enqueues, and takes its time, while workers wait for work."""
    results[how] = add = count.enqueue(Group.objects.create(name=how).name)
    time.sleep(0.5)
    if how == "rollback":
        raise Rollback
    return HttpResponse(add.state)


urlpatterns = [path("<how>", view)]


@pytest.fixture(autouse=True)
def _afresh() -> None:
    started.clear()
    may_go.clear()
    sessions.clear()
    results.clear()


@contextmanager
def working(slots: int = 2) -> Iterator[None]:
    """A worker of this process, as `manage.py worker` runs it, waiting for work."""
    process = WorkerProcess(WorkerCommand(options=WorkerOptions(slots=slots, grace_ms=10_000)))
    codes: list[int] = []

    def run() -> None:
        try:
            codes.append(process.run())
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        until(lambda: process._worker, what="the worker to start")
        yield
    finally:
        may_go.set()
        process.stop()
        thread.join(PATIENCE_S)
    assert codes == [0]


class TestC130:
    """A job starts before the transaction that made its row commits: DoesNotExist, now and then."""

    @pytest.fixture(autouse=True)
    def _atomic_requests(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)

    def test_the_body_sees_the_row_of_a_slow_view(self, store: Any, client: Client) -> None:
        with working():
            assert client.get("/commit").content == b"deferred"
            assert results["commit"].wait(PATIENCE_S).return_value == 1

    def test_a_view_that_rolls_back_enqueues_nothing(self, store: Any, reads: Reads, client: Client) -> None:
        with working():
            with pytest.raises(Rollback):
                client.get("/rollback")
            assert count.enqueue("rollback").wait(PATIENCE_S).return_value == 0
        assert results["rollback"].state == "deferred"
        assert reads.overview().stats["enqueued"] == 1, "the one that asked"

    def test_a_nested_block_that_rolls_back_takes_its_jobs_alone(self, store: Any, reads: Reads) -> None:
        with working():
            with transaction.atomic():
                Group.objects.create(name="outer")
                outer = count.enqueue("outer")
                with suppress(Rollback), transaction.atomic():
                    Group.objects.create(name="inner")
                    inner = count.enqueue("inner")
                    raise Rollback
            assert outer.wait(PATIENCE_S).return_value == 1
        assert inner.state == "deferred"
        assert reads.overview().stats["enqueued"] == 1

    @pytest.mark.parametrize("with_option", [False, True])
    def test_the_commit_of_the_right_database_is_waited_for(
        self, store: Any, second_database: str, with_option: bool
    ) -> None:
        with connections[second_database].cursor() as cursor:
            cursor.execute("PRAGMA journal_mode=WAL")
            cursor.execute("CREATE TABLE things (name text)")
        waits = count_in.using(database=second_database) if with_option else count_in
        with working():
            with transaction.atomic(using=second_database):
                with connections[second_database].cursor() as cursor:
                    cursor.execute("INSERT INTO things VALUES ('row')")
                with transaction.atomic():
                    result = waits.enqueue(second_database, "row")
                time.sleep(0.5)
                assert result.state == "deferred"
            assert result.wait(PATIENCE_S).return_value == 1

    def test_outside_of_a_transaction_it_goes_out_at_once(self, store: Any) -> None:
        Group.objects.create(name="plain")
        with working():
            result = count.enqueue("plain")
            assert result.state == "pending"
            assert result.wait(PATIENCE_S).return_value == 1


class TestC134:
    """A job of many hours loses its database connection in mid-run, and the final status write fails."""

    @pytest.mark.parametrize("max_age", [0, 60])
    def test_the_job_has_succeeded_and_the_next_one_finds_the_database(
        self, store: Any, reads: Reads, monkeypatch: pytest.MonkeyPatch, max_age: int
    ) -> None:
        if max_age and connection.vendor == "sqlite":
            pytest.skip("a session of SQLite ends with nobody's server, so Django never looks whether one is alive")
        for name, value in {"CONN_MAX_AGE": max_age, "CONN_HEALTH_CHECKS": bool(max_age)}.items():
            monkeypatch.setitem(connections.settings["default"], name, value)
        with working(slots=1):
            result = long_and_silent.enqueue()
            assert started.wait(PATIENCE_S)
            self.cut(sessions[0])
            may_go.set()

            assert result.wait(PATIENCE_S).return_value == "went"
            assert count.enqueue("nobody").wait(PATIENCE_S).return_value == 0
        assert record(reads, result.id).error_count == 0
        assert result.status == TaskResultStatus.SUCCESSFUL

    @staticmethod
    def cut(session: Any) -> None:
        """End a session from outside, as a database that restarts does."""
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [session.info.backend_pid])
        else:
            session.close()


class TestC135:
    """A connection opened in the parent is shared after a fork: 'decryption failed', 'already closed'."""

    def test_no_socket_is_used_in_two_processes(
        self, store: Any, reads: Reads, process_environment: dict[str, str], tmp_path: Path
    ) -> None:
        ids = [str(outcome.id) for outcome in enqueue_many(count.bind("nobody") for _ in range(40))]
        settings = {
            **process_environment,
            "DATABASE_URL": database_url(),
            "DJANGO_SETTINGS_MODULE": "tests.integration.process_settings",
        }
        forking = [sys.executable, "-m", "tests.integration.forking", str(tmp_path / "used")]
        # A session of their own, so that whatever of them hangs ends with the test.
        process = subprocess.Popen(forking, cwd=ROOT, env=settings, stderr=subprocess.PIPE, start_new_session=True)
        try:
            _, errors = process.communicate(timeout=60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, errors.decode()

        users: dict[str, set[int]] = defaultdict(set)
        for line in (tmp_path / "used").read_text().splitlines():
            pid, kind, socket = json.loads(line)
            users[f"{kind} {socket}"].add(pid)
        assert len({pid for pids in users.values() for pid in pids}) == 5, "a parent and four children"
        assert {socket: pids for socket, pids in users.items() if len(pids) > 1} == {}
        kinds = {"redis", "db"} if connection.vendor == "postgresql" else {"redis"}
        assert {user.split()[0] for user in users} == kinds
        assert {record(reads, job_id).outcome for job_id in ids} == {"completed"}


class TestC136:
    """Many worker threads each keep a database connection for life, and the database runs out of them."""

    def test_idle_slots_hold_no_sessions(
        self, store: Any, monkeypatch: pytest.MonkeyPatch, made: Mapping[int, Any]
    ) -> None:
        monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 3600)
        monkeypatch.setattr(slots, "IDLE_S", 0.3)
        Group.objects.count()
        before = count_sessions(made)
        with working(slots=32):
            outcomes = enqueue_many(count.bind("nobody") for _ in range(200))
            for outcome in outcomes:
                assert outcome.result is not None
                outcome.result.wait(PATIENCE_S)
            assert 2 < len(made) <= 2 + 32, "two for the threads that started it, and no more than there are slots"
            until(lambda: count_sessions(made) <= before, what="sessions of idle slots to be closed")
            assert count.enqueue("nobody").wait(PATIENCE_S).return_value == 0, "and to be opened again"

    @pytest.fixture
    def made(self) -> Iterator[Mapping[int, Any]]:
        """What Django connected through in this process: an object a thread, which holds one session at most."""
        connection.close()
        made: dict[int, Any] = {}

        def note(connection: Any, **_: Any) -> None:
            made[id(connection)] = connection

        connection_created.connect(note)
        yield made
        connection_created.disconnect(note)


def count_sessions(made: Mapping[int, Any]) -> int:
    """How many sessions are open: PostgreSQL says so itself, of SQLite the process knows.

    A server that is busy ends a session a while after its client did, and has processes of its own in the list.
    """
    if connection.vendor != "postgresql":
        return sum(each.connection is not None for each in [*made.values()])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend'"
        )
        return int(cursor.fetchone()[0])


def database_url() -> str:
    """The tests' own database, for a process."""
    values = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite:///{values['NAME']}"
    user = f"{values['USER']}:{values['PASSWORD']}@" if values["USER"] else ""
    # As a parameter the host may also be the directory of a socket.
    return f"postgres://{user}/{values['NAME']}?host={quote(values['HOST'])}&port={values['PORT']}"


assert os.name == "posix", "these fork"

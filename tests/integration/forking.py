"""A process of C135: it works with store and database, forks four children that do, and goes on itself.

Each socket that a process writes to is noted as a line of JSON (pid, kind, inode) in the file that is named. The
children run the jobs that wait, as `manage.py worker --batch` does.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import django


def main(used: Path) -> int:
    django.setup()

    from django.db import connections
    from django.db.backends.signals import connection_created
    from redis.connection import AbstractConnection

    from queueapp.cli.worker import WorkerCommand, WorkerProcess
    from queueapp.errors import WaitTimeout
    from queueapp.inspection.overview import pool_status
    from queueapp.scheduler.duties.relay import Relay
    from queueapp.scheduler.duties.sync_repair import SyncRepair
    from queueapp.worker.loop import WorkerOptions
    from tests.integration.test_djdb_cases import count

    def note(kind: str, descriptor: int) -> None:
        line = json.dumps([os.getpid(), kind, os.fstat(descriptor).st_ino]) + "\n"
        with used.open("a") as file:
            file.write(line)

    send: Any = AbstractConnection.send_packed_command

    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self._sock is None:
            self.connect()
        note("redis", self._sock.fileno())
        return send(self, *args, **kwargs)

    AbstractConnection.send_packed_command = noted  # type: ignore[method-assign]  # stands in for it in this test

    def on_connection(connection: Any, **_: Any) -> None:
        if connection.vendor == "postgresql":

            def execute(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
                note("db", context["connection"].connection.fileno())
                return run(sql, params, many, context)

            connection.execute_wrappers.append(execute)

    connection_created.connect(on_connection, weak=False)

    def maintain() -> None:
        SyncRepair().run()
        Relay().run()
        pool_status("default")

    # What a site does before its server forks: checks, maintenance, a job, somebody who waits for it.
    maintain()
    result = count.enqueue("nobody")
    with suppress(WaitTimeout):
        result.wait(0)
    count.func("nobody")
    # Whoever forks closes the database's connections first, as Django has it; the store's are Ductor's business.
    connections.close_all()

    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = WorkerProcess(WorkerCommand(options=WorkerOptions(slots=2, batch=True))).run()
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    maintain()
    assert result.wait(30).return_value == 0
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

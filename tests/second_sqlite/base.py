"""Django's SQLite, open to a test that did not name its alias: the alias exists for that test alone (conftest.py)."""

from __future__ import annotations

from django.db.backends.sqlite3 import base


class DatabaseWrapper(base.DatabaseWrapper):
    def ensure_connection(self) -> None:
        if self.connection is None:
            with self.wrap_database_errors:
                self.connect()

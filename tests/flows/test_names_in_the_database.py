"""PostgreSQL keeps tables and indexes in one list of names: none may be another's, which SQLite would not mind."""

from __future__ import annotations

from collections import Counter

from django.apps import apps


def test_no_index_is_called_as_a_table() -> None:
    models = list(apps.get_app_config("ductor_flows").get_models())
    names = [model._meta.db_table for model in models]
    for model in models:
        names += [each.name for each in (*model._meta.indexes, *model._meta.constraints)]
    assert [name for name, times in Counter(names).items() if times > 1] == []

"""The statements of the way from one step to the next, whose text is made once for each shape and kept.

The ORM makes it anew for each call, which takes several times as long as the database does: most of what a step cost
(`manage.py bench flows`). What is not on that way uses the ORM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeVar

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper

from queueapp.conf import settings

M = TypeVar("M", bound=models.Model)
Model = type[models.Model]
Values = Mapping[str, Any]
"""Column → value; of a foreign key its id."""
Instead = Mapping[str, tuple[str, Sequence[Any]]]
"""Column → (SQL, its parameters) that is read in its place; "{name}" in the SQL stands for a column."""
Convert = Callable[[Any, BaseDatabaseWrapper], Any]
AS_THEY_ARE = (models.BooleanField, models.CharField, models.ForeignKey, models.IntegerField, models.TextField)
"""Fields whose values a database takes as Python has them."""
MOST_PARAMETERS = 1_000
"""Of a statement that takes more the more rows there are; fewer where the database says so."""


class Statement(NamedTuple):
    """A text, and what is done to the parameters, or to the columns that it gives, in these places."""

    text: str
    converted: Sequence[tuple[int, Convert]]


def update(model: Model, changes: Values, where: Values, unless: Values | None = None) -> int:
    """How many rows have been changed: those that have all the values of `where`, and none of `unless`."""
    connection, other = _connection(), unless or {}
    statement = _update(connection.alias, model, tuple(changes), tuple(where), tuple(other))
    parameters = [*changes.values(), *where.values(), *other.values()]
    with connection.cursor() as cursor:
        cursor.execute(statement.text, _converted(parameters, statement, connection))
        return int(cursor.rowcount)


def insert(model: Model, rows: Sequence[Values]) -> list[int]:
    """Inserts rows; columns that one does not name get their defaults. Their ids, in their order, where the database
    tells them."""
    connection, ids = _connection(), list[int]()
    columns = _columns(model)
    page = max(1, _most(connection) // len(columns))
    for first in range(0, len(rows), page):
        chunk = rows[first : first + page]
        statement = _insert(connection.alias, model, len(chunk))
        parameters = [row.get(name, default) for row in chunk for name, default in columns]
        with connection.cursor() as cursor:
            cursor.execute(statement.text, _converted(parameters, statement, connection))
            if connection.features.can_return_rows_from_bulk_insert:
                ids += [row[0] for row in cursor.fetchall()]
    return ids


def select(
    model: Model,
    names: Sequence[str],
    where: Values,
    unless: Values | None = None,
    instead: Instead | None = None,
) -> list[Sequence[Any]]:
    """These columns of the rows that have all the values of `where`, and none of `unless`."""
    connection, other, replaced = _connection(), unless or {}, instead or {}
    shape = tuple((name, sql) for name, (sql, _) in replaced.items())
    statement = _select(connection.alias, model, tuple(names), tuple(where), tuple(other), shape)
    own = [parameter for name in names if name in replaced for parameter in replaced[name][1]]
    with connection.cursor() as cursor:
        cursor.execute(statement.text, [*own, *where.values(), *other.values()])
        rows = cursor.fetchall()
    return [_converted(list(row), statement, connection) for row in rows] if statement.converted else list(rows)


def delete(model: Model, ids: Sequence[int]) -> None:
    """The rows with these ids, which no others refer to."""
    connection = _connection()
    page = _most(connection)
    for first in range(0, len(ids), page):
        chunk = ids[first : first + page]
        with connection.cursor() as cursor:
            cursor.execute(_delete(connection.alias, model, len(chunk)), chunk)


def instance(model: type[M], where: Values, without: Sequence[str] = ()) -> M | None:
    """The row that has these values, if there is one. Columns `without` which it is wanted are read when asked for."""
    names = [field.attname for field in model._meta.concrete_fields if field.attname not in without]
    rows = select(model, names, where)
    return model.from_db(settings.database, names, rows[0]) if rows else None


def _connection() -> BaseDatabaseWrapper:
    return connections[settings.database]


def _most(connection: BaseDatabaseWrapper) -> int:
    return min(MOST_PARAMETERS, connection.features.max_query_params or MOST_PARAMETERS)


def _converted(values: list[Any], statement: Statement, connection: BaseDatabaseWrapper) -> list[Any]:
    for place, convert in statement.converted:
        if values[place] is not None:
            values[place] = convert(values[place], connection)
    return values


# -- texts -------------------------------------------------------------------------------------------------------------


@cache
def _columns(model: Model) -> Sequence[tuple[str, Any]]:
    """(column, its default) of all but the key."""
    return [(field.name, field.get_default()) for field in model._meta.concrete_fields if not field.primary_key]


@cache
def _update(alias: str, model: Model, changes: Sequence[str], where: Sequence[str], unless: Sequence[str]) -> Statement:
    setting = ", ".join(f"{_quoted(alias, model, name)} = %s" for name in changes)
    text = f"UPDATE {_table(alias, model)} SET {setting} WHERE {_condition(alias, model, where, unless)}"
    return Statement(text, _writing(model, [*changes, *where, *unless]))


@cache
def _insert(alias: str, model: Model, rows: int) -> Statement:
    names = [name for name, _ in _columns(model)]
    listed = ", ".join(_quoted(alias, model, name) for name in names)
    values = ", ".join([f"({', '.join(['%s'] * len(names))})"] * rows)
    text = f"INSERT INTO {_table(alias, model)} ({listed}) VALUES {values}"
    if connections[alias].features.can_return_rows_from_bulk_insert:
        text += f" RETURNING {_key(alias, model)}"
    return Statement(text, _writing(model, names * rows))


@cache
def _select(
    alias: str,
    model: Model,
    names: Sequence[str],
    where: Sequence[str],
    unless: Sequence[str],
    instead: Sequence[tuple[str, str]],
) -> Statement:
    replaced = dict(instead)
    quoted = {field.name: _quoted(alias, model, field.name) for field in model._meta.concrete_fields}
    columns = [replaced[name].format(**quoted) if name in replaced else _quoted(alias, model, name) for name in names]
    text = f"SELECT {', '.join(columns)} FROM {_table(alias, model)} WHERE {_condition(alias, model, where, unless)}"
    return Statement(text, [pair for place, name in enumerate(names) for pair in _reading(alias, model, place, name)])


@cache
def _delete(alias: str, model: Model, rows: int) -> str:
    return f"DELETE FROM {_table(alias, model)} WHERE {_key(alias, model)} IN ({', '.join(['%s'] * rows)})"


def _condition(alias: str, model: Model, where: Sequence[str], unless: Sequence[str]) -> str:
    equal = [f"{_quoted(alias, model, name)} = %s" for name in where]
    return " AND ".join([*equal, *(f"{_quoted(alias, model, name)} <> %s" for name in unless)])


def _table(alias: str, model: Model) -> str:
    return connections[alias].ops.quote_name(model._meta.db_table)


def _key(alias: str, model: Model) -> str:
    assert model._meta.pk is not None
    return _quoted(alias, model, model._meta.pk.name)


def _quoted(alias: str, model: Model, name: str) -> str:
    return connections[alias].ops.quote_name(_field(model, name).column)


def _field(model: Model, name: str) -> Any:
    return model._meta.get_field(name)


def _writing(model: Model, names: Sequence[str]) -> Sequence[tuple[int, Convert]]:
    fields = [(place, _field(model, name)) for place, name in enumerate(names)]
    return [(place, field.get_db_prep_save) for place, field in fields if not isinstance(field, AS_THEY_ARE)]


def _reading(alias: str, model: Model, place: int, name: str) -> Sequence[tuple[int, Convert]]:
    field, connection = _field(model, name), connections[alias]
    column = field.get_col(model._meta.db_table)
    found = [*connection.ops.get_db_converters(column), *field.get_db_converters(connection)]
    return [(place, _of_column(convert, column)) for convert in found]


def _of_column(convert: Callable[[Any, Any, Any], Any], column: Any) -> Convert:
    return lambda value, connection: convert(value, column, connection)

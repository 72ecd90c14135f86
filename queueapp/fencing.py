"""The fence of a run in the host's own database: an older writer cannot overwrite what a newer one wrote.

For hosts: `FencedModel` for their models, `fenced_update` in the bodies of their tasks. Nothing of Ductor calls it.

A row remembers its last writer as two numbers: which job, in the order in which jobs were made, and which lease of it.
A write passes when its pair is not lower. Leases alone would not do: they order the runs of one job and say nothing
of two jobs that write the same row. The comparison stands in the WHERE of the UPDATE itself, so that nobody comes
between the look and the write.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Self, TypeVar

from asgiref.sync import sync_to_async
from django.db import models, router, transaction
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from queueapp.errors import InvalidOption, StaleWriter, UnfencedWrite
from queueapp.store.ids import made_order

FENCE_FIELDS = ("fence_job", "fence")
M = TypeVar("M", bound="FencedModel")


class Fence(int):
    """`context.fence`: the number of a lease of one job, and which job it is."""

    job_id: str

    def __new__(cls, lease: int, *, job_id: str) -> Self:
        fence = super().__new__(cls, lease)
        fence.job_id = job_id
        return fence

    @property
    def job(self) -> int:
        """Where the job stands among all jobs, by when they were made."""
        return made_order(self.job_id)

    def __getnewargs_ex__(self) -> tuple[tuple[int], dict[str, str]]:
        return (int(self),), {"job_id": self.job_id}

    def passes(self) -> Q:
        """The rows that this run may write."""
        return Q(fence_job__lt=self.job) | Q(fence_job=self.job, fence__lte=int(self))

    def as_values(self) -> dict[str, int]:
        return {"fence_job": self.job, "fence": int(self)}


_REQUIRED: Any = object()


class FencedQuerySet(models.QuerySet[M]):
    """Its `update` is refused: `fenced_update` for what jobs write, `unfenced_update` for everybody else."""

    def fenced_update(self, fence: Fence, **values: Any) -> int:
        """Writes all rows, or none: StaleWriter when a newer writer has written one of them. How many they were."""
        checked, given = _checked(fence), _fenced_values(fence, values)
        using = self._db or router.db_for_write(self.model, **self._hints)  # type: ignore[attr-defined]  # stubs lack it
        with transaction.atomic(using=using):
            written = models.QuerySet.update(self.using(using).filter(checked.passes()), **given)
            stale = self.using(using).exclude(checked.passes()).values_list("pk", *FENCE_FIELDS).first()
            if stale is not None:
                raise _stale(self.model, stale, checked)
        return written

    async def afenced_update(self, fence: Fence, **values: Any) -> int:
        return await sync_to_async(self.fenced_update)(fence, **values)

    def unfenced_update(self, **values: Any) -> int:
        """Writes whatever the rows hold, and leaves their fence as it is."""
        if not values.keys().isdisjoint(FENCE_FIELDS):
            raise InvalidOption("unfenced_update() leaves the fence alone: give fence_job and fence to nobody.")
        return super().update(**values)

    def update(self, **values: Any) -> int:
        raise UnfencedWrite(
            f"{self.model.__name__}.objects.update() looks at no fence. Take fenced_update(context.fence, …), "
            "or unfenced_update(…) where no job writes."
        )

    def bulk_update(self, objs: Iterable[M], fields: Iterable[str], batch_size: int | None = None) -> int:
        raise UnfencedWrite(
            f"{self.model.__name__}.objects.bulk_update() looks at no fence: take save(fence=…) for each in one "
            "transaction, or fenced_update()."
        )

    def bulk_create(self, objs: Iterable[M], *args: Any, **options: Any) -> list[M]:
        if options.get("update_conflicts"):
            raise UnfencedWrite(f"{self.model.__name__}.objects.bulk_create(update_conflicts=True) looks at no fence.")
        return super().bulk_create(objs, *args, **options)


class FencedModel(models.Model):
    """A row that remembers which run wrote it last, and whose `save` and `update` do not go past that unsaid."""

    fence_job = models.BigIntegerField(_("fence: job"), default=0, editable=False)
    fence = models.BigIntegerField(_("fence"), default=0, editable=False)

    objects = FencedQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, fence: Fence | None = _REQUIRED, **options: Any) -> None:
        """A new row needs no fence; an existing one needs `fence=context.fence`, or `fence=None`: whatever it holds."""
        if args:
            raise TypeError("save() takes its options by name.")
        if self._state.adding:
            if fence is not _REQUIRED and fence is not None:
                self._take(_checked(fence))
            # Never an UPDATE of a row that happens to have this key.
            super().save(**{**options, "force_insert": options.get("force_insert") or True})
            return
        if fence is _REQUIRED:
            raise UnfencedWrite(
                f"{self!r}.save() looks at no fence. Give save(fence=context.fence) in a task, "
                "or save(fence=None) where no job writes."
            )
        if fence is None:
            super().save(**{**options, "update_fields": self._without_fence(options.get("update_fields"))})
            return
        using = options.get("using") or router.db_for_write(type(self), instance=self)
        fields = self._without_fence(options.get("update_fields"))
        with transaction.atomic(using=using):
            fenced_update(self, fence, using=using)  # holds the row until the end of the transaction
            super().save(**{**options, "using": using, "update_fields": fields})

    async def asave(self, *args: Any, fence: Fence | None = _REQUIRED, **options: Any) -> None:
        await sync_to_async(self.save)(*args, fence=fence, **options)

    def _take(self, fence: Fence) -> None:
        for name, value in fence.as_values().items():
            setattr(self, name, value)

    def _without_fence(self, update_fields: Collection[str] | None) -> list[str]:
        deferred = self.get_deferred_fields()
        every = [
            field.name
            for field in self._meta.concrete_fields
            if not field.primary_key and not field.generated and field.attname not in deferred
        ]
        return [name for name in (every if update_fields is None else update_fields) if name not in FENCE_FIELDS]


def fenced_update(
    rows: FencedModel | models.QuerySet[Any], fence: Fence, *, using: str | None = None, **values: Any
) -> int:
    """One row or a query's, under the fence of this run. Raises StaleWriter; an instance then has its old values.

    Without values it only raises the fence and holds the row until the transaction ends.
    """
    if isinstance(rows, models.QuerySet):
        if not isinstance(rows, FencedQuerySet):
            raise InvalidOption(f"{rows.model.__name__} has no fence: derive it from queueapp.fencing.FencedModel.")
        return (rows.using(using) if using else rows).fenced_update(fence, **values)
    checked, given = _checked(fence), _fenced_values(fence, values)
    model = type(rows)
    alias = using or router.db_for_write(model, instance=rows)
    query: Any = FencedQuerySet(model, using=alias).filter(pk=rows.pk)
    written: int = models.QuerySet.update(query.filter(checked.passes()), **given)
    if not written:
        known = query.values_list("pk", *FENCE_FIELDS).first()
        if known is None:
            raise model.DoesNotExist(f"{model.__name__} {rows.pk!r} is not there.")
        raise _stale(model, known, checked)
    computed = [name for name, value in values.items() if hasattr(value, "resolve_expression")]
    for name, value in given.items():
        if name not in computed:
            setattr(rows, name, value)
    if computed:
        rows.refresh_from_db(using=alias, fields=computed)
    return written


def _checked(fence: Fence) -> Fence:
    given: object = fence
    if not isinstance(given, Fence):
        raise InvalidOption(f"fence is {given!r}: give context.fence, which also says which job it belongs to.")
    return given


def _fenced_values(fence: Fence, values: dict[str, Any]) -> dict[str, Any]:
    if not values.keys().isdisjoint(FENCE_FIELDS):
        raise InvalidOption("fence_job and fence come from the fence that is given, not from values.")
    return {**values, **_checked(fence).as_values()}


def _stale(model: type[models.Model], known: tuple[Any, int, int], given: Fence) -> StaleWriter:
    key, job, lease = known
    if job == given.job:
        why = f"lease {lease} of job {given.job_id} has written it, this is lease {int(given)}"
    else:
        why = f"a job made after {given.job_id} has written it (fence {job}/{lease}, this is {given.job}/{int(given)})"
    return StaleWriter(f"{model.__name__} {key!r}: {why}. Nothing was written.")

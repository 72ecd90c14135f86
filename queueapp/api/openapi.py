"""The OpenAPI description of the API, for drf-spectacular. The one module that imports it; `schema.inspector` imports
this one where it is installed.

Which authentication there is comes from the host's settings, as do title, version and servers of the document.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.extensions import OpenApiSerializerExtension, OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import Direction, OpenApiParameter, OpenApiResponse

from queueapp.api.requests import IDEMPOTENCY_KEY_MAX
from queueapp.api.schema import Operation, operation_of
from queueapp.api.shapes import Conflict, Fault
from queueapp.permissions import full

TAG = "ductor"

ALWAYS: dict[int, Any] = {
    400: _("A field, a parameter or the body is wrong, or not known to this operation; every such name is told."),
    401: _("Who asks is not known; by the host's authentication."),
    403: _("The API is closed to whoever asks, or the action needs a permission."),
    411: _("The body does not say its length."),
    413: _("The body, or the arguments in it, are too large."),
    415: _("The body is not application/json."),
    429: _("More requests, or more jobs, than are allowed; Retry-After says when to come back."),
    503: _("The store cannot be used right now; Retry-After says when to ask again."),
}
"""Status → meaning, of every operation: also one that takes no body or no parameter refuses what it is sent."""
SOMETIMES: dict[int, Any] = {
    404: _("There is no such thing, or it belongs to a tenant for whom this user may not speak."),
    409: _("The state of the job, or what the Idempotency-Key stands for, does not allow it; nothing was changed."),
}
FIELD_FAULTS: dict[str, Any] = {
    "anyOf": [
        {"$ref": "#/components/schemas/DuctorFault"},
        {
            "type": "object",
            "description": "The name of each wrong field, parameter or header → what is wrong with it.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
    ]
}


class OperationSchema(AutoSchema):
    """Tells drf-spectacular what `operation` was told."""

    @property
    def said(self) -> Operation:
        return operation_of(type(self.view), self.method)

    def get_operation_id(self) -> str:
        return self.said.name

    def get_summary(self) -> str:
        return str(self.said.summary)

    def get_description(self, *asked: str) -> str:  # `asked`: DRF names path and method, drf-spectacular nothing
        said = self.said
        parts = [said.description] if said.description else []
        if said.needs:
            parts.append(_("Needs the permission %(name)s.") % {"name": full(said.needs)})
        if said.operator_needs:
            parts.append(
                _("Whoever speaks for every tenant needs the permission %(name)s.")
                % {"name": full(said.operator_needs)}
            )
        return " ".join(map(str, parts))

    def get_tags(self) -> list[str]:
        return [TAG]

    def get_request_serializer(self) -> Any:
        return self.said.request

    def get_serializer_name(self, serializer: Any, direction: Direction) -> str:
        """Ours beside those of the host's own API."""
        return f"Ductor{super().get_serializer_name(serializer, direction)}"

    def get_override_parameters(self) -> list[Any]:
        said = self.said
        found: list[Any] = [said.query] if said.query else []
        key = {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_MAX, "pattern": "^[ -~]*$"}
        found += [OpenApiParameter(name, key, "header", description=text) for name, text in said.headers.items()]
        found += [OpenApiParameter(name, str, "path", description=text) for name, text in said.path.items()]
        wait = _("Seconds after which to ask again.")
        found.append(OpenApiParameter("Retry-After", int, "header", response=[429, 503], description=wait))
        found += [
            OpenApiParameter(name, str, "header", response=[status], description=text)
            for status, headers in said.located.items()
            for name, text in headers.items()
        ]
        return found

    def get_response_serializers(self) -> Any:
        refusals = {**ALWAYS, **{status: SOMETIMES[status] for status in self.said.faults}}
        bodies: dict[int, Any] = {400: FIELD_FAULTS, 409: Conflict}
        if (conflict := self.said.conflict) is not None:
            refusals[409], bodies[409] = conflict.__doc__, conflict
        return {
            **{
                status: OpenApiResponse(shape, description=(shape.__doc__ or "").splitlines()[0])
                for status, shape in self.said.answers.items()
            },
            **{
                status: OpenApiResponse(bodies.get(status, Fault), description=text)
                for status, text in sorted(refusals.items())
            },
        }


class NameSchema(OpenApiSerializerFieldExtension):
    """The form of a name, as a pattern."""

    target_class = "queueapp.api.fields.Name"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.target.form.pattern})$"}


class TextSchema(OpenApiSerializerFieldExtension):
    """Text without the one character that databases do not take."""

    target_class = "queueapp.api.fields.Text"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        bounds = {"minLength": self.target.min_length, "maxLength": self.target.max_length}
        return {"type": "string", "pattern": "^[^\\x00]*$", **bounds}


class WordSchema(OpenApiSerializerFieldExtension):
    """A word out of a list. Named by us: drf-spectacular would name it by its field, as it would the host's."""

    target_class = "queueapp.api.fields.Word"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        schema = {"type": "string", "enum": list(self.target.choices)}
        name = f"Ductor{self.target.title}"
        component = ResolvedComponent(name=name, type=ResolvedComponent.SCHEMA, object=name, schema=schema)
        auto_schema.registry.register_on_missing(component)
        ref: dict[str, Any] = component.ref
        return ref


class StrictSchema(OpenApiSerializerExtension):
    """What refuses unknown fields says so."""

    target_class = "queueapp.api.requests.Strict"
    match_subclasses = True

    def map_serializer(self, auto_schema: AutoSchema, direction: Direction) -> dict[str, Any]:
        schema = auto_schema._map_serializer(self.target, direction, bypass_extensions=True)
        return {**schema, "additionalProperties": False}

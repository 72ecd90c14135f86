"""The form of an upload."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.files.uploadedfile import UploadedFile

from ductor_project.demo.models import csv_rows

MAX_BYTES = 5 * 2**20


def pools() -> list[tuple[str, str]]:
    """The pools that an import may go to."""
    return [(name, name) for name in ("default", *settings.DUCTOR.get("POOLS", {}))]


class UploadForm(forms.Form):
    """A CSV file, read and looked at as a whole before anything is stored."""

    file = forms.FileField(label="CSV file")
    pool = forms.ChoiceField(choices=pools, required=False)
    as_flow = forms.BooleanField(label="Import it as a flow, in the pool default", required=False)

    def clean_file(self) -> UploadedFile[Any]:
        file: UploadedFile[Any] = self.cleaned_data["file"]
        if (file.size or 0) > MAX_BYTES:
            raise forms.ValidationError(f"The file has {file.size} bytes; at most {MAX_BYTES} are taken.")
        try:
            self.text = file.read().decode("utf-8-sig")
            csv_rows(self.text)
        except UnicodeDecodeError as error:
            raise forms.ValidationError("The file is not UTF-8 text.") from error
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error
        return file

    def clean_pool(self) -> str:
        return self.cleaned_data["pool"] or "default"

"""What failures have in common: twelve characters that are the same for the same error at the same place.

Called by `outcome`. Dead letters are grouped by them, so that a thousand letters of one bug are one line for people.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path
from types import CodeType

import queueapp

_NOT_OF_THE_HOST = tuple(
    os.path.join(folder, "")
    for folder in {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(queueapp.__file__).parent),
    }
)
_INSTALLED = {"site-packages", "dist-packages"}


def fingerprint(task: str, error_class: str, error: BaseException) -> str:
    """Task, class of the error, and the innermost frame of the host's own code: the end of its file's path, function.

    Neither line nor message: both change from letter to letter, and with each deploy. Where no frame is the host's
    (a task that lives in an installed package), the innermost one stands for it.
    """
    parts = [task, error_class, *_place(error)]
    return hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=6).hexdigest()


def _place(error: BaseException) -> tuple[str, str]:
    host: CodeType | None = None
    innermost: CodeType | None = None
    step = error.__traceback__
    while step is not None:
        innermost = step.tb_frame.f_code
        if _is_host(innermost.co_filename):
            host = innermost
        step = step.tb_next
    code = host or innermost
    if code is None:
        return "", ""
    # Two parts: a deploy into another directory must not make other groups of the same errors.
    return "/".join(Path(code.co_filename).parts[-2:]), code.co_qualname


def _is_host(file: str) -> bool:
    return not (file.startswith(("<", *_NOT_OF_THE_HOST)) or _INSTALLED & set(Path(file).parts))

"""Whether asking again can help after a cluster, or this machine, has refused a driver. Pure.

A refusal may pass unless these lists have it: a cluster that is away, full or upgraded has many messages.
"""

from __future__ import annotations

import errno
import re
from types import MappingProxyType
from typing import Final

from airflow_flinkstyle.jobs.errors import DriverFailedError, NotTakenError

_RIGHTS: Final = "a right or a login is missing until a person grants or corrects it"
_REQUEST: Final = "the same request would be made again"
_TOO_LARGE: Final = "the driver asks for more than any node or queue may give"
_PROGRAM: Final = "what spark-submit needs is not there until a person installs it"
_QUOTA: Final = "exceeded quota"
"""Kubernetes answers 403 then; it passes once other pods of the quota end."""

FINAL_STATUSES: Final = MappingProxyType(
    {
        **dict.fromkeys((401, 403), _RIGHTS),
        **dict.fromkeys((400, 404, 405, 406, 413, 414, 415, 422), _REQUEST),
    }
)
"""By HTTP status of Kubernetes' API server."""
FINAL_ERRNOS: Final = MappingProxyType(
    {
        **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOEXEC), _PROGRAM),
        **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), _RIGHTS),
        **dict.fromkeys((errno.E2BIG, errno.ENAMETOOLONG, errno.EINVAL), _REQUEST),
    }
)
"""By the kernel's error number of this machine: memory, processes and room on a disk are free again later."""
FINAL_WORDS: Final = MappingProxyType(
    {
        "AccessControlException": _RIGHTS,
        "InvalidResourceRequestException": _TOO_LARGE,
        "InvalidLabelResourceRequestException": _REQUEST,
        "is above the max threshold": _TOO_LARGE,
        "unknown queue": _REQUEST,
        "Unrecognized option": _REQUEST,
        "FileNotFoundException": _PROGRAM,
        "ClassNotFoundException": _PROGRAM,
        "NoClassDefFoundError": _PROGRAM,
        "NoSuchMethodError": _PROGRAM,
        "UnsupportedClassVersionError": _PROGRAM,
        "JAVA_HOME is not set": _PROGRAM,
        "could not be run": _PROGRAM,
    }
)
"""Searched for only in the lines where ``spark-submit`` reports what ended it; the rest is for people."""
_ENDS: Final = re.compile(r"^(?:Exception in thread|Caused by:|Error|JAVA_HOME|.* could not be run).*$", re.M)
_STATUS: Final = re.compile(r"\bStatus\(.*?\bcode=(\d{3})\b", re.DOTALL)
"""Kubernetes' answer, as its client in ``spark-submit`` shows it."""


def why_final(message: str, status: int | None = None) -> str | None:
    """Return why asking a cluster again cannot help; None if it may.

    Args:
        message: Of the cluster, or of ``spark-submit``.
        status: The HTTP status, if the cluster was asked directly.
    """
    if _QUOTA in message:
        return None
    if status is None and (shown := _STATUS.search(message)) is not None:
        status = int(shown[1])
    if status is not None:
        return FINAL_STATUSES.get(status)
    ends = "\n".join(_ENDS.findall(message))
    return next((why for word, why in FINAL_WORDS.items() if word in ends), None)


def not_taken(found: str, *, by: str, remedy: str, why: str | None) -> DriverFailedError:
    """Return the error for a driver that a cluster, or this machine, did not take.

    Args:
        found: Its message, as the rest of a sentence.
        by: The cluster, or this machine.
        remedy: What can be corrected.
        why: As ``why_final`` returns it, or as ``FINAL_ERRNOS`` has it.
    """
    problem = f"{by} was expected to take the driver, found that {found}"
    state_after = "No driver runs; the generation stays claimed."
    if why is None:
        soon = "Nothing, if it passes: a watcher asks again, and a retry of the task does. If it stays: "
        return NotTakenError(problem, state_after, soon + remedy[0].lower() + remedy[1:])
    return DriverFailedError(problem, state_after, f"{remedy} Trying again alone cannot help: {why}.")

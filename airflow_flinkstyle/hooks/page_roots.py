"""Which savepoint roots the page shows, and which DAG's permissions decide who may see each.

``[flinkstyle] page`` of Airflow's configuration (``AIRFLOW__FLINKSTYLE__PAGE``): connections of type
``flinkstyle``, separated by commas, each with a DAG after a colon. Users who may read the DAG see the
root's jobs; those who may trigger it may refresh them from the store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from airflow_flinkstyle.errors import BadInputError

DEFAULT_CONNECTION = "flinkstyle_default"
DEFAULT = f"{DEFAULT_CONNECTION}:take_savepoint"
ROOT_TAG = "root:"
ONE_ROOT_TAG = "one root"
"""Of a DAG that knows its connection, and asks nobody for it: beside the tag of that root."""
_MOST_OF_A_TAG = 100
"""Characters that Airflow allows."""
_ENTRY = re.compile(r"([A-Za-z0-9_.-]+)(?::([A-Za-z0-9_.~-]+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRoot:
    """One savepoint root on the page."""

    conn_id: str
    """Connection of type ``flinkstyle``."""
    dag_id: str
    """DAG whose permissions decide."""


def parse_roots(setting: str) -> dict[str, PageRoot]:
    """Return the roots by connection id, in the order of the setting. Pure.

    Raises:
        BadInputError: If it is not such a list.
    """
    default_dag = DEFAULT.partition(":")[2]
    roots: dict[str, PageRoot] = {}
    for entry in filter(None, (part.strip() for part in setting.split(","))):
        match = _ENTRY.fullmatch(entry)
        if match is None or match[1] in roots:
            raise BadInputError(
                f"[flinkstyle] page: expected connections like {DEFAULT}, each once, found {entry!r}.",
                state_after="The Savepoints page shows no job.",
                remedy="Correct the setting (AIRFLOW__FLINKSTYLE__PAGE) and restart the API server.",
            )
        roots[match[1]] = PageRoot(conn_id=match[1], dag_id=match[2] or default_dag)
    return roots


def configured_roots() -> dict[str, PageRoot]:
    """Return the roots that Airflow's configuration names; raises as ``parse_roots`` does."""
    from airflow_flinkstyle.hooks.airflow_versions import conf

    return parse_roots(conf.get("flinkstyle", "page", fallback=DEFAULT))


def root_tag(conn_id: str) -> str:
    """Return the tag of a DAG that works on the jobs of one connection's root, whatever its form holds."""
    return f"{ROOT_TAG}{conn_id}"[:_MOST_OF_A_TAG]


def savepoint_page(conn_id: str, job: str, savepoint_id: str) -> str | None:
    """Return where the Savepoints page shows a savepoint; None if it does not show that connection's jobs.

    None too if Airflow's own address is not set (``[api] base_url``): links in Airflow are absolute.
    """
    from airflow_flinkstyle.hooks.airflow_versions import conf

    base = conf.get("api", "base_url", fallback=None)
    try:
        is_shown = conn_id in configured_roots()
    except BadInputError:  # the page shows the error
        return None
    if not base or not is_shown:
        return None
    return f"{base.rstrip('/')}/plugin/savepoints#/" + "/".join(
        quote(part, safe="") for part in (conn_id, job, savepoint_id)
    )

"""Which DAGs may act on which savepoint root.

A DAG that names a connection in its code acts on that root by its author's will. A form with a field for the
connection would let every user who may trigger that one DAG act on every root. So a root that the DAG's
author has not offered must list the DAG in ``dags`` of its connection. Such a list binds all DAGs.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.hooks.errors import root_denied

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_flinkstyle.hooks.connections import Defaults


def require_dag(defaults: Defaults, conn_id: str, dag_id: str | None) -> None:
    """Refuse a DAG that the root's list does not name, if there is a list.

    Args:
        defaults: The connection's settings.
        conn_id: Its id.
        dag_id: DAG of the task that acts; None outside of tasks.

    Raises:
        FlinkstyleError: ``ROOT_DENIED``, naming those that may.
    """
    if dag_id is not None and defaults.dags is not None and not is_listed(dag_id, defaults.dags):
        raise root_denied(conn_id, dag_id, defaults.dags)


def require_chosen(conn_id: Any, dag_id: str, offered: Collection[str]) -> None:  # noqa: ANN401 - an answer
    """Refuse a root that a user enters in a form, unless its author offered it or the root lists the DAG.

    Args:
        conn_id: The answer.
        dag_id: DAG of the form.
        offered: The field's default, and its list if it has one.

    Raises:
        FlinkstyleError: ``ROOT_DENIED``, naming the DAGs that may.
        ConnectionMissingError: If there is no such connection.
    """
    from airflow_flinkstyle.hooks.connections import Defaults, connection_of

    if conn_id in offered:
        return
    dags = Defaults.of(connection_of(str(conn_id))).dags
    if dags is None or not is_listed(dag_id, dags):
        raise root_denied(str(conn_id), dag_id, dags)


def is_listed(dag_id: str, patterns: Collection[str]) -> bool:
    """Return whether a root's list names a DAG."""
    return any(fnmatchcase(dag_id, pattern) for pattern in patterns)

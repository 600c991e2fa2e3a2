"""A task's link to the savepoint it takes, writes or restores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey


class SavepointLink(BaseOperatorLink):
    """The savepoint's manifest in the store; absent where no browser could open it (``hooks.urls``)."""

    name = "Savepoint"
    key = "_link_SavepointLink"
    """XCom in which Airflow looks for the link. Pushed early: Airflow itself fills it only at the end."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the link pushed by ``show``; empty if the task has not reached its savepoint."""
        from airflow.sdk.execution_time.xcom import XCom

        return str(XCom.get_value(ti_key=ti_key, key=self.key) or "")

    @classmethod
    def show(cls, context: Context, url: str) -> None:
        """Show the link now, while the task still runs."""
        context["ti"].xcom_push(key=cls.key, value=url)

"""A task's links to the driver that it starts: Spark's pages, the driver's log, its cluster's own page."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow.sdk import BaseOperatorLink

from airflow_flinkstyle.links.address import web_address

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import TaskInstanceKey

    from airflow_flinkstyle.jobs.deployments.base import DriverPages


class DriverLink(BaseOperatorLink):
    """One page about a driver; absent where its cluster has none."""

    field: ClassVar[str]
    """Of ``DriverPages``."""

    @property
    def xcom_key(self) -> str:
        """The XCom in which Airflow looks for the link."""
        return f"_link_{type(self).__name__}"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """Return the link pushed by ``show_driver``; empty if there is none."""
        from airflow.sdk.execution_time.xcom import XCom

        return str(XCom.get_value(ti_key=ti_key, key=self.xcom_key) or "")


class SparkUiLink(DriverLink):
    """Spark's own pages of the application."""

    name = "Spark UI"
    field = "spark_ui"


class DriverLogLink(DriverLink):
    """What the driver wrote."""

    name = "Driver log"
    field = "log"


class ClusterLink(DriverLink):
    """What the cluster manager says of the driver."""

    name = "Driver on its cluster"
    field = "cluster"


LINKS = (SparkUiLink(), DriverLogLink(), ClusterLink())


def show_driver(context: Context, pages: DriverPages) -> None:
    """Show the links that there are now, while the task still runs."""
    for link in LINKS:
        if url := web_address(getattr(pages, link.field)):
            context["ti"].xcom_push(key=link.xcom_key, value=url)

"""The end of a driver's log, and the other pages that show a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.links.address import web_address

if TYPE_CHECKING:
    from airflow_flinkstyle.plugin.roots import OpenRoot
    from airflow_flinkstyle.types import Generation


def driver_log(root: OpenRoot, job: str, generation: Generation, lines: int) -> dict[str, Any]:
    """Return the end of a run's log and what its cluster shows of the driver.

    A file is read, and a cluster asked, only as a claim names them that a caller has signed.
    """
    client = root.client(job)
    run = client.view.run(generation)
    text = client.view.log_tail(run, lines=lines) or "(no log)"
    native_id = client.view.submitted_process(run)
    pages = client.view.pages(run)
    return {
        "generation": generation,
        "host": native_id.get("host"),
        "file": native_id.get("log") or None,
        "cluster_page": web_address(pages.cluster),
        "log_page": web_address(pages.log),
        "spark_ui": web_address(pages.spark_ui),
        "text": text,
    }

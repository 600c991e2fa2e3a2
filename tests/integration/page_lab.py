"""Savepoint roots as the Savepoints page finds them, an Airflow with roles, and who asks it over HTTP."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_flinkstyle.clock import now_ms
from airflow_flinkstyle.jobs.journal import CutoverJournal
from airflow_flinkstyle.protocol.comparison_records import ShownRow
from airflow_flinkstyle.protocol.history import History, Sample
from airflow_flinkstyle.protocol.query_records import Pace, SourcePace
from airflow_flinkstyle.savepoint.blobs.references import pin
from airflow_flinkstyle.savepoint.files.verified import check_savepoint
from airflow_flinkstyle.storage.local import LocalStore
from airflow_flinkstyle.types import BatchId, Generation
from testbed import paths
from testbed.airflow import Airflow
from testbed.keys import SIGNER, SIGNING_KEY
from testbed.waiting import wait_until
from tests.comparisons import DIFFERS, a_comparison
from tests.page_users import USERS, password_of
from tests.seeming_jobs import SeemingJob
from tests.unit.cli.kafka_savepoints import take_on_kafka

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MARKUP = "<img src=x onerror=globalThis.hacked=1><script>globalThis.hacked=1</script>"
HOSTILE_FOLDER = "<script>globalThis.hacked=1<&script>"
"""A folder below the root that looks like a job's; a slash would end its name."""
SECRETS = {"password": SIGNING_KEY, "secret_key": "pw-of-the-store"}
"""In the connections; nothing of them may leave."""
ASKED = {"dag_id": "start_job", "run_id": "manual__1", "task_id": "start"}
OWN_DAG = """
from airflow.sdk import DAG, task

with DAG("take_savepoint_payments", schedule=None) as dag:
    task(lambda: None, task_id="take")()
"""
"""A DAG that one job has of its own."""
_MINUTE_MS = 60_000


def fill(folder: Path) -> None:
    """Leave jobs in every state below ``folder/root``.

    ``orders`` failed once, runs again from ``sp-1``, has three savepoints, and is being migrated.
    """
    begun_at_ms = now_ms() - 90 * _MINUTE_MS
    orders = SeemingJob(folder, "orders", begun_at_ms, host="worker-7", claim_key="start_job-start")
    for number in (1, 2, 3):
        take_on_kafka(
            orders.repository,
            folder / f"checkpoint-{number}",
            f"sp-{number}",
            {"orders": {0: 41_000 * number, 1: 39_500 * number}},
            taken_at_ms=begun_at_ms + 25 * number * _MINUTE_MS,
            generation=1 if number == 1 else 2,
        )
    check_savepoint(orders.repository, "sp-3", level="quick", by="a test")
    pin(orders.repository, "sp-1", reason="audit of the quarter", by="a test", at_ms=begun_at_ms)
    orders.board.write_history(_history(begun_at_ms // 1000), seen="")
    orders.seem_running(
        state="failed",
        error=("SCRIPT_FAILED", "The sink refused the batch: disk full."),
        drivers=2,
        said_after_min=40,
        asked_by=ASKED,
    )
    orders.seem_running(
        generation=2,
        from_savepoint="sp-1",
        claimed_after_min=45,
        pace=_pace("KafkaV2[Subscribe[orders]]"),
        asked_by=ASKED,
        ui_url="http://worker-7:4040",
    )
    store = LocalStore(folder / "root")
    journal = CutoverJournal(store, "orders", "to-new-cluster", ("prepare", "stop"), signer=SIGNER)
    journal.begin(lambda: 1)
    journal.open("prepare", {})
    failed = SeemingJob(folder, "payments", begun_at_ms, host="worker-3", claim_key="start_job-start")
    failed.seem_running(state="failed", error=("SCRIPT_FAILED", "The sink refused the batch: disk full."))
    refunds = SeemingJob(folder, "refunds", begun_at_ms)
    refunds.seem_running(state="closed")
    refunds.seem_compared(2, a_comparison(old=Generation(2), ended_at_ms=begun_at_ms))


def fill_hostile(folder: Path) -> None:
    """Leave a job below ``folder/root`` whose every text is markup, and a folder that no job can have."""
    job = SeemingJob(folder, "hostile", now_ms(), host=MARKUP, claim_key=MARKUP)
    job.take("sp-1", "4.2.0/stateless")
    pin(job.repository, "sp-1", reason=MARKUP, by=MARKUP, at_ms=1)
    asked = {"dag_id": MARKUP, "run_id": "../../../logout", "task_id": MARKUP}
    error = (MARKUP, MARKUP)
    job.seem_running(state="failed", error=error, pace=_pace(MARKUP), asked_by=asked, drivers=2)
    script = "javascript:globalThis.hacked=1"
    job.seem_running(generation=2, pace=_pace(MARKUP), asked_by=asked, ui_url=script)
    row = ShownRow(kind="changed", old=MARKUP, new=MARKUP)
    odd = replace(DIFFERS, columns=(MARKUP,), samples=(row,), untested=(MARKUP,))
    job.seem_compared(3, a_comparison(queries={"totals": odd}))
    (folder / "root" / HOSTILE_FOLDER / "runs").mkdir(parents=True)


def _pace(source: str) -> Pace:
    return Pace(
        batch_id=BatchId(4),
        begun_at_ms=now_ms(),
        batch_ms=840,
        rows=1200,
        input_rows_per_s=1234.5,
        processed_rows_per_s=2345.6,
        watermark_ms=None,
        state_rows=5000,
        sources=(SourcePace(description=source, lag_records=321),),
    )


def _history(begun_at_s: int) -> History:
    """An hour and a half with a backlog that was worked off."""
    return History().with_samples(
        Sample(
            at_s=begun_at_s + 60 * minute,
            input_rows_per_s=1000.0 + 10 * (minute % 7),
            processed_rows_per_s=1500.0 + 20 * (minute % 5),
            batch_ms=700 + 40 * (minute % 4),
            lag_records=max(321, 9000 - 150 * minute),
        )
        for minute in range(90)
    )


def an_airflow(folder: Path) -> Airflow:
    """Return an Airflow whose page has the roots of ``fill`` and of ``fill_hostile``, and two lost ones.

    Of one the connection is not there, of the other, ``ghost``, the DAG.
    """
    for name in ("shop", "hostile"):
        (folder / name).mkdir()
    fill(folder / "shop")
    fill_hostile(folder / "hostile")
    connections = {
        "flinkstyle_default": connection(folder / "shop" / "root"),
        "flinkstyle_hostile": connection(folder / "hostile" / "root"),
        "ghost": connection(folder / "shop" / "root"),
    }
    dags = folder / "dags"
    shutil.copytree(paths.ROOT / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    (dags / "own.py").write_text(OWN_DAG)
    page = "flinkstyle_default, flinkstyle_hostile, lost:start_job, ghost:no_such_dag"
    return an_airflow_of(folder, connections, page, dags=dags)


def an_airflow_of(
    folder: Path,
    connections: Mapping[str, str],
    page: str,
    *,
    roles: Mapping[str, str] = USERS,
    dags: Path = paths.ROOT / "dags",
    env: Mapping[str, str] | None = None,
) -> Airflow:
    """Return an Airflow with these connections and this setting of the page.

    Args:
        folder: Where its home goes.
        connections: By id, as JSON.
        page: ``[flinkstyle] page``.
        roles: User -> role, with a team behind a colon.
        dags: Where its DAGs are.
        env: More of its environment.
    """
    home = folder / "airflow"
    home.mkdir()
    passwords = {user: password_of(user) for user in roles}
    (home / "simple_auth_manager_passwords.json.generated").write_text(json.dumps(passwords))
    users = ",".join(f"{user}:{role}" for user, role in roles.items())
    return Airflow(
        home,
        dags,
        connections=connections,
        all_admins=False,
        env={
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users,
            "AIRFLOW__FLINKSTYLE__PAGE": page,
            **(env or {}),
        },
    )


def connection(root: Path) -> str:
    """Return a connection to a savepoint root, with secrets in it, as JSON."""
    extra = {"savepoint_root": str(root), "secret_key": SECRETS["secret_key"]}
    return json.dumps({"conn_type": "flinkstyle", "password": SECRETS["password"], "extra": extra})


class Caller:
    """Asks an Airflow over HTTP, as a user with a token, as their browser with a cookie, or as no one."""

    def __init__(self, base_url: str, user: str | None = None) -> None:
        self.base_url, self.token = base_url, ""
        if user is not None:
            login = {"username": user, "password": password_of(user)}
            _, answer = self.ask("POST", "/auth/token", body=login)
            self.token = str(answer["access_token"])

    def until_parsed(self, *dag_ids: str) -> None:
        """Return once Airflow has these DAGs: before, nobody may see the roots that they stand for."""
        for dag_id in dag_ids:
            wait_until(f"DAG {dag_id} is there", partial(self._has, dag_id))

    def _has(self, dag_id: str) -> bool:
        return self.ask("GET", f"/api/v2/dags/{dag_id}")[0] == 200

    def ask(self, method: str, path: str, **asked: Any) -> tuple[int, Any]:
        """Return what ``ask_once`` does, asked again, as it says, while the page waits for its store."""
        answers: list[tuple[int, Any]] = []

        def is_told() -> bool:
            answers.append(self.ask_once(method, path, **asked))
            return not _is_busy(*answers[-1])

        wait_until(f"{method} {path} is answered", is_told)
        return answers[-1]

    def ask_once(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Return status and JSON; without ``headers`` of its own the request has the user's token."""
        own = {"Authorization": f"Bearer {self.token}"} if headers is None and self.token else headers or {}
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.base_url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **own},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - our own server
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")


def _is_busy(status: int, told: Any) -> bool:  # noqa: ANN401 - any JSON
    return status == 503 and (told or {}).get("error", {}).get("code") == "STORE_BUSY"

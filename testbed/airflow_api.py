"""Airflow's REST API as a person or a script uses it: trigger a DAG, wait, approve, read."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

from testbed.waiting import PATIENCE_S, Patience, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FINISHED = frozenset({"success", "failed"})
_CALL_TIMEOUT_S = 30
_READ_TRIES = 3
_POLL_S = 0.3


class AirflowApiError(RuntimeError):
    """Airflow refused a call.

    Attributes:
        status: HTTP status.
        body: What Airflow said about it.
    """

    def __init__(self, call: str, status: int, body: str) -> None:
        super().__init__(f"Airflow answered {status} to {call}: {body}")
        self.status, self.body = status, body


class AirflowApi:
    """A client of one Airflow whose users are all admins."""

    def __init__(self, base_url: str, log_text: Callable[[], str]) -> None:
        self.base_url = base_url.rstrip("/")
        self._log_text = log_text
        self._token: str | None = None

    def is_healthy(self) -> bool:
        """True once API, scheduler, DAG processor and triggerer report healthy."""
        try:
            parts = self._send("GET", "/api/v2/monitor/health")
        except (OSError, AirflowApiError):
            return False
        needed = ("metadatabase", "scheduler", "dag_processor", "triggerer")
        return all((parts.get(part) or {}).get("status") == "healthy" for part in needed)

    def import_errors(self) -> dict[str, str]:
        """Return the stack trace by file of every DAG file that failed to import."""
        found = self.call("GET", "/importErrors")["import_errors"]
        return {error["filename"]: error["stack_trace"] for error in found}

    def dag_ids(self) -> set[str]:
        """Return the DAGs that were parsed without an error."""
        return {str(dag["dag_id"]) for dag in self.call("GET", "/dags")["dags"]}

    def wait_for_dag(self, dag_id: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait until the DAG has been parsed, and unpause it."""
        begun_s = time.monotonic()
        while True:
            try:
                self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False})
            except AirflowApiError as error:
                if error.status not in (404, 500):  # 500: SQLite was locked
                    raise
            else:
                return
            if time.monotonic() - begun_s > scaled(timeout_s):
                raise TimeoutError(
                    f"DAG {dag_id} was expected within {timeout_s} s. Import errors: {self.import_errors()}"
                )
            time.sleep(_POLL_S)

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run and return its id.

        Raises:
            AirflowApiError: With status 400 if a parameter does not fit its schema.
        """
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return queued, running, success or failed."""
        return str(self.call("GET", _run_path(dag_id, run_id))["state"])

    def wait_for_run(self, dag_id: str, run_id: str, *, timeout_s: float = 2 * PATIENCE_S) -> str:
        """Wait until the run has ended and return ``success`` or ``failed``; so long while no task moves."""
        patience = Patience(timeout_s)
        while (state := self.run_state(dag_id, run_id)) not in FINISHED:
            states = self.task_states(dag_id, run_id)
            if patience.is_over(states):
                raise TimeoutError(f"Run {run_id} of {dag_id} is {state} for {timeout_s} s: {states}")
            time.sleep(_POLL_S)
        return state

    def task_states(self, dag_id: str, run_id: str) -> dict[str, tuple[str | None, int]]:
        """Return state and number of tries of every task."""
        tasks = self.task_instances(dag_id, run_id)
        return {task["task_id"]: (task["state"], task["try_number"]) for task in tasks}

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return the run's task instances as Airflow describes them."""
        return list(self.call("GET", f"{_run_path(dag_id, run_id)}/taskInstances")["task_instances"])

    def wait_for_task(
        self, dag_id: str, run_id: str, task_id: str, states: Sequence[str], *, timeout_s: float = PATIENCE_S
    ) -> str:
        """Wait until the task is in one of the states, so long as tasks move; a run that ends is an error."""
        patience = Patience(timeout_s)
        while True:
            ended = self.run_state(dag_id, run_id) in FINISHED
            found = self.task_states(dag_id, run_id)
            state = found[task_id][0]
            if state in states:
                return str(state)
            if ended or patience.is_over(found):
                raise TimeoutError(f"Task {task_id} of {run_id} was expected in {states}: {found}")
            time.sleep(_POLL_S)

    def approval(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """Return what a task that awaits a person shows: subject, body, options, params."""
        return self.call("GET", f"{_hitl_path(dag_id, run_id, task_id)}")

    def respond(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        options: Sequence[str],
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Answer a task that awaits a person, e.g. with ``["Approve"]``, no faster than a person could.

        A task that is resumed before the scheduler has handled the end of its first part is marked
        failed (Airflow 3.3.2: "finished with state success, but the task instance's state is queued").
        """
        handled = (
            f"executor event with state success for task instance TaskInstanceKey(dag_id='{dag_id}', "
            f"task_id='{task_id}', run_id='{run_id}'"
        )
        begun_s = time.monotonic()
        while handled not in self._log_text():
            if time.monotonic() - begun_s > scaled(PATIENCE_S):
                raise TimeoutError(f"The scheduler was expected to handle that {task_id} of {run_id} waits.")
            time.sleep(_POLL_S)
        body = {"chosen_options": list(options), "params_input": dict(params or {})}
        self.call("PATCH", f"{_hitl_path(dag_id, run_id, task_id)}", body)

    def clear(self, dag_id: str, run_id: str, task_ids: Sequence[str]) -> None:
        """Clear tasks, as a person who wants them to run again does."""
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": list(task_ids), "only_failed": False}
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", body)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:  # noqa: ANN401  # JSON
        """Return what a task pushed."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/xcomEntries/{key}?deserialize=true"
        return self.call("GET", path)["value"]

    def run_ids(self, dag_id: str) -> list[str]:
        """Return the DAG's runs."""
        return [str(run["dag_run_id"]) for run in self.call("GET", f"/dags/{dag_id}/dagRuns")["dag_runs"]]

    def extra_links(self, dag_id: str, run_id: str, task_id: str) -> dict[str, str | None]:
        """Return the addresses of a task's extra links by name; None for one that it has not."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/links"
        return dict(self.call("GET", path)["extra_links"])

    def logs(self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1) -> str:
        """Return a task's log as plain lines."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/logs/{try_number}?full_content=true"
        content = self.call("GET", path)["content"]
        return "\n".join(_log_line(entry) for entry in content)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call the API below ``/api/v2`` with a token, which is fetched anew when it has expired."""
        if self._token is None:
            self._token = str(self._send("GET", "/auth/token")["access_token"])
        try:
            return self._send(method, f"/api/v2{path}", body)
        except AirflowApiError as error:
            if error.status != 401:
                raise
            self._token = str(self._send("GET", "/auth/token")["access_token"])
            return self._send(method, f"/api/v2{path}", body)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(  # noqa: S310  # our own server
            self.base_url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers=headers,
            method=method,
        )
        # On a busy machine the API server may be silent for long; only reading can be asked again.
        text = _ask(request, tries=_READ_TRIES if method == "GET" else 1)
        parsed: dict[str, Any] = json.loads(text) if text else {}
        return parsed


def _ask(request: urllib.request.Request, *, tries: int) -> str:
    try:
        with urllib.request.urlopen(request, timeout=scaled(_CALL_TIMEOUT_S)) as answer:  # noqa: S310  # our own server
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace")
        raise AirflowApiError(f"{request.method} {request.selector}", error.code, said) from error
    except TimeoutError:
        if tries == 1:
            raise
        return _ask(request, tries=tries - 1)


def _run_path(dag_id: str, run_id: str) -> str:
    return f"/dags/{dag_id}/dagRuns/{urllib.parse.quote(run_id, safe='')}"


def _hitl_path(dag_id: str, run_id: str, task_id: str) -> str:
    return f"{_run_path(dag_id, run_id)}/taskInstances/{task_id}/-1/hitlDetails"


def _log_line(entry: dict[str, Any] | str) -> str:
    if isinstance(entry, str):
        return entry
    details = {
        key: value
        for key, value in entry.items()
        if key not in {"event", "timestamp", "level", "logger", "filename", "lineno"}
    }
    return f"{entry.get('event', '')} {details or ''}".rstrip()

// Runs of DAGs: where each is in Airflow, how it goes, and which are under way for a job.
import { airflowUrl, useAnswer } from "./fetching.js";
import { airflowBase } from "./route.js";

const { createElement: h, Fragment } = globalThis.React;

const pageOf = (...parts) => new URL(parts.map(encodeURIComponent).join("/"), airflowBase).href;

export const DagRun = ({ dag, run, children }) => h("a", { href: pageOf("dags", dag, "runs", run) }, children || run);

// The task that asked for a start, as a claim names it.
export function AskedBy({ asked, otherwise }) {
  if (!asked) return otherwise ?? "–";
  return h(DagRun, { dag: asked.dag_id, run: asked.run_id }, `${asked.dag_id}, ${asked.run_id}`);
}

// A run that was triggered just now, its state, and what it waits for a person to decide.
export function RunLink({ run }) {
  const { value } = useAnswer(airflowUrl("dags", run.dag_id, "dagRuns", run.dag_run_id));
  const open = airflowUrl("dags", run.dag_id, "dagRuns", run.dag_run_id, "hitlDetails");
  open.searchParams.set("response_received", "false");
  const { value: asked } = useAnswer(value?.state === "running" ? open : null);
  return h(Fragment, null, run.state === "triggered already" ? "It was triggered already: " : "Started: ",
    h(DagRun, { dag: run.dag_id, run: run.dag_run_id }), value && `, ${value.state}`,
    (asked?.hitl_details || []).map((one) => h("div", { key: one.task_instance.task_id }, "It waits for a decision: ",
      h("a", { href: pageOf("dags", run.dag_id, "runs", run.dag_run_id, "tasks", one.task_instance.task_id, "required_actions") }, one.subject))));
}

// Two people on call may answer to the same alarm.
export function RunsUnderWay({ dag, job, most }) {
  const url = airflowUrl("dags", dag, "dagRuns");
  for (const state of ["running", "queued"]) url.searchParams.append("state", state);
  const { value } = useAnswer(url, { again: false });
  const runs = (value?.dag_runs || []).filter((run) => !job || !run.conf?.job || run.conf.job === job);
  if (!runs.length) return null;
  return h("p", { className: "fault" }, most === 1 ? "A run is under way; yours waits until it has ended: " : "A run is under way already: ",
    runs.map((run) => h("span", { key: run.dag_run_id }, h(DagRun, { dag, run: run.dag_run_id }), ` by ${run.triggering_user_name || "the schedule"}. `)));
}

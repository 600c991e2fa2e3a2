// The buttons: which DAG each opens, what it is called, and where it makes sense.
import { TriggerForm } from "./trigger.js";

const { createElement: h, Fragment, useState } = globalThis.React;

// DAG -> words, and whether it is for a job that runs (true), for one that does not (false), or for both.
const OF_A_JOB = [
  ["start_job", "Start", false],
  ["take_savepoint", "Take a savepoint"],
  ["stop_job", "Stop", true],
  ["upgrade_job", "Upgrade", true],
  ["roll_back", "Bring back to the version before", true],
  ["migrate_kafka_cluster", "Migrate to another Kafka cluster", true],
  ["fail_back", "Migrate back", true],
  ["drill_restore", "Rehearse a restore"],
];
const OF_A_SAVEPOINT = [
  ["start_job", "Start from it", false],
  ["roll_back", "Bring the job back to it", true],
  ["verify_savepoint", "Verify"],
  ["drill_restore", "Rehearse a restore"],
  ["export_savepoint", "Export"],
  ["dispose_savepoints", "Dispose of it"],
];
const RUNS = ["running", "starting"];

function fitting(actions, dags, state) {
  const known = state && state !== "unknown";
  return actions.filter(([dag, , runs]) => dags.includes(dag) && (!known || runs === undefined || runs === RUNS.includes(state)));
}

const isMigration = (journal) => journal.ended && !journal.went_back && journal.phases.some((one) => one.phase === "hold");

export const StartOfAJob = ({ conn, dags }) => h(Actions, { conn, known: {}, actions: fitting([["start_job", "Start a job"]], dags) });

export function JobActions({ conn, dags, value }) {
  const possible = value.journals.some(isMigration) ? dags : dags.filter((dag) => dag !== "fail_back");
  return h(Actions, { conn, known: { job: value.job }, actions: fitting(OF_A_JOB, possible, value.state) });
}

export function SavepointActions({ conn, dags, job, state, savepoint, children }) {
  const known = { job, savepoint_id: savepoint, savepoint_ids: savepoint, start_from: "savepoint" };
  return h(Actions, { conn, known, savepoint, actions: fitting(OF_A_SAVEPOINT, dags, state) }, children);
}

function Actions({ conn, known, savepoint, actions, children }) {
  const [open, setOpen] = useState(null);
  if (!actions.length && !children) return null;
  return h(Fragment, null,
    h("p", { className: "actions" },
      actions.map(([dag, words]) => h("button", { key: dag, type: "button", onClick: () => setOpen([dag, words]) }, words)),
      children),
    open && h(TriggerForm, { dag: open[0], words: open[1], conn, savepoint, known: { ...known, flinkstyle_conn_id: conn }, close: () => setOpen(null) }));
}

// The buttons: what each does, what it is called, and where it makes sense; the API says which DAG that opens.
import { TriggerForm } from "./trigger.js";

const { createElement: h, Fragment, useState } = globalThis.React;

// Action, words; whether it is for a job that runs (true), for one that does not (false), or for both; and what
// else is filled in: empty for what a person must choose.
const OF_A_JOB = [
  ["start_job", "Start", false],
  ["take_savepoint", "Take a savepoint"],
  ["stop_job", "Stop", true],
  ["upgrade_job", "Upgrade", true],
  ["roll_back", "Bring back to the version before", true],
  ["migrate_kafka_cluster", "Migrate to another Kafka cluster", true],
  ["fail_back", "Migrate back", true],
  ["settle_job", "Finish or undo what nobody finishes"],
  ["drill_restore", "Drill a restore"],
  ["compare_versions", "Compare with a new version"],
  ["leave_job", "Give back to plain Spark"],
];
const OF_A_SAVEPOINT = [
  ["start_job", "Start from it", false],
  ["roll_back", "Bring the job back to it", true, { rewind: "" }],
  ["verify_savepoint", "Verify"],
  ["drill_restore", "Drill a restore"],
  ["compare_versions", "Compare two versions from it"],
  ["replay_job", "Replay a range from it"],
  ["export_savepoint", "Export"],
  ["dispose_savepoints", "Dispose of it"],
];
const RUNS = ["running", "starting"];

function fitting(actions, dags, state) {
  const known = state && state !== "unknown";
  return actions.filter(([action, , runs]) => action in dags && (!known || runs === undefined || runs === RUNS.includes(state)))
    .map(([action, words, , filled]) => ({ dag: dags[action], words, filled }));
}

const isMigration = (journal) => journal.ended && !journal.went_back && journal.phases.some((one) => one.phase === "hold");

const isUnfinished = (journal) => !journal.ended && journal.phases.some((one) => one.phase === "standby");

export const StartOfAJob = ({ conn, dags }) => h(Actions, { conn, known: {}, actions: fitting([["start_job", "Start a job"], ["adopt_job", "Adopt a job of plain Spark"], ["adopt_running_job", "Adopt it while it runs"]], dags) });

export function JobActions({ conn, dags, value }) {
  const needed = { fail_back: isMigration, settle_job: isUnfinished };
  const possible = OF_A_JOB.filter(([action]) => !(action in needed) || value.journals.some(needed[action]));
  return h(Actions, { conn, known: { job: value.job }, actions: fitting(possible, dags, value.state) });
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
      actions.map((action) => h("button", { key: action.words, type: "button", onClick: () => setOpen(action) }, action.words)),
      children),
    open && h(TriggerForm, { dag: open.dag, words: open.words, conn, savepoint, known: { ...known, ...open.filled, flinkstyle_conn_id: conn }, close: () => setOpen(null) }));
}

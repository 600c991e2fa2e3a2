// One job: what it does, what it did, its savepoints, how fast it was.
import { JobActions } from "./actions.js";
import { Comparisons } from "./comparison.js";
import { AskedBy, DagRun } from "./dagruns.js";
import { ownUrl, useActions, useAnswer } from "./fetching.js";
import { Kept } from "./kept.js";
import { Lineage } from "./lineage.js";
import { Badge, Checked, Facts, Fault, Outside, Table, Time, Words, keptBecause } from "./parts.js";
import { Plots } from "./plots.js";
import { NewestPositions } from "./positions.js";
import { Timeline } from "./timeline.js";
import { linkTo, linkToDiff, linkToRun } from "./route.js";
import { batches, bytes, count, duration, lives, moment, number, rate, whenSeen } from "./words.js";

const { createElement: h, Fragment } = globalThis.React;

export function JobView({ conn, job }) {
  const { value, error } = useAnswer(ownUrl("roots", conn, "jobs", job));
  const { value: allowed } = useActions(conn, job);
  return h(Fragment, null,
    h("nav", { "aria-label": "Breadcrumb" }, h("a", { href: linkTo() }, "Savepoints"), " / ", job),
    h("h1", null, job, " ", value && h(Badge, { state: value.state })),
    h(Fault, { text: error }),
    value && h(Fragment, null,
      h("div", null, h(Words, { text: value.reason }), h("span", { className: "quiet" }, " (read ", h(Time, { at: value.read_at_ms }), ")")),
      h(Fault, { text: value.error && `${value.error.state_after} ${value.error.remedy}` }),
      h(Trouble, { trouble: value.trouble }),
      allowed && h(JobActions, { conn, dags: allowed.dags, value }),
      h(Now, { value, conn }),
      h("h2", null, "Timeline"), h(Timeline, { value, conn }),
      h("h2", null, "Plots"), h(Plots, { value }),
      h("h2", null, "Queries"), h(Queries, { value }),
      h("h2", null, "Positions"), h(NewestPositions, { conn, job, newest: value.savepoints[0] }),
      h("h2", null, "Savepoints"), h(Savepoints, { value, conn, job }),
      h(Kept, { conn, job }),
      h("h2", null, "Lineage"), h(Lineage, { lineage: value.lineage, conn, job }),
      h("h2", null, "Migrations and upgrades"), h(Journals, { journals: value.journals }),
      h(Comparisons, { runs: value.runs, conn, job }),
      h("h2", null, "Runs"), h(Runs, { runs: value.runs, conn, job })));
}

const Now = ({ value, conn }) => h(Facts, { rows: [
  ["Since", h(Time, { at: value.since_ms })],
  ["Generation", value.generation && h("a", { href: linkToRun(conn, value.job, value.generation) }, `${value.generation}, with the driver's log`)],
  ["Host", value.host], ["Asked by", h(AskedBy, { asked: value.asked_by, otherwise: value.started_by })],
  ["Spark", value.spark_version], ["Application", value.application_id], ["Spark UI", h(Outside, { href: value.spark_ui })],
  ["Last batch", h(Time, { at: value.last_batch_at_ms })],
  ["Lag", value.lag_records == null ? "–" : `${count(value.lag_records, "record")}${whenSeen(value.state)}`],
] });

const Queries = ({ value }) => h(Table, {
  caption: lives(value.state) ? "By the newest heartbeat" : `When last seen, ${moment(value.heartbeat_at_ms)}`,
  columns: ["Query", "Batch", "Committed", "Rows/s in", "Rows/s processed", "Batch took", "State rows", "Sink", "Sources and lag"],
  empty: "No driver has told of a query.",
  rows: value.queries.map((query) => [
    query.failed ? h(Fragment, null, query.name, " ", h(Badge, { state: "failed" })) : query.name,
    query.batch_id ?? "none", h(Time, { at: query.committed_at_ms }),
    rate(query.pace?.input_rows_per_s), rate(query.pace?.processed_rows_per_s), duration(query.pace?.batch_ms),
    number(query.pace?.state_rows), query.sink ?? "–",
    (query.pace?.sources || []).map((source, at) => h("div", { key: at },
      source.lag_records == null ? source.description : `${source.description}: ${number(source.lag_records)} behind`)),
  ]),
});

function Savepoints({ value, conn, job }) {
  const rows = value.savepoints.map((one, at) => {
    const older = value.savepoints[at + 1];
    return [
      h("a", { href: linkTo(conn, job, one.savepoint_id) }, one.savepoint_id),
      h(Time, { at: one.taken_at_ms }), one.generation ?? "–", batches(one.batches), bytes(one.size_bytes), bytes(one.new_bytes),
      one.spark_version, h(Checked, { savepoint: one }), keptBecause(one), one.parent ?? "–",
      older ? h("a", { href: linkToDiff(conn, job, one.savepoint_id, older.savepoint_id) }, "to the one before") : "–",
    ];
  });
  const shown = value.savepoints.length < value.savepoints_total ? ` (the newest ${value.savepoints.length})` : "";
  return h(Fragment, null,
    h(Table, {
      caption: `${count(value.savepoints_total, "savepoint")}${shown}`, rows, empty: "The job has no savepoint.",
      columns: ["Savepoint", "Taken", "Generation", "Batches", "Size", "New", "Spark", "Checked", "Kept because", "Made from", "Difference"],
    }),
    value.damaged.map((one) => h(Fault, { key: one.savepoint_id, text: `${one.savepoint_id}: ${one.problem} ${one.remedy}` })));
}

const Journals = ({ journals }) => h(Table, {
  caption: "The newest first", columns: ["Id", "Began", "State", "Phases", "Asked by"], empty: "There was none.",
  rows: journals.map((one) => [
    one.id, h(Time, { at: one.begun_at_ms }),
    h(Fragment, null, h(Badge, { state: one.went_back ? "went back" : one.ended ? "done" : one.phase }), one.failure && h("div", { className: "reason" }, h(Words, { text: one.failure })), one.compared && h("div", { className: "reason" }, `compared: ${one.compared}`)),
    one.phases.map((phase) => `${phase.phase}${phase.done_at_ms == null ? " (open)" : ` ${duration(phase.done_at_ms - phase.begun_at_ms)}`}`).join(", "),
    one.asked_by ? h(DagRun, { dag: one.asked_by.dag_id, run: one.asked_by.run_id }) : "–",
  ]),
});

const Runs = ({ runs, conn, job }) => h(Table, {
  caption: "The newest 20", columns: ["Generation", "Asked by", "Claimed", "State", "From savepoint", "Closed with", "Batches", "Error"],
  rows: runs.map((run) => [
    h("a", { href: linkToRun(conn, job, run.generation) }, run.generation), h(AskedBy, { asked: run.asked_by, otherwise: run.started_by }),
    h(Time, { at: run.claimed_at_ms }), h(Badge, { state: run.state }),
    savepointLink(conn, job, run.from_savepoint), savepointLink(conn, job, run.savepoint_id),
    h(Fragment, null, batches(run.batches), run.beside && h("div", { className: "reason" }, run.beside)),
    run.error ? h(Words, { text: run.error.join(": ") }) : "–",
  ]),
});

const Trouble = ({ trouble }) => trouble.length > 0 && h(Table, {
  caption: "What went wrong, the newest first", columns: ["When", "What", "Generation", "Why"],
  rows: trouble.slice(0, 10).map((one) => [moment(one.at_ms), h(Badge, { state: one.kind, tone: "failed" }), one.generation ?? "–", h("div", { className: "reason" }, h(Words, { text: one.text }))]),
});

const savepointLink = (conn, job, id) => (id ? h("a", { href: linkTo(conn, job, id) }, id) : "–");

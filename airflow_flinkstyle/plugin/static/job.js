// One job: what it does, what it did, its savepoints, how fast it was.
import { ownUrl, useAnswer } from "./fetching.js";
import { Badge, Checked, Facts, Fault, Table, Time } from "./parts.js";
import { Plots } from "./plots.js";
import { Timeline } from "./timeline.js";
import { linkTo, linkToDiff } from "./route.js";
import { Actions } from "./trigger.js";
import { batches, bytes, duration, number, rate } from "./words.js";

const { createElement: h, Fragment } = globalThis.React;

export function JobView({ conn, job }) {
  const { value, error } = useAnswer(ownUrl("roots", conn, "jobs", job));
  const { value: allowed } = useAnswer(ownUrl("roots", conn, "actions"), { again: false });
  return h(Fragment, null,
    h("nav", { "aria-label": "Breadcrumb" }, h("a", { href: linkTo() }, "Savepoints"), " / ", job),
    h("h1", null, job, " ", value && h(Badge, { state: value.state })),
    h(Fault, { text: error }),
    value && h(Fragment, null,
      h("p", null, value.reason, h("span", { className: "quiet" }, " (read ", h(Time, { at: value.read_at_ms }), ")")),
      allowed && h(Actions, { conn, dags: allowed.dags, known: { job } }),
      h(Now, { value }),
      h("h2", null, "Timeline"), h(Timeline, { value, conn }),
      h("h2", null, "Plots"), h(Plots, { value }),
      h("h2", null, "Queries"), h(Queries, { queries: value.queries }),
      h("h2", null, "Savepoints"), h(Savepoints, { value, conn, job }),
      h("h2", null, "Migrations and upgrades"), h(Journals, { journals: value.journals }),
      h("h2", null, "Runs"), h(Runs, { runs: value.runs, conn, job })));
}

const Now = ({ value }) => h(Facts, { rows: [
  ["Since", h(Time, { at: value.since_ms })],
  ["Generation", value.generation], ["Host", value.host], ["Started by", value.started_by],
  ["Spark", value.spark_version], ["Application", value.application_id],
  ["Last batch", h(Time, { at: value.last_batch_at_ms })],
  ["Lag", `${number(value.lag_records)} records`],
] });

const Queries = ({ queries }) => h(Table, {
  caption: "By the newest heartbeat",
  columns: ["Query", "Batch", "Committed", "Rows/s in", "Rows/s processed", "Batch took", "State rows", "Sink", "Sources and lag"],
  empty: "No driver has told of a query.",
  rows: queries.map((query) => [
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
      h(Time, { at: one.taken_at_ms }), one.generation ?? "–", batches(one.batches), bytes(one.size_bytes),
      one.spark_version, h(Checked, { savepoint: one }), one.pinned ? `pinned: ${one.pinned}` : "–", one.parent ?? "–",
      older ? h("a", { href: linkToDiff(conn, job, one.savepoint_id, older.savepoint_id) }, "to the one before") : "–",
    ];
  });
  const shown = value.savepoints.length < value.savepoints_total ? ` (the newest ${value.savepoints.length})` : "";
  return h(Fragment, null,
    h(Table, {
      caption: `${value.savepoints_total} savepoints${shown}`, rows, empty: "The job has no savepoint.",
      columns: ["Savepoint", "Taken", "Generation", "Batches", "Size", "Spark", "Checked", "Kept because", "Made from", "Difference"],
    }),
    value.damaged.map((one) => h(Fault, { key: one.savepoint_id, text: `${one.savepoint_id}: ${one.problem} ${one.remedy}` })));
}

const Journals = ({ journals }) => h(Table, {
  caption: "The newest first", columns: ["Id", "Began", "Phase", "Phases"], empty: "There was none.",
  rows: journals.map((one) => [
    one.id, h(Time, { at: one.begun_at_ms }), h(Badge, { state: one.ended ? "closed" : one.phase }),
    one.phases.map((phase) => `${phase.phase}${phase.done_at_ms == null ? " (open)" : ` ${duration(phase.done_at_ms - phase.begun_at_ms)}`}`).join(", "),
  ]),
});

const Runs = ({ runs, conn, job }) => h(Table, {
  caption: "The newest 20", columns: ["Generation", "Started by", "Claimed", "State", "From savepoint", "Closed with", "Batches", "Error"],
  rows: runs.map((run) => [
    run.generation, run.started_by ?? "–", h(Time, { at: run.claimed_at_ms }), h(Badge, { state: run.state }),
    savepointLink(conn, job, run.from_savepoint), savepointLink(conn, job, run.savepoint_id), batches(run.batches),
    run.error ? run.error.join(": ") : "–",
  ]),
});

const savepointLink = (conn, job, id) => (id ? h("a", { href: linkTo(conn, job, id) }, id) : "–");

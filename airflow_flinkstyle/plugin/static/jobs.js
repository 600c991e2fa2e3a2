// The table of all jobs.
import { ask, ownUrl, useActions, useAnswer } from "./fetching.js";
import { Badge, Checked, Fault, Table, Time, Words } from "./parts.js";
import { linkTo } from "./route.js";
import { StartOfAJob } from "./actions.js";
import { count, duration, number, rate, whenSeen } from "./words.js";

const { createElement: h, Fragment, useState } = globalThis.React;

const COLUMNS = ["Job", "State", "Since", "Where", "Last batch", "Rows/s", "Lag", "Newest savepoint", "Open"];

export function JobsView() {
  const { value, error } = useAnswer(ownUrl("jobs"));
  return h(Fragment, null,
    h("h1", null, "Savepoints"),
    h(Fault, { text: error }),
    value ? value.roots.map((root) => h(Root, { key: root.conn_id, root })) : !error && h("p", { className: "quiet" }, "Loading …"));
}

// No driver of it has ever come up: most often a name that somebody tried, or mistyped.
export const neverCameUp = (job) => job.incarnation == null && ["never started", "dead", "failed", "closed"].includes(job.state);

function Root({ root }) {
  const [hides, setHides] = useState(true);
  const idle = root.jobs.filter(neverCameUp), jobs = hides ? root.jobs.filter((job) => !neverCameUp(job)) : root.jobs;
  const { value: allowed } = useActions(root.conn_id);
  const fault = root.error && `${root.error.problem} ${root.error.state_after} ${root.error.remedy}`;
  return h("section", null,
    h("h2", null, root.conn_id),
    h("p", { className: "quiet" }, root.loading ? "The jobs are being read …" : h(Fragment, null, root.read_at_ms ? "Read " : "Not read yet ", root.read_at_ms && h(Time, { at: root.read_at_ms }), " ",
      allowed?.refresh && h(Refresh, { conn: root.conn_id }))),
    h(Fault, { text: fault }),
    !root.loading && (root.jobs.length > 0 || !fault) && h(Table, {
      caption: "Jobs", columns: COLUMNS, rows: jobs.map((job) => row(root.conn_id, job)),
      empty: idle.length ? "No job below this savepoint root has ever come up." : "There is no job below this savepoint root.",
    }),
    idle.length > 0 && h("p", { className: "quiet" }, h("button", { type: "button", "aria-pressed": !hides, onClick: () => setHides(!hides) },
      `${hides ? "Show" : "Hide"} ${count(idle.length, "job")} that never came up`),
      !hides && h(Fragment, null, " ", h("code", null, "flinkstyle job remove --job NAME"), " removes one.")),
    root.not_jobs.length > 0 && h("p", { className: "quiet" }, "Not shown, because no job can have such a name: ", root.not_jobs.join(", ")),
    allowed && !fault && h(StartOfAJob, { conn: root.conn_id, dags: allowed.dags }));
}

function row(conn, job) {
  const newest = job.newest_savepoint;
  return [
    h("a", { href: linkTo(conn, job.job) }, job.job),
    h("span", { title: job.reason }, h(Badge, { state: job.state }),
      job.state === "running" && !job.is_certain && h("div", { className: "quiet" }, "by its record; not seen to beat yet"),
      job.state !== "running" && h("div", { className: "reason" }, h(Words, { text: job.reason }))),
    h(Time, { at: job.since_ms }),
    h(Fragment, null, job.host ?? "–", job.generation != null && h("div", { className: "quiet" }, `generation ${job.generation}`)),
    h(Fragment, null, h(Time, { at: job.last_batch_at_ms }), job.batch_ms > 0 && h("div", { className: "quiet" }, `took ${duration(job.batch_ms)}`)),
    job.input_rows_per_s == null ? "–" : h(Fragment, null, `${rate(job.input_rows_per_s)} in`, h("div", null, `${rate(job.processed_rows_per_s)} processed`)),
    h(Fragment, null, number(job.lag_records), job.lag_records != null && whenSeen(job.state) && h("div", { className: "quiet" }, whenSeen(job.state).trim())),
    newest ? h(Fragment, null, h("a", { href: linkTo(conn, job.job, newest.savepoint_id) }, h(Time, { at: newest.taken_at_ms })), " ", h(Checked, { savepoint: newest })) : job.savepoints == null ? "–" : "none",
    job.open.map((one) => h("div", { key: one.id }, `${one.id}: ${one.phase}`)),
  ];
}

function Refresh({ conn }) {
  const [said, setSaid] = useState("");
  const again = async () => {
    try {
      const { begun } = await ask(ownUrl("roots", conn, "refresh"), { method: "POST" });
      setSaid(begun ? "Reading …" : "The store has been asked often enough for now.");
    } catch (error) {
      setSaid(error.message);
    }
  };
  return h(Fragment, null, h("button", { type: "button", onClick: again }, "Read again"), " ", h("span", { role: "status" }, said));
}

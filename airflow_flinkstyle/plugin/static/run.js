// One run of a job: who asked for it, where it runs, and the end of its driver's log.
import { ownUrl, useActions, useAnswer } from "./fetching.js";
import { Comparison } from "./comparison.js";
import { AskedBy } from "./dagruns.js";
import { Badge, Facts, Fault, Outside, Time, Words } from "./parts.js";
import { linkTo } from "./route.js";
import { batches, moment } from "./words.js";

const { createElement: h, Fragment } = globalThis.React;

export function RunView({ conn, job, run }) {
  const { value, error } = useAnswer(ownUrl("roots", conn, "jobs", job));
  const { value: allowed } = useActions(conn, job);
  const found = value?.runs.find((one) => String(one.generation) === run);
  const isNewest = value && String(value.generation) === run;
  return h(Fragment, null,
    h("nav", { "aria-label": "Breadcrumb" }, h("a", { href: linkTo() }, "Savepoints"), " / ", h("a", { href: linkTo(conn, job) }, job), " / ", `generation ${run}`),
    h("h1", null, `Generation ${run} `, found && h(Badge, { state: found.state })),
    h(Fault, { text: error }),
    value && !found && h(Fault, { text: `Generation ${run} is not among the newest ${value.runs.length} runs of job ${job}.` }),
    found && h(About, { run: found, ui: isNewest ? value.spark_ui : null, conn, job }),
    found?.comparison && allowed && h(Comparison, { found: found.comparison, conn, job, run, mayRead: allowed.logs }),
    found && allowed && (allowed.logs ? h(Log, { conn, job, run }) : h("p", { className: "quiet" }, "You have no right to read logs.")));
}

const savepoint = (conn, job, id) => (id ? h("a", { href: linkTo(conn, job, id) }, id) : "–");

const About = ({ run, ui, conn, job }) => h(Facts, { rows: [
  ["Asked by", h(AskedBy, { asked: run.asked_by, otherwise: run.started_by })],
  ["Claimed", h(Fragment, null, h(Time, { at: run.claimed_at_ms }), `, ${moment(run.claimed_at_ms)}`)],
  ["Began", run.from_savepoint ? h(Fragment, null, "from savepoint ", savepoint(conn, job, run.from_savepoint)) : run.adopts_checkpoint_of != null ? `in the checkpoint of generation ${run.adopts_checkpoint_of}` : "with an empty checkpoint"],
  ["Newest heartbeat", h(Time, { at: run.heartbeat_at_ms })],
  ["Drivers started again", run.restarted_at_ms.length ? run.restarted_at_ms.map((at) => h("div", { key: at }, moment(at))) : "none"],
  ["Closed with", savepoint(conn, job, run.savepoint_id)],
  ["Batches", batches(run.batches)], ...(run.beside ? [["Left behind", run.beside]] : []),
  ["Error", run.error ? h(Words, { text: run.error.join(": ") }) : "none"],
  ["Spark UI", h(Outside, { href: ui, otherwise: "only while its driver lives" })],
] });

function Log({ conn, job, run }) {
  const { value, error } = useAnswer(ownUrl("roots", conn, "jobs", job, "runs", run, "log"));
  return h("section", null,
    h("h2", null, "End of the driver's log"),
    h(Fault, { text: error }),
    value && h(Facts, { rows: [["Host", value.host], ["File", value.file], ...[["Cluster", value.cluster_page], ["Whole log", value.log_page], ["Spark UI", value.cluster_page && value.spark_ui]].map(([name, href]) => [name, h(Outside, { href })])] }),
    value && h("pre", { tabIndex: 0, "aria-label": "End of the driver's log" }, value.text),
    value?.text === "(no log)" && value.file && h("p", { className: "quiet" }, `The API server cannot read it from here. On ${value.host}: tail ${value.file}`));
}

// One savepoint, and what changed since another one.
import { SavepointActions } from "./actions.js";
import { ownUrl, useActions, useAnswer } from "./fetching.js";
import { Checked, Facts, Fault, Table, Time, keptBecause } from "./parts.js";
import { Positions } from "./positions.js";
import { Pin } from "./pin.js";
import { linkTo, linkToDiff, linkToRun } from "./route.js";
import { Start } from "./start.js";
import { bytes, moment, number } from "./words.js";

const { createElement: h, Fragment } = globalThis.React;

export function SavepointView({ conn, job, savepoint, other }) {
  const { value, error, read } = useAnswer(ownUrl("roots", conn, "jobs", job, "savepoints", savepoint));
  const { value: running } = useAnswer(ownUrl("roots", conn, "jobs", job));
  const { value: allowed } = useActions(conn, job);
  return h(Fragment, null,
    h("nav", { "aria-label": "Breadcrumb" }, h("a", { href: linkTo() }, "Savepoints"), " / ", h("a", { href: linkTo(conn, job) }, job), " / ", savepoint),
    h("h1", null, savepoint),
    h(Fault, { text: error }),
    value && h(Fragment, null,
      allowed && h(SavepointActions, { conn, dags: allowed.dags, job, state: running?.state, savepoint },
        allowed.pin && h(Pin, { conn, job, savepoint, pinned: value.pinned, changed: read })),
      h(About, { value, conn, job }),
      h(Start, { conn, job, savepoint, mayAskKafka: Boolean(allowed?.kafka) }),
      value.queries.map((query) => h(Query, { key: query.name, query })),
      h(Difference, { conn, job, savepoint, other })));
}

const About = ({ value, conn, job }) => h(Facts, { rows: [
  ["Taken", h(Fragment, null, h(Time, { at: value.taken_at_ms }), `, ${moment(value.taken_at_ms)}`)],
  ["Generation", value.generation && h("a", { href: linkToRun(conn, job, value.generation) }, value.generation)], ["Spark", value.spark_version], ["Alignment", value.alignment], ["Cut", value.cut_id],
  ["Size", `${bytes(value.size_bytes)} in ${number(value.files)} files, if nothing were shared`],
  ["New", value.new_bytes == null ? "not known" : `${bytes(value.new_bytes)} that the one before it did not have`],
  ["Checked", h(Checked, { savepoint: value })], ...(value.damaged ? [["Damage", value.damaged]] : []),
  ["Kept because", keptBecause(value)],
  ["Made from", value.parent ? h("a", { href: linkTo(conn, job, value.parent) }, value.parent) : null],
  ...Object.entries(value.evidence).map(([name, text]) => [`Evidence: ${name}`, text]),
] });

const Query = ({ query }) => h("section", null,
  h("h2", null, "Query ", query.name),
  h(Facts, { rows: [
    ["Batch", `${query.batch_id}${query.has_planned_batch ? ", and one planned" : ""}`], ["Sink", query.sink], ["Query id", query.query_id],
    ["Files", `${number(query.files)}, ${bytes(query.size_bytes)}`],
    ["Pinned settings", Object.keys(query.settings).length === 0 ? "none" : Object.entries(query.settings).map(([name, value]) => h("div", { key: name }, `${name}=${value}`))],
  ] }),
  query.positions.length > 0 && h(Positions, { caption: "Positions", positions: query.positions }));

function Difference({ conn, job, savepoint, other }) {
  const { value: listed } = useAnswer(ownUrl("roots", conn, "jobs", job, "savepoints"), { again: false });
  const others = (listed?.savepoints || []).filter((one) => one.savepoint_id !== savepoint);
  const choose = (event) => { window.location.href = event.target.value ? linkToDiff(conn, job, savepoint, event.target.value) : linkTo(conn, job, savepoint); };
  return h("section", null,
    h("h2", null, "Difference"),
    h("label", null, "Compare with ", h("select", { value: other || "", onChange: choose }, h("option", { value: "" }, "none"),
      others.map((one) => h("option", { key: one.savepoint_id, value: one.savepoint_id }, `${one.savepoint_id}, ${moment(one.taken_at_ms)}`)))),
    other && h(Changes, { conn, job, before: other, after: savepoint }));
}

function Changes({ conn, job, before, after }) {
  const url = ownUrl("roots", conn, "jobs", job, "diff");
  url.searchParams.set("before", before);
  url.searchParams.set("after", after);
  const { value, error } = useAnswer(url, { again: false });
  return h(Fragment, null, h(Fault, { text: error }), value && value.queries.map((query) => h("section", { key: query.name },
    h("h3", null, "Query ", query.name),
    h(Facts, { rows: [
      ["Batch", `${query.before ?? "none"} → ${query.after ?? "none"}`],
      ["Query id", query.same_query_id ? "the same" : "differs: another lineage of batches"],
      ...Object.entries(query.clusters).map(([source, [old, now]]) => [`Cluster of source ${source}`, `${old ?? "none"} → ${now ?? "none"}`]),
      ...Object.entries(query.confs).map(([name, [old, now]]) => [name, `${old ?? "not set"} → ${now ?? "not set"}`]),
      ...["shared", "added", "removed"].map((kind) => [`Files ${kind}`, `${number(query.files[kind].files)}, ${bytes(query.files[kind].size_bytes)}`]),
    ] }),
    query.offsets.length > 0 && h(Table, {
      caption: "Positions that moved", empty: "No position moved.", columns: ["Source", "Topic", "Partition", "Before", "After", "Records"],
      rows: query.offsets.filter((at) => at.before !== at.after).map((at) => [at.source, at.topic, at.partition, at.before ?? "none", at.after ?? "none",
        at.before == null || at.after == null ? "–" : number(at.after - at.before)]),
    }))));
}

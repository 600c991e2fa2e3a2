// What two versions of a job computed on the same records.
import { AskedBy } from "./dagruns.js";
import { ownUrl, useAnswer } from "./fetching.js";
import { Badge, Facts, Fault, Table, Time } from "./parts.js";
import { linkTo, linkToRun } from "./route.js";
import { number } from "./words.js";

const { createElement: h, Fragment } = globalThis.React;

const TONES = { same: "verified", differs: "failed", "not comparable": "starting" };
const Verdict = ({ of }) => h(Badge, { state: of, tone: TONES[of] });

// Where the old version ran once more, the word of that last driver counts.
export const comparisonsOf = (runs) => runs.filter((run) => run.comparison && !runs.some((other) => other.comparison?.again && other.comparison.new === run.generation));

export function Comparisons({ runs, conn, job }) {
  const found = comparisonsOf(runs);
  return found.length > 0 && h(Fragment, null,
    h("h2", null, "Comparisons of two versions"),
    h(Table, {
      caption: "Among the newest 20 runs", columns: ["Generation", "Ended", "Verdict", "Found", "From savepoint", "Asked by"],
      rows: found.map((run) => [
        h("a", { href: linkToRun(conn, job, run.generation) }, run.generation), h(Time, { at: run.comparison.ended_at_ms }), h(Verdict, { of: run.comparison.verdict }),
        h("div", { className: "reason" }, run.comparison.summary), h("a", { href: linkTo(conn, job, run.comparison.savepoint_id) }, run.comparison.savepoint_id),
        h(AskedBy, { asked: run.asked_by, otherwise: run.started_by }),
      ]),
    }));
}

export function Comparison({ found, conn, job, run, mayRead }) {
  const generation = (which) => h("a", { href: linkToRun(conn, job, which) }, `generation ${which}`);
  return h("section", null,
    h("h2", null, "Comparison ", h(Verdict, { of: found.verdict })),
    h(Facts, { rows: [
      ["Found", found.summary],
      ["From savepoint", h("a", { href: linkTo(conn, job, found.savepoint_id) }, found.savepoint_id)],
      ["Old version", generation(found.old)], ["New version", generation(found.new)],
      ["Old version again", found.again ? generation(found.again) : found.asks_again ? "has not compared yet: what differs may not be deterministic" : "not needed"],
    ] }),
    h(Table, {
      caption: "What each query would have given to its sink", empty: "No query.",
      columns: ["Query", "Verdict", "Records", "Rows, old", "New", "Equal", "Only old", "Only new", "Changed", "Notes", "Not compared"],
      rows: found.queries.map(({ name, verdict, notes, found: of }) => [
        name, h(Verdict, { of: verdict }), ...[of.input_rows, of.old_rows, of.new_rows, of.equal, of.only_old, of.only_new, of.changed].map(number),
        lines(notes), lines([of.not_comparable, ...of.untested]),
      ]),
    }),
    h("p", { className: "quiet" }, found.leaves_open),
    mayRead ? h(Rows, { conn, job, run }) : h("p", { className: "quiet" }, "You have no right to read logs, nor the rows that differ."));
}

const lines = (texts) => texts.filter(Boolean).map((text, at) => h("div", { key: at }, text));

// Rows and keys that differ, as the tables of all queries show them.
export const rowsOf = (queries) => queries.flatMap(({ name, found }) => [
  ...found.samples.map((row) => [name, row.kind, row.old, row.new]),
  ...found.states.filter((state) => !state.not_deterministic).flatMap((state) => state.samples.map((key) => [name, "state", key, null])),
]);

function Rows({ conn, job, run }) {
  const { value, error } = useAnswer(ownUrl("roots", conn, "jobs", job, "runs", run, "comparison"), { again: false });
  return h(Fragment, null, h(Fault, { text: error }),
    value && h(Table, { caption: "Rows that differ, some of each kind", columns: ["Query", "What", "Old", "New"], rows: rowsOf(value.queries).map((cells) => cells.map((cell) => cell ?? "–")), empty: "No row differs." }));
}

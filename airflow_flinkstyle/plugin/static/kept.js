// What a job keeps, how much that is, and why: counted once in ten minutes for everybody.
import { ownUrl, useAnswer } from "./fetching.js";
import { Facts, Fault, Table, Time } from "./parts.js";
import { linkTo } from "./route.js";
import { bytes } from "./words.js";

const { createElement: h, Fragment } = globalThis.React;

export function Kept({ conn, job }) {
  const { value, error } = useAnswer(ownUrl("roots", conn, "jobs", job, "usage"));
  return h("section", null,
    h("h2", null, "What is kept, and why"),
    h(Fault, { text: error || value?.not_counted }),
    value?.found && h(Found, { found: value.found, at: value.read_at_ms, conn, job }));
}

const Found = ({ found, at, conn, job }) => h(Fragment, null,
  h(Facts, { rows: [
    ["Together", bytes(found.total_bytes)],
    ["Savepoints", `${bytes(found.blob_bytes)}, of which none needs ${bytes(found.unneeded_bytes)}`],
    ["Checkpoints", bytes(found.checkpoint_bytes)],
    ["Counted", h(Time, { at })],
  ] }),
  h(Table, {
    caption: "Savepoints, as a prune without limits decides", empty: "The job has no savepoint.",
    columns: ["Savepoint", "Size", "Only its own", "Why"],
    rows: found.savepoints.map((one) => [h("a", { href: linkTo(conn, job, one.savepoint_id) }, one.savepoint_id), bytes(one.size_bytes), bytes(one.own_bytes), one.reason]),
  }),
  h(Table, {
    caption: "Who holds a savepoint", empty: "Nobody holds a savepoint.",
    columns: ["Savepoint", "Holder", "By", "Since", "Why"],
    rows: found.references.map((one) => [one.savepoint_id, one.holder, one.by, h(Time, { at: one.since_ms }), one.has_ended ? "has ended: the next prune releases it" : one.reason]),
  }),
  h(Table, {
    caption: "Checkpoints", empty: "The job has no checkpoint.",
    columns: ["Of generation", "Size", "Why"],
    rows: found.checkpoints.map((one) => [one.generations.join(", "), one.size_bytes == null ? "not seen from the API server" : bytes(one.size_bytes), one.goes ? `the next prune frees it: ${one.reason}` : one.reason]),
  }));

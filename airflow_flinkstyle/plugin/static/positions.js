// Where queries stood in each partition, by a savepoint.
import { ownUrl, useAnswer } from "./fetching.js";
import { Fault, Table, Time } from "./parts.js";
import { linkTo } from "./route.js";
import { number } from "./words.js";

const { createElement: h, Fragment } = globalThis.React;

export const Positions = ({ caption, positions }) => h(Table, {
  caption, columns: ["Source", "Cluster", "Topic", "Partition", "Next offset", "Unread then"],
  rows: positions.map((at) => [at.source, at.cluster, at.topic, at.partition, number(at.next_offset), number(at.unread)]),
});

// A running query's positions are in Spark's checkpoint; what the page can read is its newest savepoint.
export function NewestPositions({ conn, job, newest }) {
  const { value, error } = useAnswer(newest ? ownUrl("roots", conn, "jobs", job, "savepoints", newest.savepoint_id) : null, { again: false });
  if (!newest) return h("p", { className: "quiet" }, "The job has no savepoint that tells.");
  return h(Fragment, null,
    h("p", { className: "quiet" }, "By ", h("a", { href: linkTo(conn, job, newest.savepoint_id) }, newest.savepoint_id), ", taken ", h(Time, { at: newest.taken_at_ms })),
    h(Fault, { text: error }),
    value?.queries.map((query) => h(Positions, { key: query.name, caption: `Query ${query.name}`, positions: query.positions })));
}

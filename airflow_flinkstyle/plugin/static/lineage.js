// Which savepoint and which run came from which: a row for each generation, time from left to right.
import { linkTo, linkToRun } from "./route.js";
import { toneOf } from "./parts.js";
import { moment } from "./words.js";

const { createElement: h } = globalThis.React;
const LEFT = 118, STEP = 58, ROW = 44, RADIUS = 6;
const WORDS = { took: "took", started: "is where it started:", continued: "is continued in its checkpoint by", rewritten: "was made into" };

export function Lineage({ lineage, conn, job }) {
  if (!lineage.nodes.length) return h("p", { className: "quiet" }, "Nothing has happened yet.");
  const places = placed(lineage.nodes, lineage.edges);
  const rows = [...new Set(lineage.nodes.map((node) => node.row))].length;
  const width = Math.max(560, ...[...places.values()].map(([x]) => x + STEP)), height = rows * ROW + 12;
  return h("div", null,
    h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Lineage" }, h("svg", { viewBox: `0 0 ${width} ${height}`, className: "lineage", style: { width: `${width}px` }, role: "group", "aria-label": "Lineage of runs and savepoints" },
      lineage.edges.map((edge) => h(Line, { key: `${edge.source} ${edge.target}`, edge, places })),
      lineage.nodes.map((node) => h(Dot, { key: node.id, node, at: places.get(node.id), conn, job })))),
    h("p", { className: "quiet" }, "Boxes are runs, dots are savepoints; a dashed line is a start, a dotted one a rewrite.",
      lineage.left_out > 0 && ` ${lineage.left_out} older savepoints are left out.`),
    h("details", null, h("summary", null, "As a list"), h("ul", null, lineage.edges.map((edge) => h("li", { key: `${edge.source} ${edge.target}` },
      `${named(edge.source)} ${WORDS[edge.kind]} ${named(edge.target)}`)))));
}

const named = (id) => id.replace("run/", "generation ").replace("savepoint/", "");

// Rows by generation, the oldest first; in a row the run, then its savepoints by time.
// A rewritten savepoint is of the same moment as the one that it was made from, and stands after it.
export function placed(nodes, edges) {
  const made = new Map(edges.filter((edge) => edge.kind === "rewritten").map((edge) => [edge.target, edge.source]));
  const depth = (id) => (made.has(id) ? 1 + depth(made.get(id)) : 0);
  const places = new Map();
  const rows = [...new Set(nodes.map((node) => node.row))].sort((one, other) => one - other);
  const order = [...nodes].sort((one, other) => isRun(other) - isRun(one) || (one.at_ms ?? 0) - (other.at_ms ?? 0) || depth(one.id) - depth(other.id));
  const count = new Map();
  for (const node of order) {
    const at = isRun(node) ? 0 : (count.get(node.row) ?? 0) + 1;
    if (!isRun(node)) count.set(node.row, at);
    places.set(node.id, [LEFT + at * STEP, rows.indexOf(node.row) * ROW + 22]);
  }
  return places;
}

const isRun = (node) => Number(node.id.startsWith("run/"));

function Line({ edge, places }) {
  const [[x1, y1], [x2, y2]] = [places.get(edge.source), places.get(edge.target)];
  const bend = y1 === y2 ? `Q ${(x1 + x2) / 2} ${y1 - (edge.kind === "rewritten" ? 22 : 0)} ${x2} ${y2}` : `C ${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`;
  return h("path", { d: `M ${x1} ${y1} ${bend}`, className: `edge ${edge.kind}` }, h("title", null, `${named(edge.source)} ${WORDS[edge.kind]} ${named(edge.target)}`));
}

function Dot({ node, at, conn, job }) {
  const [x, y] = at, name = node.id.slice(node.id.indexOf("/") + 1);
  const title = h("title", null, `${named(node.id)}: ${node.state}, ${moment(node.at_ms)}`);
  if (isRun(node)) {
    return h("a", { href: linkToRun(conn, job, name), "aria-label": `generation ${name}, ${node.state}` },
      h("text", { x: LEFT - 14, y: y + 4, textAnchor: "end" }, `generation ${name}`),
      h("rect", { x: x - 7, y: y - 7, width: 14, height: 14, rx: 3, className: toneOf(node.state) }, title));
  }
  return h("a", { href: linkTo(conn, job, name), "aria-label": `savepoint ${name}, ${node.state}` },
    h("circle", { cx: x, cy: y, r: RADIUS, className: node.state === "damaged" ? "bad" : "dot" }, title));
}

// Runs as bars, savepoints as dots, migrations and upgrades as bars below them, failures as crosses, on one axis.
import { linkTo } from "./route.js";
import { toneOf } from "./parts.js";
import { count, lives, moment } from "./words.js";

const { createElement: h } = globalThis.React;
const WIDTH = 960, LEFT = 150, ROW = 22, MOST_RUNS = 8, GAP = 11;

// Places from left to right so far apart that each link can be hit, as far as there is room.
export function spread(places, right, gap = GAP) {
  const step = Math.min(gap, places.length > 1 ? (right - LEFT) / (places.length - 1) : gap), found = [];
  for (const place of places) found.push(found.length ? Math.max(place, found[found.length - 1] + step) : Math.max(place, LEFT));
  for (let at = found.length - 1, most = right; at >= 0; at -= 1, most = found[at + 1] - step) found[at] = Math.min(found[at], most);
  return found;
}

export function Timeline({ value, conn }) {
  const now = Date.now();
  const runs = value.runs.slice(0, MOST_RUNS).filter((run) => run.claimed_at_ms).reverse();
  const journals = value.journals.slice(0, 4).reverse();
  if (!runs.length && !value.savepoints.length) return h("p", { className: "quiet" }, "Nothing has happened yet.");
  const first = Math.min(...runs.map((run) => run.claimed_at_ms), ...(runs.length ? [] : value.savepoints.map((one) => one.taken_at_ms)), now - 60000);
  const x = (at) => LEFT + ((Math.min(Math.max(at, first), now) - first) / (now - first)) * (WIDTH - LEFT - 10);
  const saved = value.savepoints.filter((one) => one.taken_at_ms >= first).sort((one, other) => one.taken_at_ms - other.taken_at_ms || (one.parent === other.savepoint_id) - (other.parent === one.savepoint_id));
  const dots = spread(saved.map((one) => x(one.taken_at_ms)), WIDTH - 10);
  const wrong = value.trouble.filter((one) => one.at_ms >= first);
  const height = (runs.length + journals.length + 2) * ROW + 24;
  const bar = (row, from, to, tone, label, title) => h("g", { key: `${label}-${row}` },
    h("text", { x: LEFT - 8, y: row * ROW + 16, textAnchor: "end" }, label.length > 16 ? `${label.slice(0, 15)}…` : label),
    h("rect", { x: x(from), y: row * ROW + 4, width: Math.max(3, x(to) - x(from)), height: ROW - 8, rx: 3, className: tone }, h("title", null, title)));
  return h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Timeline" }, h("svg", { viewBox: `0 0 ${WIDTH} ${height}`, className: "timeline", role: "group", "aria-label": `${count(runs.length, "run")}, ${count(saved.length, "savepoint")} and ${count(wrong.length, "failure")} over time` },
    runs.map((run, row) => bar(row, run.claimed_at_ms, lives(run.state) ? now : run.heartbeat_at_ms || run.claimed_at_ms, toneOf(run.state), `generation ${run.generation}`, `${run.state}; started by ${run.started_by}`)),
    h("text", { x: LEFT - 8, y: runs.length * ROW + 16, textAnchor: "end" }, "savepoints"),
    saved.map((one, at) => h("a", { key: one.savepoint_id, href: linkTo(conn, value.job, one.savepoint_id), "aria-label": one.savepoint_id },
      h("circle", { cx: dots[at], cy: runs.length * ROW + 12, r: 5, className: one.damaged ? "bad" : "dot" }, h("title", null, `${one.savepoint_id}, ${moment(one.taken_at_ms)}`)))),
    h("text", { x: LEFT - 8, y: (runs.length + 1) * ROW + 16, textAnchor: "end" }, "failures"),
    wrong.map((one, at) => cross(x(one.at_ms), (runs.length + 1) * ROW + 12, `${one.kind}, ${moment(one.at_ms)}: ${one.text}`, at)),
    journals.map((one, at) => bar(runs.length + 2 + at, one.begun_at_ms, one.ended ? one.newest_at_ms : now, one.went_back ? "bad" : one.ended ? "good" : "busy", one.id, `${one.id}: ${one.failure || one.phase}`)),
    h("text", { x: LEFT, y: height - 6 }, moment(first)), h("text", { x: WIDTH - 10, y: height - 6, textAnchor: "end" }, "now")));
}

const cross = (x, y, title, key) => h("path", { key, d: `M ${x - 5} ${y - 5} L ${x + 5} ${y + 5} M ${x - 5} ${y + 5} L ${x + 5} ${y - 5}`, className: "cross" }, h("title", null, title));

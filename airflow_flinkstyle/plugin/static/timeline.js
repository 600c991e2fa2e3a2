// Runs as bars, savepoints as dots, migrations and upgrades as bars below them, failures as crosses, on one axis.
import { linkTo } from "./route.js";
import { moment } from "./words.js";

const { createElement: h } = globalThis.React;
const WIDTH = 960, LEFT = 150, ROW = 22, MOST_RUNS = 8;

export function Timeline({ value, conn }) {
  const now = Date.now();
  const runs = value.runs.slice(0, MOST_RUNS).filter((run) => run.claimed_at_ms).reverse();
  const journals = value.journals.slice(0, 4).reverse();
  if (!runs.length && !value.savepoints.length) return h("p", { className: "quiet" }, "Nothing has happened yet.");
  const first = Math.min(...runs.map((run) => run.claimed_at_ms), ...(runs.length ? [] : value.savepoints.map((one) => one.taken_at_ms)), now - 60000);
  const x = (at) => LEFT + ((Math.min(Math.max(at, first), now) - first) / (now - first)) * (WIDTH - LEFT - 10);
  const saved = value.savepoints.filter((one) => one.taken_at_ms >= first);
  const wrong = value.trouble.filter((one) => one.at_ms >= first);
  const height = (runs.length + journals.length + 2) * ROW + 24;
  const bar = (row, from, to, tone, label, title) => h("g", { key: `${label}-${row}` },
    h("text", { x: LEFT - 8, y: row * ROW + 16, textAnchor: "end" }, label.length > 16 ? `${label.slice(0, 15)}…` : label),
    h("rect", { x: x(from), y: row * ROW + 4, width: Math.max(3, x(to) - x(from)), height: ROW - 8, rx: 3, className: tone }, h("title", null, title)));
  const lives = (run) => run.generation === value.generation && ["running", "starting"].includes(value.state);
  const tone = (run) => (lives(run) ? "good" : run.state === "failed" || (run.generation === value.generation && value.state === "dead") ? "bad" : "calm");
  return h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Timeline" }, h("svg", { viewBox: `0 0 ${WIDTH} ${height}`, className: "timeline", role: "group", "aria-label": `${runs.length} runs, ${saved.length} savepoints and ${wrong.length} failures over time` },
    runs.map((run, row) => bar(row, run.claimed_at_ms, lives(run) ? now : run.heartbeat_at_ms || run.claimed_at_ms, tone(run), `generation ${run.generation}`, `${run.state}; started by ${run.started_by}`)),
    h("text", { x: LEFT - 8, y: runs.length * ROW + 16, textAnchor: "end" }, "savepoints"),
    saved.map((one) => h("a", { key: one.savepoint_id, href: linkTo(conn, value.job, one.savepoint_id), "aria-label": one.savepoint_id },
      h("circle", { cx: x(one.taken_at_ms), cy: runs.length * ROW + 12, r: 5, className: one.damaged ? "bad" : "dot" }, h("title", null, `${one.savepoint_id}, ${moment(one.taken_at_ms)}`)))),
    h("text", { x: LEFT - 8, y: (runs.length + 1) * ROW + 16, textAnchor: "end" }, "failures"),
    wrong.map((one, at) => cross(x(one.at_ms), (runs.length + 1) * ROW + 12, `${one.kind}, ${moment(one.at_ms)}: ${one.text}`, at)),
    journals.map((one, at) => bar(runs.length + 2 + at, one.begun_at_ms, one.ended ? one.newest_at_ms : now, one.went_back ? "bad" : "busy", one.id, `${one.id}: ${one.failure || one.phase}`)),
    h("text", { x: LEFT, y: height - 6 }, moment(first)), h("text", { x: WIDTH - 10, y: height - 6, textAnchor: "end" }, "now")));
}

const cross = (x, y, title, key) => h("path", { key, d: `M ${x - 5} ${y - 5} L ${x + 5} ${y + 5} M ${x - 5} ${y + 5} L ${x + 5} ${y - 5}`, className: "cross" }, h("title", null, title));

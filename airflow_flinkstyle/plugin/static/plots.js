// Plots as inline SVG: lag, batch time, rates, size of savepoints and what was new in each.
import { bytes, duration, moment, number, rate } from "./words.js";

const { createElement: h, useState } = globalThis.React;
const WIDTH = 350, HEIGHT = 120, LEFT = 80, BOTTOM = 24;
const SPANS = [["60", "2 hours"], ["600", "1 day"], ["3600", "1 week"], ["86400", "120 days"]];

export function Plots({ value }) {
  const [step, setStep] = useState("60");
  const points = value.history[step] || [];
  const from = points.length ? points[0].at_s * 1000 : null;
  const column = (name) => points.map((row) => [row.at_s * 1000, row[name]]);
  const sizes = (name) => value.savepoints.map((one) => [one.taken_at_ms, one[name]]).reverse();
  return h("div", null,
    h("div", { role: "group", "aria-label": "Time" }, SPANS.map(([key, words]) =>
      h("button", { key, type: "button", "aria-pressed": key === step, onClick: () => setStep(key) }, words))),
    h("div", { className: "plots" },
      h(Plot, { title: "Lag, records", points: column("lag_records"), say: number, from }),
      h(Plot, { title: "Longest batch", points: column("batch_ms"), say: duration, from }),
      h(Plot, { title: "Rows per second, in", points: column("input_rows_per_s"), say: rate, from }),
      h(Plot, { title: "Rows per second, processed", points: column("processed_rows_per_s"), say: rate, from }),
      h(Plot, { title: "Size of savepoints", points: sizes("size_bytes"), say: bytes, dots: true }),
      h(Plot, { title: "New in each savepoint", points: sizes("new_bytes"), say: bytes, dots: true })));
}

// From the first moment of which anything is known until now: a line that ends before is of a job that was down.
export function axisOf(points, from, now = Date.now()) {
  const first = Math.min(from ?? Infinity, ...points.map(([x]) => x)), last = Math.max(now, ...points.map(([x]) => x));
  return { first, last, ticks: [first, (first + last) / 2, last] };
}

function Plot({ title, points, say, dots, from }) {
  const known = points.filter(([, y]) => y != null);
  if (!known.length) return h("figure", null, h("figcaption", null, title), h("p", { className: "quiet" }, "Nothing was recorded."));
  const most = Math.max(...known.map(([, y]) => y), 1), { first, last, ticks } = axisOf(known, from);
  const at = ([x, y]) => [LEFT + ((x - first) / (last - first || 1)) * (WIDTH - LEFT - 8), HEIGHT - BOTTOM - (y / most) * (HEIGHT - BOTTOM - 10)];
  const line = known.map((point) => at(point).map((one) => one.toFixed(1)).join(",")).join(" ");
  const newest = known[known.length - 1];
  return h("figure", null,
    h("figcaption", null, `${title}: ${say(newest[1])}`),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, newest ${say(newest[1])}, highest ${say(most)}` },
      h("line", { x1: LEFT, y1: HEIGHT - BOTTOM, x2: WIDTH - 8, y2: HEIGHT - BOTTOM, className: "axis" }),
      [most, most / 2, 0].map((y) => {
        const [, place] = at([first, y]);
        return h("g", { key: `y${y}` }, h("line", { x1: LEFT - 4, y1: place, x2: LEFT, y2: place, className: "axis" }), h("text", { x: LEFT - 8, y: place + 4, textAnchor: "end" }, say(y)));
      }),
      ticks.map((x, place) => {
        const [left] = at([x, 0]);
        return h("g", { key: `x${place}` }, h("line", { x1: left, y1: HEIGHT - BOTTOM, x2: left, y2: HEIGHT - BOTTOM + 4, className: "axis" }),
          h("text", { x: left, y: HEIGHT - 3, textAnchor: ["start", "middle", "end"][place] }, place === 2 ? "now" : moment(x).slice(place === 1 && last - first < 86400000 ? 11 : 5, 16)));
      }),
      h("polyline", { points: line, className: "line" }),
      (dots || known.length === 1) && known.map((point, number_) => {
        const [x, y] = at(point);
        return h("circle", { key: number_, cx: x, cy: y, r: 3, className: "dot" }, h("title", null, `${moment(point[0])}: ${say(point[1])}`));
      })));
}

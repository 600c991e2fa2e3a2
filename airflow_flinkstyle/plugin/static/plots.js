// Plots as inline SVG: lag, batch time, rates, size of savepoints and what was new in each.
import { bytes, duration, moment, number, rate } from "./words.js";

const { createElement: h, useState } = globalThis.React;
const WIDTH = 480, HEIGHT = 130, LEFT = 76, BOTTOM = 20;
const SPANS = [["60", "2 hours"], ["600", "1 day"], ["3600", "1 week"], ["86400", "120 days"]];

export function Plots({ value }) {
  const [step, setStep] = useState("60");
  const points = value.history[step] || [];
  const column = (place) => points.map((row) => [row[0] * 1000, row[place]]);
  const sizes = (name) => value.savepoints.map((one) => [one.taken_at_ms, one[name]]).reverse();
  return h("div", null,
    h("div", { role: "group", "aria-label": "Time" }, SPANS.map(([key, words]) =>
      h("button", { key, type: "button", "aria-pressed": key === step, onClick: () => setStep(key) }, words))),
    h("div", { className: "plots" },
      h(Plot, { title: "Lag, records", points: column(4), say: number }),
      h(Plot, { title: "Longest batch", points: column(3), say: duration }),
      h(Plot, { title: "Rows per second, in", points: column(1), say: rate }),
      h(Plot, { title: "Rows per second, processed", points: column(2), say: rate }),
      h(Plot, { title: "Size of savepoints", points: sizes("size_bytes"), say: bytes, dots: true }),
      h(Plot, { title: "New in each savepoint", points: sizes("new_bytes"), say: bytes, dots: true })));
}

function Plot({ title, points, say, dots }) {
  const known = points.filter(([, y]) => y != null);
  if (!known.length) return h("figure", null, h("figcaption", null, title), h("p", { className: "quiet" }, "Nothing was recorded."));
  const xs = known.map(([x]) => x), most = Math.max(...known.map(([, y]) => y), 1);
  const first = Math.min(...xs), span = Math.max(...xs) - first || 1;
  const at = ([x, y]) => [LEFT + ((x - first) / span) * (WIDTH - LEFT - 8), HEIGHT - BOTTOM - (y / most) * (HEIGHT - BOTTOM - 10)];
  const line = known.map((point) => at(point).map((one) => one.toFixed(1)).join(",")).join(" ");
  const newest = known[known.length - 1];
  return h("figure", null,
    h("figcaption", null, `${title}: ${say(newest[1])}`),
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}, newest ${say(newest[1])}, highest ${say(most)}` },
      h("line", { x1: LEFT, y1: HEIGHT - BOTTOM, x2: WIDTH - 8, y2: HEIGHT - BOTTOM, className: "axis" }),
      h("text", { x: LEFT - 6, y: 14, textAnchor: "end" }, say(most)),
      h("text", { x: LEFT - 6, y: HEIGHT - BOTTOM, textAnchor: "end" }, say(0)),
      h("text", { x: LEFT, y: HEIGHT - 4 }, moment(first).slice(0, 16)),
      h("text", { x: WIDTH - 8, y: HEIGHT - 4, textAnchor: "end" }, moment(newest[0]).slice(0, 16)),
      h("polyline", { points: line, className: "line" }),
      (dots || known.length === 1) && known.map((point, number_) => {
        const [x, y] = at(point);
        return h("circle", { key: number_, cx: x, cy: y, r: 3, className: "dot" }, h("title", null, `${moment(point[0])}: ${say(point[1])}`));
      })));
}

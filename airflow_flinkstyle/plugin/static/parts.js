// What several views are made of.
import { ago, moment } from "./words.js";

const { createElement: h, useEffect, useRef } = globalThis.React;

const TONES = {
  running: "good", closed: "calm", starting: "busy", draining: "busy", "never started": "calm",
  failed: "bad", dead: "bad", unknown: "bad", unreadable: "bad", verified: "good", "went back": "bad", calm: "calm",
  done: "good", standby: "busy", "waits for approval": "busy", restarted: "busy",
};

export const toneOf = (state) => TONES[state] || "calm";

export const Badge = ({ state, tone }) => h("span", { className: `badge ${TONES[tone || state] || "calm"}` }, state);

// A page outside of Airflow: the API lets through http and https only.
export const Outside = ({ href, otherwise }) => (href ? h("a", { href, target: "_blank", rel: "noopener noreferrer" }, href) : otherwise ?? "–");

// A dialog that is open as long as it is there; the browser keeps the focus in it and gives it back.
export function useDialog() {
  const dialog = useRef(null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  return dialog;
}

export const Time = ({ at }) => (at == null ? "–" : h("time", { title: moment(at), dateTime: new Date(at).toISOString() }, ago(at)));

export const Fault = ({ text }) => (text ? h("p", { className: "fault", role: "alert" }, text) : null);

export function Table({ caption, columns, rows, empty }) {
  if (!rows.length) return h("p", { className: "quiet" }, empty || "None.");
  return h("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": caption },
    h("table", null,
      h("caption", null, caption),
      h("thead", null, h("tr", null, columns.map((name) => h("th", { key: name, scope: "col" }, name)))),
      h("tbody", null, rows.map((cells, at) => h("tr", { key: at }, cells.map((cell, place) => h("td", { key: place }, cell)))))));
}

// A text of several lines: the sentence whole, and what is behind it for those who want it.
export function Words({ text }) {
  const [first, ...more] = `${text ?? "–"}`.trim().split("\n");
  return more.length ? h("details", null, h("summary", null, first), h("pre", null, more.join("\n"))) : first;
}

export const Facts = ({ rows }) => h("dl", null, rows.flatMap(([name, value]) => [h("dt", { key: `${name}-t` }, name), h("dd", { key: name }, value ?? "–")]));

export const keptBecause = (savepoint) => [savepoint.pinned ? `pinned: ${savepoint.pinned}` : savepoint.in_use || "retention decides", savepoint.beside].filter(Boolean).join("; ");

export function Checked({ savepoint }) {
  if (!savepoint) return "–";
  if (savepoint.damaged) return h("span", { className: "badge bad", title: savepoint.damaged }, "damaged");
  if (!savepoint.verified) return h("span", { className: "badge calm" }, "not verified");
  return h("span", { className: "badge good", title: moment(savepoint.verified.at_ms) }, `verified (${savepoint.verified.level})`);
}

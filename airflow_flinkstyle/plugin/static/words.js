// Numbers and times as people read them.

export const count = (value, one) => `${number(value)} ${one}${value === 1 ? "" : "s"}`;

// Numbers of a driver that does not run any more are as old as its last word.
export const lives = (state) => ["running", "starting", "draining"].includes(state);
export const whenSeen = (state) => (lives(state) ? "" : " when last seen");

export const number = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en-US"));

export function rate(value) {
  if (value == null) return "–";
  return value >= 100 ? number(value) : value.toFixed(1);
}

export function duration(ms) {
  if (ms == null) return "–";
  const s = ms / 1000;
  if (s > 0 && s < 0.05) return "under 0.1 s";
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

export const ago = (atMs) => (atMs == null ? "–" : `${duration(Math.max(0, Date.now() - atMs))} ago`);

export const moment = (atMs) => (atMs == null ? "–" : `${new Date(atMs).toISOString().slice(0, 19).replace("T", " ")} UTC`);

export function bytes(value) {
  if (value == null) return "–";
  let amount = value;
  for (const unit of ["bytes", "kB", "MB", "GB", "TB"]) {
    if (amount < 1000 || unit === "TB") return unit === "bytes" ? `${Math.round(amount)} bytes` : `${amount.toFixed(1)} ${unit}`;
    amount /= 1000;
  }
  return "";
}

export const batches = (found) =>
  Object.entries(found || {}).map(([query, batch]) => `${query} ${batch}`).join(", ") || "none";

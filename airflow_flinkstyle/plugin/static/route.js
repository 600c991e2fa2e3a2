// Where the page is: #/<connection>/<job>?run=<generation> or #/<connection>/<job>/<savepoint>?diff=<other savepoint>

export function parseRoute(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [conn, job, savepoint] = path.split("/").filter(Boolean).map(decoded);
  const asked = new URLSearchParams(query || "");
  return { conn, job, savepoint, other: asked.get("diff"), run: asked.get("run") };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody typed it
  }
}

// Airflow's page has a <base>, so a bare "#..." would lead to its front page.
export function linkTo(...parts) {
  return `${window.location.pathname}#/${parts.map(encodeURIComponent).join("/")}`;
}

export function linkToDiff(conn, job, savepoint, other) {
  return `${linkTo(conn, job, savepoint)}?diff=${encodeURIComponent(other)}`;
}

export const linkToRun = (conn, job, generation) => `${linkTo(conn, job)}?run=${encodeURIComponent(generation)}`;

export const airflowBase = new URL("../../", import.meta.url);

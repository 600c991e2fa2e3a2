// Where the page is: #/<connection>/<job>/<savepoint>?diff=<other savepoint>

export function parseRoute(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const [conn, job, savepoint] = path.split("/").filter(Boolean).map(decoded);
  return { conn, job, savepoint, other: new URLSearchParams(query || "").get("diff") };
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

export const airflowBase = new URL("../../", import.meta.url);

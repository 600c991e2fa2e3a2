// Asks the page's own API, below /flinkstyle/api, and Airflow's; both by the cookie of the UI.
import { airflowBase } from "./route.js";

const { useCallback, useEffect, useState } = globalThis.React;
const OWN = new URL("flinkstyle/api/", airflowBase);
const EVERY_MS = 10000;
const ASKED_MOST = 15;
const NOTHING = { value: null, error: null };

export const ownUrl = (...parts) => new URL(parts.map(encodeURIComponent).join("/"), OWN);
export const airflowUrl = (...parts) => new URL(["api", "v2", ...parts.map(encodeURIComponent)].join("/"), airflowBase);

export async function ask(url, options) {
  return (await asked(url, options)).body;
}

// For what a person asked for once: a store or a broker may take longer than the API server waits for it, and its
// answer is kept for who asks again.
export async function askUntilTold(url) {
  for (let left = ASKED_MOST; ; left -= 1) {
    try {
      return await ask(url);
    } catch (error) {
      if (error.code !== "STORE_BUSY" || left <= 1) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function asked(url, options) {
  let answer;
  try {
    answer = await fetch(url, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("Airflow's API server does not answer.");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(sentence(answer.status, body)), { status: answer.status, code: body.error?.code });
  return { body, stale: stale(answer) };
}

// An answer that is older than it should be says so in its header: the store gave no newer one.
function stale(answer) {
  if (!answer.headers.get("Warning")) return null;
  return `The store does not answer now. What is shown was read ${answer.headers.get("Age")} s ago.`;
}

function sentence(status, body) {
  if (body.error) return `${body.error.problem} ${body.error.state_after} ${body.error.remedy}`;
  if (status === 401) return "You are not logged in, or no longer. Reload this page.";
  if (status === 404 && body.detail === "Not Found") return "Nothing has this address: no name holds a slash. Go back to the list.";
  if (typeof body.detail === "string") return body.detail;
  if (Array.isArray(body.detail)) return body.detail.map((one) => `${[one.loc].flat().pop()}: ${one.msg}.`).join(" ");
  return body.detail ? JSON.stringify(body.detail) : `The API server answered with status ${status}.`;
}

// Reads again every ten seconds while the page is visible, and every second while its jobs are being read; but a
// store that has failed may be read for long. An error keeps what was read before. Without an address there is
// nothing, also where there was one before.
export function useAnswer(url, { again = true } = {}) {
  const [state, setState] = useState(NOTHING);
  const address = url ? url.href : null;
  const read = useCallback(async () => {
    if (!address) return;
    try {
      const { body, stale: error } = await asked(address);
      setState({ value: body, error });
    } catch (error) {
      setState((before) => ({ ...before, error: error.message }));
    }
  }, [address]);
  const loading = Boolean(state.value?.roots?.some((root) => root.loading || (root.reading && !root.error)));
  useEffect(() => {
    read();
    if (!again) return undefined;
    const timer = setInterval(() => document.hidden || read(), loading ? 1000 : EVERY_MS);
    return () => clearInterval(timer);
  }, [read, again, loading]);
  return { ...(address ? state : NOTHING), read };
}

// What the user may do, and the DAGs of a job's buttons.
export function useActions(conn, job) {
  const url = ownUrl("roots", conn, "actions");
  if (job) url.searchParams.set("job", job);
  return useAnswer(url, { again: false });
}

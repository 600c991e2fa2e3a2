// What a start from a savepoint would meet: a dry run. Nothing is started.
import { askUntilTold, ownUrl } from "./fetching.js";
import { Badge, Facts, Fault, Table } from "./parts.js";
import { bytes, number } from "./words.js";

const { createElement: h, Fragment, useState } = globalThis.React;

const WAYS = {
  continue: "Continue: every batch once",
  fork: "Fork: batches since are run again, as a new query",
  "re-emit": "Re-emit: batches since are run again, under the same ids",
};

export function Start({ conn, job, savepoint, mayAskKafka }) {
  const [found, setFound] = useState(null);
  const [fault, setFault] = useState(null);
  const [busy, setBusy] = useState(false);
  const [connections, setConnections] = useState(null);
  const look = async (names) => {
    setBusy(true);
    try {
      const url = ownUrl("roots", conn, "jobs", job, "savepoints", savepoint, "start");
      for (const name of names) url.searchParams.append("kafka_conn_id", name);
      const answer = await askUntilTold(url);
      setFound(answer);
      setConnections((before) => before ?? answer.kafka_connections.join(" "));
      setFault(null);
    } catch (refused) {
      setFault(refused.message);
    }
    setBusy(false);
  };
  const askKafka = (event) => {
    event.preventDefault();
    look((connections || "").split(/[\s,]+/).filter(Boolean));
  };
  return h("section", null,
    h("h2", null, "What a start from it would meet"),
    h("p", { className: "quiet" }, "By the job's records, and without a driver: nothing is started, claimed or stopped."),
    h("p", { className: "actions" }, h("button", { type: "button", disabled: busy, onClick: () => look([]) }, busy ? "Looking …" : "Look")),
    h(Fault, { text: fault }),
    found && mayAskKafka && h("form", { onSubmit: askKafka, className: "line" },
      h("label", null, "Kafka connections to ask for its positions ", h("input", { value: connections ?? "", onChange: (event) => setConnections(event.target.value), required: true })),
      h("button", { type: "submit", disabled: busy }, "Ask Kafka")),
    found && h(Found, { found }));
}

// What a start would come to, for each choice about the batches since.
function verdict(found, way) {
  const checks = [...found.checks, ...(found.ways[way] || [])];
  const refused = checks.filter((one) => one.verdict === "refused"), open = checks.filter((one) => one.verdict === "not judged");
  if (refused.length) return `refused: ${refused.map((one) => one.code).join(", ")}`;
  return `nothing refuses it${open.length ? `; ${open.length} not judged` : ""}`;
}

const Found = ({ found }) => h("div", { role: "status" },
  h(Facts, { rows: Object.entries(WAYS).map(([way, words]) => [words, h("strong", null, verdict(found, way))]) }),
  h(Facts, { rows: [
    ["Restores", `${number(found.restores_files)} files, ${bytes(found.restores_bytes)}`],
    ["Batches since", Object.entries(found.since).map(([query, count]) => h("div", { key: query }, `${query}: ${count == null ? "not known" : number(count)}`))],
  ] }),
  h(Checks, { caption: "Whatever is chosen", checks: found.checks }),
  Object.entries(WAYS).map(([way, words]) => h(Checks, { key: way, caption: words, checks: found.ways[way] || [] })));

const TONES = { passes: "verified", refused: "failed", "not judged": "calm" };

const Checks = ({ caption, checks }) => h(Table, {
  caption, columns: ["Check", "Verdict", "Found", "What to do"], empty: `${caption}: nothing to check.`,
  rows: checks.map((one) => [one.about, h(Badge, { state: one.verdict, tone: TONES[one.verdict] }), one.code ? h(Fragment, null, h("code", null, one.code), " ", one.says) : one.says, one.remedy ?? "–"]),
});

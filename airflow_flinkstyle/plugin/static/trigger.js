// A DAG's form with what the page knows filled in. Airflow itself starts the run, and checks the values and the
// user's rights; its own form takes no values from an address, so the form is here.
import { airflowUrl, ask, ownUrl, useAnswer } from "./fetching.js";
import { Field, isNeeded, typed } from "./fields.js";
import { RunLink, RunsUnderWay } from "./dagruns.js";
import { Fault, useDialog } from "./parts.js";

const { createElement: h, Fragment, useState } = globalThis.React;

// Named when the form opens, so that a second click, or a second answer to the same form, starts no second run.
const newRunId = () => `page__${new Date().toISOString()}__${Math.random().toString(36).slice(2, 8)}`;

export function TriggerForm({ dag, words, conn, savepoint, known, close }) {
  const dialog = useDialog();
  const { value, error } = useAnswer(airflowUrl("dags", dag, "details"), { again: false });
  const [conf, setConf] = useState(known);
  const [runId] = useState(newRunId);
  const [fault, setFault] = useState(null);
  const [busy, setBusy] = useState(false);
  const [run, setRun] = useState(null);
  const trigger = async (event) => {
    event.preventDefault();
    setBusy(true);
    try {
      setRun(await triggered(dag, runId, typed(conf, value.params), { conn, job: known.job, savepoint }));
      setFault(null);
    } catch (refused) {
      setFault(refused.message);
    }
    setBusy(false);
  };
  return h("dialog", { ref: dialog, onClose: close, "aria-label": words },
    h("form", { onSubmit: trigger },
      h("h2", null, words),
      h(Fault, { text: error || fault }),
      value?.is_paused && h("p", { className: "quiet" }, "This DAG is paused: its run waits until the DAG is unpaused."),
      !run && value && h(RunsUnderWay, { dag, job: known.job, most: value.max_active_runs }),
      run ? h("p", { role: "status" }, h(RunLink, { run })) : h(Fields, { params: value?.params || {}, conf, setConf, known }),
      h("p", { className: "actions" },
        !run && h("button", { type: "submit", disabled: !value || busy, className: "strong" }, "Trigger"),
        h("button", { type: "button", onClick: () => dialog.current?.close() }, run ? "Close" : "Cancel"))));
}

// The savepoint may have been disposed of while the form was open: then nothing is triggered.
async function triggered(dag, runId, conf, { conn, job, savepoint }) {
  if (savepoint) await ask(ownUrl("roots", conn, "jobs", job, "savepoints", savepoint));
  const body = JSON.stringify({ dag_run_id: runId, logical_date: null, conf });
  const options = { method: "POST", body, headers: { "Content-Type": "application/json" } };
  try {
    return await ask(airflowUrl("dags", dag, "dagRuns"), options);
  } catch (refused) {
    if (refused.status === 409) return { dag_id: dag, dag_run_id: runId, state: "triggered already" };
    throw refused;
  }
}

// What the DAG puts into a section of its own is behind one click, unless something is needed or filled in there.
function Fields({ params, conf, setConf, known }) {
  const sections = new Map();
  for (const [name, param] of Object.entries(params)) {
    const section = param.schema?.section || "";
    sections.set(section, [...(sections.get(section) || []), [name, param]]);
  }
  const fields = (list) => list.map(([name, param]) => h(Field, {
    key: name, name, param, value: conf[name], set: (to) => setConf((before) => ({ ...before, [name]: to })),
  }));
  const isOpen = ([name, param]) => (name in known && name !== "flinkstyle_conn_id") || (isNeeded(param) && (param.value ?? "") === "");
  return h(Fragment, null, fields(sections.get("") || []), [...sections].filter(([section]) => section).map(([section, list]) =>
    h("details", { key: section, open: list.some(isOpen) }, h("summary", null, section), fields(list))));
}

// Buttons that open a DAG's form with what the page knows filled in. Airflow itself starts the run, checks the
// values and the user's rights; its own form takes no values from an address, so the form is here.
import { airflowUrl, ask, useAnswer } from "./fetching.js";
import { Fault } from "./parts.js";
import { airflowBase } from "./route.js";

const { createElement: h, Fragment, useEffect, useRef, useState } = globalThis.React;

const WORDS = {
  take_savepoint: "Take a savepoint", start_job: "Start", upgrade_job: "Upgrade", migrate_kafka_cluster: "Migrate to another Kafka cluster",
};

export function Actions({ conn, dags, known }) {
  const [open, setOpen] = useState(null);
  if (!dags.length) return null;
  return h("p", { className: "actions" },
    dags.map((dag) => h("button", { key: dag, type: "button", onClick: () => setOpen(dag) }, WORDS[dag] || dag)),
    open && h(TriggerForm, { dag: open, known: { ...known, flinkstyle_conn_id: conn }, close: () => setOpen(null) }));
}

function TriggerForm({ dag, known, close }) {
  const dialog = useRef(null);
  const { value, error } = useAnswer(airflowUrl("dags", dag, "details"), { again: false });
  const [conf, setConf] = useState(known);
  const [fault, setFault] = useState(null);
  const [run, setRun] = useState(null);
  useEffect(() => { dialog.current?.showModal(); }, []);
  const params = Object.entries(value?.params || {});
  const trigger = async (event) => {
    event.preventDefault();
    try {
      const body = JSON.stringify({ logical_date: null, conf: typed(conf, value.params) });
      setRun(await ask(airflowUrl("dags", dag, "dagRuns"), { method: "POST", body, headers: { "Content-Type": "application/json" } }));
      setFault(null);
    } catch (refused) {
      setFault(refused.message);
    }
  };
  return h("dialog", { ref: dialog, onClose: close, "aria-label": WORDS[dag] || dag },
    h("form", { onSubmit: trigger },
      h("h2", null, WORDS[dag] || dag),
      h(Fault, { text: error || fault }),
      value?.is_paused && h("p", { className: "quiet" }, "This DAG is paused: its run waits until the DAG is unpaused."),
      run ? h("p", { role: "status" }, "Started: ", h("a", { href: new URL(`dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run.dag_run_id)}`, airflowBase).href }, run.dag_run_id))
        : params.map(([name, param]) => h(Field, { key: name, name, param, value: conf[name], set: (to) => setConf((before) => ({ ...before, [name]: to })) })),
      h("p", { className: "actions" },
        !run && h("button", { type: "submit", disabled: !value, className: "strong" }, "Trigger"),
        h("button", { type: "button", onClick: () => dialog.current?.close() }, run ? "Close" : "Cancel"))));
}

function Field({ name, param, value, set }) {
  const schema = param.schema || {};
  const shown = value ?? (param.value == null ? "" : typeof param.value === "object" ? JSON.stringify(param.value) : String(param.value));
  const change = (event) => set(event.target.value);
  const input = schema.enum
    ? h("select", { name, value: shown, onChange: change }, schema.enum.map((one) => h("option", { key: one, value: one }, schema.values_display?.[one] || one)))
    : schema.type === "boolean"
      ? h("select", { name, value: shown, onChange: change }, h("option", { value: "false" }, "no"), h("option", { value: "true" }, "yes"))
      : h("input", { name, value: shown, onChange: change });
  return h("label", null, h("span", null, schema.title || name), input,
    typeof param.description === "string" && h("small", null, param.description));
}

// Only what was filled in or changed is sent, in the type that the DAG expects; the rest has the DAG's defaults.
function typed(conf, params) {
  const sent = {};
  for (const [name, text] of Object.entries(conf)) {
    if (!(name in params) || text === "") continue;
    const types = [params[name].schema?.type].flat();
    sent[name] = types.includes("string") || typeof text !== "string" ? text : parsed(text, types);
  }
  return sent;
}

function parsed(text, types) {
  if (types.includes("array") && !text.trim().startsWith("[")) return text.split("\n").join(" ").split(" ").filter(Boolean);
  try {
    return JSON.parse(text);
  } catch {
    return text; // Airflow says what it expects
  }
}

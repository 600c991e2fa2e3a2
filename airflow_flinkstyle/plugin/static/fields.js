// One parameter of a DAG as a field of a form, and what is typed there as the DAG expects it.
const { createElement: h, Fragment } = globalThis.React;

const typesOf = (param) => [param.schema?.type].flat();

export const isNeeded = (param) => typesOf(param)[0] !== undefined && !typesOf(param).includes("null");

export function Field({ name, param, value, set }) {
  const schema = param.schema || {}, types = typesOf(param);
  const shown = value ?? (param.value == null ? "" : typeof param.value === "object" ? JSON.stringify(param.value) : String(param.value));
  const common = { name, value: shown, onChange: (event) => set(event.target.value), required: isNeeded(param) };
  const described = typeof param.description === "string" && param.description;
  return h("label", null, h("span", null, schema.title || name), input(schema, types, common), described && h("small", null, described));
}

function input(schema, types, common) {
  if (schema.enum) return choice(common, schema.enum.map((one) => [one ?? "", schema.values_display?.[one] || one || "–"]));
  if (types.includes("array")) return h(Fragment, null, h("textarea", { ...common, rows: 3, autoComplete: "off" }), h("small", null, "One per line. A single line is split at its spaces; what is in quotes stays together. "));
  if (types.includes("boolean")) return choice(common, [["false", "no"], ["true", "yes"]]);
  const suggested = (schema.examples || []).filter((one) => typeof one === "string"), list = `suggested-${common.name}`;
  return h(Fragment, null, h("input", { ...common, autoComplete: "off", list: suggested.length ? list : undefined }),
    suggested.length > 0 && h("datalist", { id: list }, suggested.map((one) => h("option", { key: one, value: one }))));
}

// What must be chosen has an empty choice first, which the browser does not let through.
function choice(common, options) {
  const open = common.value === "" && !options.some(([value]) => value === "");
  return h("select", { ...common, required: common.required || open }, open && h("option", { value: "" }, "choose …"),
    options.map(([value, words]) => h("option", { key: String(value), value }, words)));
}

// Only what was filled in or changed is sent, in the type that the DAG expects; the rest has the DAG's defaults.
// A field that was emptied is sent as none where the DAG has a default for it, and takes none too.
export function typed(conf, params) {
  const sent = {};
  for (const [name, text] of Object.entries(conf)) {
    if (!(name in params)) continue;
    const types = typesOf(params[name]);
    if (text === "") {
      if (params[name].value != null && types.includes("null")) sent[name] = null;
      continue;
    }
    sent[name] = types.includes("string") || typeof text !== "string" ? text : parsed(text, types);
  }
  return sent;
}

function parsed(text, types) {
  if (types.includes("array") && !text.trim().startsWith("[")) return text.trim().includes("\n") ? lines(text) : words(text);
  try {
    return JSON.parse(text);
  } catch {
    return text; // Airflow says what it expects
  }
}

// Words as a shell reads them: what is in quotes stays together. A quote without its end is a character.
const WORD = /(?:[^\s"']|"[^"]*"|'[^']*')+/g, QUOTED = /"([^"]*)"|'([^']*)'/g;

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

function words(text) {
  if (text.replace(WORD, "").trim()) return text.split(/\s+/).filter(Boolean);
  return (text.match(WORD) || []).map((word) => word.replace(QUOTED, (_, double, single) => double ?? single));
}

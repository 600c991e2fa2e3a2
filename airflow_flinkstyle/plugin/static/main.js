// The Savepoints page in Airflow's navigation. Plain ES modules, no build: Airflow brings React.
// Every name and error from the store becomes a text node; nothing here sets inner HTML.
import { parseRoute } from "./route.js";
import { style } from "./style.js";
import { JobsView } from "./jobs.js";
import { JobView } from "./job.js";
import { RunView } from "./run.js";
import { SavepointView } from "./savepoint.js";

const { createElement: h, useEffect, useState } = globalThis.React;

function Page() {
  const [route, setRoute] = useState(parseRoute(window.location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseRoute(window.location.hash));
    window.addEventListener("hashchange", changed);
    return () => window.removeEventListener("hashchange", changed);
  }, []);
  return h("main", { className: "flinkstyle" }, h("style", null, style), view(route));
}

function view(route) {
  if (route.savepoint) return h(SavepointView, { ...route, key: JSON.stringify(route) });
  if (route.job && route.run) return h(RunView, { ...route, key: JSON.stringify(route) });
  if (route.job) return h(JobView, { ...route, key: JSON.stringify(route) });
  return h(JobsView);
}

globalThis.AirflowPlugin = Page;
globalThis.Savepoints = Page; // Airflow 3.1 looks for the app's name

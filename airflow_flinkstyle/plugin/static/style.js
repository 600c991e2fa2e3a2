// Colours are Airflow's own (Chakra's variables), so the page is light or dark as Airflow is.
export const style = `
.flinkstyle { --line: var(--chakra-colors-border, #8886); --soft: var(--chakra-colors-bg-subtle, #8881); --brand: var(--chakra-colors-brand-solid, #0b5cad);
  --quiet: var(--chakra-colors-fg-muted, #71717a); color: var(--chakra-colors-fg, inherit); padding: 1rem; overflow: auto; height: 100%; font-size: 0.875rem; }
.flinkstyle h1 { font-size: 1.25rem; font-weight: 600; margin: 0.25rem 0 0.75rem; overflow-wrap: anywhere; }
.flinkstyle h2 { font-size: 1rem; font-weight: 600; margin: 1.25rem 0 0.5rem; overflow-wrap: anywhere; }
.flinkstyle h3 { font-weight: 600; margin: 0.75rem 0 0.25rem; }
.flinkstyle a { color: var(--chakra-colors-fg-info, var(--brand)); text-decoration: underline; overflow-wrap: anywhere; }
.flinkstyle *, .flinkstyle *::before { box-sizing: border-box; } .flinkstyle .wide { overflow-x: auto; } .flinkstyle .wide + .wide, .flinkstyle .wide + .quiet { margin-top: 0.75rem; }
.flinkstyle table { border-collapse: collapse; width: 100%; }
.flinkstyle caption { text-align: left; color: var(--quiet); padding-bottom: 0.25rem; }
.flinkstyle th, .flinkstyle td { text-align: left; vertical-align: top; padding: 0.35rem 0.6rem; border-bottom: 1px solid var(--line); }
.flinkstyle th { font-weight: 600; white-space: nowrap; background: var(--soft); }
.flinkstyle td { font-variant-numeric: tabular-nums; min-width: 4.5rem; max-width: 20rem; overflow-wrap: anywhere; }
.flinkstyle td:first-child { min-width: 7rem; } .flinkstyle td:has(.badge) { min-width: 8rem; } .flinkstyle td:has(.reason) { min-width: 14rem; }
.flinkstyle .quiet { color: var(--quiet); }
.flinkstyle .badge { display: inline-block; padding: 0 0.45rem; border-radius: 0.5rem; border: 1px solid; white-space: nowrap; }
.flinkstyle .badge.good { color: var(--chakra-colors-green-fg, #15803d); } .flinkstyle .badge.bad { color: var(--chakra-colors-red-fg, #b91c1c); }
.flinkstyle .badge.busy { color: var(--chakra-colors-orange-fg, #a16207); } .flinkstyle .badge.calm { color: var(--quiet); }
.flinkstyle .fault { border: 1px solid var(--chakra-colors-border-error, #b91c1c); border-radius: 0.4rem; padding: 0.5rem 0.75rem; margin: 0.5rem 0; overflow-wrap: anywhere; }
.flinkstyle dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1rem; } .flinkstyle dt { color: var(--quiet); } .flinkstyle dd { overflow-wrap: anywhere; margin: 0; }
.flinkstyle button, .flinkstyle input, .flinkstyle textarea, .flinkstyle select { border: 1px solid var(--line); border-radius: 0.35rem; padding: 0.25rem 0.7rem; background: var(--soft); color: inherit; }
.flinkstyle option { background: var(--chakra-colors-bg, Canvas); }
.flinkstyle button { cursor: pointer; } .flinkstyle button[aria-pressed="true"], .flinkstyle button.strong { border-color: var(--brand); font-weight: 600; }
.flinkstyle .actions { display: flex; flex-wrap: wrap; gap: 0.5rem; margin: 0.75rem 0; }
.flinkstyle dialog { margin: auto; width: min(40rem, 95vw); max-height: 90vh; overflow: auto; padding: 1rem; border: 1px solid var(--line); border-radius: 0.5rem; color: inherit; background: var(--chakra-colors-bg, Canvas); }
.flinkstyle dialog::backdrop { background: #0008; } .flinkstyle dialog label { display: block; margin: 0.5rem 0; } .flinkstyle dialog label span { display: block; font-weight: 600; }
.flinkstyle dialog input, .flinkstyle dialog textarea, .flinkstyle dialog select { width: 100%; } .flinkstyle dialog small { color: var(--quiet); }
.flinkstyle .plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); gap: 1rem; margin-top: 0.5rem; }
.flinkstyle figure { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.5rem; margin: 0; } .flinkstyle svg { width: 100%; height: auto; } .flinkstyle svg.timeline { min-width: 40rem; max-width: 60rem; }
.flinkstyle .badge { font-size: 0.875rem; } .flinkstyle svg text { font-size: 14px; fill: var(--quiet); } .flinkstyle .axis { stroke: var(--line); } .flinkstyle .line { fill: none; stroke: var(--chakra-colors-fg-info, var(--brand)); stroke-width: 1.5; } .flinkstyle .dot { fill: var(--chakra-colors-fg-info, var(--brand)); }
.flinkstyle rect.good { fill: var(--chakra-colors-success-solid, #16a34a); } .flinkstyle rect.calm { fill: var(--quiet); } .flinkstyle rect.busy { fill: var(--chakra-colors-warning-solid, #ca8a04); }
.flinkstyle rect.bad, .flinkstyle circle.bad { fill: var(--chakra-colors-error-solid, #dc2626); } .flinkstyle .cross { fill: none; stroke: var(--chakra-colors-error-solid, #dc2626); stroke-width: 2.5; }
.flinkstyle .edge { fill: none; stroke: var(--quiet); stroke-width: 1.2; } .flinkstyle .edge.started { stroke-dasharray: 6 3; } .flinkstyle .edge.rewritten { stroke-dasharray: 2 3; }
.flinkstyle pre { border: 1px solid var(--line); border-radius: 0.4rem; padding: 0.5rem; overflow: auto; max-height: 60vh; white-space: pre-wrap; overflow-wrap: anywhere; }
.flinkstyle .line { display: flex; flex-wrap: wrap; gap: 0.5rem; align-items: center; margin: 0.5rem 0; } .flinkstyle summary { cursor: pointer; } .flinkstyle details ul { margin: 0.25rem 0 0.25rem 1.5rem; }
`;

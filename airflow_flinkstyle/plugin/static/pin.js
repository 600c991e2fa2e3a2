// Keep a savepoint from every prune, or let retention decide again.
import { ask, ownUrl } from "./fetching.js";
import { Fault, useDialog } from "./parts.js";

const { createElement: h, Fragment, useState } = globalThis.React;

export function Pin({ conn, job, savepoint, pinned, changed }) {
  const [open, setOpen] = useState(false);
  const [fault, setFault] = useState(null);
  const url = ownUrl("roots", conn, "jobs", job, "savepoints", savepoint, "pin");
  const put = async (reason) => {
    await ask(url, { method: "PUT", body: JSON.stringify({ reason }), headers: { "Content-Type": "application/json" } });
    setFault(null);
    changed();
  };
  const unpin = async () => {
    try {
      await ask(url, { method: "DELETE" });
      setFault(null);
      changed();
    } catch (refused) {
      setFault(refused.message);
    }
  };
  return h(Fragment, null,
    pinned ? h("button", { type: "button", onClick: unpin }, "Unpin") : h("button", { type: "button", onClick: () => setOpen(true) }, "Pin"),
    h(Fault, { text: fault }),
    open && h(Why, { put, close: () => setOpen(false) }));
}

function Why({ put, close }) {
  const dialog = useDialog();
  const [reason, setReason] = useState("");
  const [fault, setFault] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    try {
      await put(reason);
      dialog.current?.close();
    } catch (refused) {
      setFault(refused.message);
    }
  };
  return h("dialog", { ref: dialog, onClose: close, "aria-label": "Pin" },
    h("form", { onSubmit: send },
      h("h2", null, "Pin"),
      h(Fault, { text: fault }),
      h("label", null, h("span", null, "Why it is kept"), h("input", { name: "reason", value: reason, required: true, maxLength: 500, onChange: (event) => setReason(event.target.value) }),
        h("small", null, "For those who clean up later. No prune disposes of it until it is unpinned.")),
      h("p", { className: "actions" },
        h("button", { type: "submit", className: "strong" }, "Pin"),
        h("button", { type: "button", onClick: () => dialog.current?.close() }, "Cancel"))));
}

// Changes: each is foreseen first, shown, and carried out once it is confirmed.
import { change } from "./api.js";
import { h, notice, number, replace, table } from "./dom.js";

/** Open the dialog of a change. `foresee()` returns what it would do; `request()` the method, path and body that do it. */
export function proposed(context, { title, fields = [], foresee, request, danger = false, done = () => {} }) {
  const dialog = context.dialog, shown = h("div", { "aria-live": "polite" });
  const carry = h("button", { type: "button", class: danger ? "danger" : "main", disabled: true, onclick: carryOut }, danger ? title : "Carry out");
  const look = h("button", { type: "submit" }, fields.length ? "Show what it would do" : "Look again");
  const form = h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); preview(); } },
    h("header", { id: "dialog-title" }, title), h("div", { class: "body" }, fields.length ? h("div", { class: "fields" }, fields) : null, shown),
    h("footer", {}, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), look, carry));
  form.addEventListener("input", () => { carry.disabled = true; });
  replace(dialog, form);
  dialog.showModal();
  if (!fields.length) preview();

  async function preview() {
    replace(shown, h("p", { class: "muted" }, "asking what it would do"));
    try {
      const foreseen = await foresee();
      replace(shown, h("h2", {}, "What it would do"), foreseen);
      carry.disabled = false;
    } catch (error) { carry.disabled = true; replace(shown, refused(error)); }
  }

  async function carryOut() {
    carry.disabled = true;
    try {
      const answer = await change(...request());
      const failed = itemsOf(answer).filter((item) => item.error);
      if (failed.length) { replace(shown, failed.map((item) => notice("bad", `${item.name ?? item.topic ?? ""}: ${item.message ?? item.error}`))); return; }
      dialog.close();
      context.refresh();
      done(answer);
    } catch (error) { replace(shown, refused(error)); }
  }
}

const itemsOf = (answer) => Object.values(answer ?? {}).find(Array.isArray) ?? [];

/** A refusal; where another controller decides, the way to its console. */
function refused(error) {
  const there = error.controller ? [" ", h("a", { href: `${error.controller}/${location.hash}` }, `Open the console of the active controller (${error.controller.replace(/^https?:\/\//, "")})`)] : null;
  return notice(error.code === "NOT_CONTROLLER" ? "warn" : "bad", error.code === "NOT_CONTROLLER" ? "This controller does not decide: changes are made at the active one." : error.message, there);
}

/** Ask for a trial: every check runs, and nothing is written. */
export async function trial(method, path, body) {
  const answer = await change(method, path, body);
  const failed = itemsOf(answer).filter((item) => item.error);
  if (failed.length) throw Object.assign(new Error(failed.map((item) => `${item.name ?? item.topic ?? ""} ${item.message ?? item.error}`).join("; ")), { code: failed[0].error });
  return h("p", { class: "notice good" }, `It would be carried out: every check passed on the state at offset ${number(answer.offsets?.end)}.`);
}

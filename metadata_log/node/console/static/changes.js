// Changes: each is foreseen first, shown, and carried out once it is confirmed.
import { change } from "./api.js";
import { button, clock, h, ids, nodeLink, notice, number, replace, words } from "./dom.js";
import { ruleOf, ruleText } from "./rules.js";

const NO_FAULT = new Set(["ELECTION_NOT_NEEDED", "NO_REASSIGNMENT_IN_PROGRESS"]);
const RECORDS_LISTED = 12;
const PATIENCE_MS = 20_000;

/**
 * Open the dialog of a change. `foresee()` returns what it would do; `request()` the method, path and body that do it, and
 * `requests()` several of them, one after the other. Once something is typed, it has to be foreseen again.
 */
export function proposed(context, { title, fields = [], foresee, request, requests = () => [request()], danger = false, done = () => {} }) {
  const dialog = context.dialog, shown = h("div", { "aria-live": "polite" });
  const carry = button(danger ? title : "Carry out", carryOut, danger ? "danger" : "main");
  const cancel = button("Cancel", () => dialog.close());
  const look = h("button", { type: "submit" }, fields.length ? "Show what it would do" : "Look again");
  const form = h("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); preview(); } },
    h("header", { id: "dialog-title" }, title), h("div", { class: "body" }, fields.length ? h("div", { class: "fields" }, fields) : null, shown),
    h("footer", {}, cancel, look, carry));
  let generation = 0;
  carry.disabled = true;
  form.addEventListener("input", () => { generation += 1; carry.disabled = true; });
  replace(dialog, form);
  dialog.showModal();
  if (!fields.length) preview();

  async function preview() {
    const mine = ++generation;
    replace(shown, h("p", { class: "muted" }, "asking what it would do"));
    try {
      const foreseen = await foresee();
      if (mine !== generation) return;
      replace(shown, h("h2", {}, "What it would do"), foreseen);
      carry.disabled = false;
    } catch (error) { if (mine === generation) replace(shown, refused(error, context)); }
  }

  async function carryOut() {
    carry.disabled = look.disabled = true;
    const all = requests(), failed = [];
    let last = null;
    try {
      for (const [place, one] of all.entries()) {
        if (all.length > 1) replace(shown, h("p", { class: "muted" }, `part ${place + 1} of ${all.length}`));
        last = await (place ? patiently(one) : change(...one));
        failed.push(...itemsOf(last).filter((item) => item.error && !NO_FAULT.has(item.error)));
      }
    } catch (error) { look.disabled = false; replace(shown, refused(error, context)); return; }
    if (failed.length) { context.refresh(); cancel.textContent = "Close"; replace(shown, h("h2", {}, `${number(failed.length)} refused`), failed.slice(0, RECORDS_LISTED).map((item) => notice("bad", `${nameOf(item)} ${item.message ?? item.error}`))); return; }
    dialog.close();
    const before = location.hash;
    done(last);
    if (location.hash === before) context.refresh(); // else what the page shows may be gone
  }
}

/** A part that follows another may have to wait until that has taken effect. */
async function patiently(request) {
  const until = performance.now() + PATIENCE_MS;
  for (;;) {
    try { return await change(...request); } catch (error) {
      if (!error.retryable || error.status === 0 || performance.now() > until) throw error;
      await new Promise((goOn) => setTimeout(goOn, 500));
    }
  }
}

const itemsOf = (answer) => Object.entries(answer ?? {}).find(([name, value]) => name !== "foreseen" && Array.isArray(value))?.[1] ?? [];
const nameOf = (item) => (item.partition === undefined ? item.name ?? item.topic ?? item.resource_name ?? item.user ?? "" : `${item.topic}:${item.partition}`);

/** A refusal; where another controller decides, the way to its console. */
function refused(error, context) {
  if (error.code !== "NOT_CONTROLLER") return notice(error.level ?? "bad", error.message);
  if (context.session.role === "broker" || !error.controller) return notice("warn", "No controller decides at this moment: look again.");
  const there = nodeLink(error.controller, location.hash.replace(/^#\/?/, ""), `Open the console of the active controller (${error.controller.replace(/^https?:\/\//, "")})`);
  return notice("warn", "This controller does not decide: changes are made at the active one. ", there);
}

/** Ask for a trial: every check runs, and nothing is written. What a single item refuses is an error; of many, it is shown. */
export async function trial(method, path, body) {
  const answer = await change(method, path, body), items = itemsOf(answer);
  const failed = items.filter((item) => item.error);
  if (failed.length && failed.length === items.length) throw Object.assign(new Error(summed(failed)), { code: failed[0].error, level: failed.every((one) => NO_FAULT.has(one.error)) ? "idle" : "bad" });
  return [
    h("p", { class: "notice good" }, `It would be carried out: every check passed on the state at offset ${number(answer.offsets?.end)}.`),
    failed.length ? notice("warn", `${number(failed.length)} of ${number(items.length)} would be refused: ${summed(failed)}`) : null,
    (answer.doubts ?? []).map((doubt) => notice("warn", `This matches nothing: ${doubt}.`)),
    answer.foreseen ? written(answer.foreseen) : null,
  ];
}

/** Refusals in few words: the first of each kind, and how many are like it. */
function summed(failed) {
  const kinds = new Map();
  for (const one of failed) kinds.set(one.error, [...(kinds.get(one.error) ?? []), one]);
  return [...kinds.values()].map((alike) => `${nameOf(alike[0])} ${alike[0].message ?? alike[0].error}${alike.length > 1 ? ` (${number(alike.length - 1)} more like it)` : ""}`.trim()).join("; ");
}

/** The records that a change would write. */
export function written(foreseen) {
  if (!foreseen.count) return h("p", { class: "muted" }, "Nothing would be written: it is so already.");
  const lines = foreseen.records.slice(0, RECORDS_LISTED).map(({ type, record }) => h("li", {}, (SHORT[type] ?? plainly)(record, foreseen.topics, type)));
  const more = foreseen.count - lines.length;
  return [h("p", {}, `${number(foreseen.count)} record${foreseen.count > 1 ? "s" : ""}${foreseen.more ? " in its first part" : ""}:`), h("ul", { class: "records" }, lines), more > 0 ? h("p", { class: "muted" }, `and ${number(more)} more`) : null];
}

const named = (record, topics) => `${topics[record.topic_id] ?? record.topic_id}:${record.partition_id}`;
const plainly = (record, _topics, type) => `${type} ${Object.entries(record).filter(([, value]) => value !== null && !(Array.isArray(value) && !value.length)).map(([name, value]) => `${name.replaceAll("_", " ")} ${Array.isArray(value) ? ids(value) : typeof value === "object" ? JSON.stringify(value) : value}`).join(", ")}`;
const SHORT = words({
  AccessControlEntry: (record) => ["AccessControlEntry ", h("b", {}, ruleText(ruleOf(record)))],
  DelegationToken: (record) => ["DelegationToken of ", h("b", {}, record.owner), `, asked for by ${record.requester}${record.renewers.length ? `, renewed also by ${record.renewers.join(", ")}` : ""}; ends ${clock(record.expiry_timestamp_ms)}, at last ${clock(record.max_timestamp_ms)}`],
  PartitionChange: (record, topics) => [h("b", {}, named(record, topics)), " ", [
    record.leader === null || record.leader === undefined ? null : record.leader === -1 ? "loses its leader" : `is led by ${record.leader}`,
    record.isr ? `ISR ${ids(record.isr)}` : null,
    record.replicas ? `replicas ${ids(record.replicas)}` : null,
    record.adding_replicas?.length ? `adds ${ids(record.adding_replicas)}` : null,
    record.removing_replicas?.length ? `removes ${ids(record.removing_replicas)}` : null,
    record.leader_recovery_state ? "the election is unclean" : null,
  ].filter(Boolean).join(", ")],
});

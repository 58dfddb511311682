// The brokers: what state each is in and since when, how far it follows, and its states over time.
import { newest, read } from "./api.js";
import { proposed, trial } from "./changes.js";
import { card, clock, dataLink, duration, h, madeLink, number, offsetLink, replace, since, state, table, title, why } from "./dom.js";
import { intervals, lanesOf } from "./lanes.js";

const LOOKED_BACK = 4000;

export async function show(root, context) {
  if (context.path.length) return showOne(root, context, context.path[0]);
  const head = h("div"), rows = h("div"), lanes = h("div");
  root.append(head, rows, lanes);
  const refresh = async () => {
    const [shown, overview] = await Promise.all([read("/v1/brokers"), read("/v1/overview")]);
    const began = new Map(overview.troubles.filter((one) => one.since && one.subject?.startsWith("brokers/")).map((one) => [one.subject.slice(8), one.since]));
    const knowsLag = shown.items.some((one) => one.applied_offset !== null);
    replace(head, title("Brokers", `${shown.items.length} registered`, dataLink("/v1/brokers?consistency=stale")));
    replace(rows, card("Registered", { about: knowsLag || !shown.items.length ? "" : "the active controller alone knows lag and last contact" }, table([
      ["broker", (one) => h("a", { href: `#/brokers/${one.broker_id}` }, h("b", {}, one.broker_id)), "nowrap"],
      ["state", (one) => state(registered(one))],
      ["because", (one) => { const start = began.get(String(one.broker_id)); return start ? [why(start), h("br"), h("small", {}, since(start, overview.now_ms))] : one.waits_for ?? "–"; }, "wrap"],
      ["rack", (one) => one.rack ?? "–"],
      ["address", (one) => h("span", { class: "mono" }, one.endpoints[0] ? `${one.endpoints[0].host}:${one.endpoints[0].port}` : "–"), "nowrap"],
      ["lag, records", (one) => number(one.lag_records), "num"],
      ["last contact", (one) => (one.last_contact_ms_ago === null ? "–" : `${duration(one.last_contact_ms_ago)} ago`), "num nowrap"],
      ["epoch", (one) => number(one.broker_epoch), "num"],
    ], shown.items, "no broker is registered")));
    drawLanes(lanes, overview).catch(() => {});
  };
  await refresh();
  const timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 3000);
  return { refresh, leave: () => clearInterval(timer) };
}

/** The state as the log has it; a broker that is registered and silent is ONLINE until its session ends. */
const registered = (one) => ({ ACTIVE: "ONLINE", CONTROLLED_SHUTDOWN: "STOPPING", FENCED: "FENCED" })[one.registration_state] ?? one.state;

let kept = { end: -1, lines: [] };

async function drawLanes(root, overview) {
  if (kept.end !== overview.end_offset) kept = { end: overview.end_offset, lines: await newest(LOOKED_BACK).catch(() => kept.lines) };
  const chart = lanesOf(kept.lines, overview.now_ms);
  replace(root, chart === null ? null : card("States over time", { about: `of the newest ${number(Math.min(LOOKED_BACK, overview.end_offset))} records`, side: madeLink("broker-states", () => Object.fromEntries(intervals(kept.lines, overview.now_ms))) }, chart));
}

async function showOne(root, context, id) {
  const head = h("div"), facts = h("div"), history = h("div");
  root.append(head, facts, history);
  const refresh = async () => {
    const [one, overview, lines] = await Promise.all([read(`/v1/brokers/${id}`), read("/v1/overview"), newest(LOOKED_BACK).catch(() => [])]);
    const remove = context.may("cluster") ? h("button", { type: "button", class: "danger", onclick: () => unregister(context, one) }, "Unregister") : null;
    replace(head, title(`Broker ${id}`, "", state(registered(one)), remove, dataLink(`/v1/brokers/${id}?consistency=stale`)));
    replace(facts, card("Registration", {}, h("div", { class: "body" }, h("dl", {}, ...[
      ["epoch", number(one.broker_epoch)], ["incarnation", h("span", { class: "mono" }, one.incarnation_id)], ["rack", one.rack ?? "–"],
      ["endpoints", one.endpoints.map((each) => `${each.name} ${each.host}:${each.port}`).join(", ")],
      ["controller's word", one.control_state], ["waits for", one.waits_for ?? "nothing"],
      ["applied offset", number(one.applied_offset)], ["lag", `${number(one.lag_records)} records`],
      ["last contact", one.last_contact_ms_ago === null ? "known to the active controller alone" : `${duration(one.last_contact_ms_ago)} ago`],
    ].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])))));
    const own = lines.filter((line) => /Broker/.test(line.type) && String(line.record.broker_id) === id).reverse();
    replace(history, card("Changes of its registration", { about: `in the newest ${number(LOOKED_BACK)} records` }, own.length ? h("ol", { class: "steps" }, own.map((line) => h("li", {}, h("div", {}, h("span", { class: "mono" }, clock(line.time_ms)), " ", why(line), line.actor ? h("small", {}, ` by ${line.actor}`) : null, " ", offsetLink(line.offset)), h("div", { class: "changed" }, told(line))))) : h("div", { class: "empty" }, "none")));
  };
  await refresh();
  return { refresh };
}

function told(line) {
  const record = line.record;
  if (line.type === "RegisterBroker") return `registered at epoch ${record.broker_epoch}, ${record.fenced ? "fenced" : "not fenced"}`;
  if (line.type === "UnregisterBroker") return "removed";
  return [record.fenced === true ? "fenced" : record.fenced === false ? "unfenced" : "", record.in_controlled_shutdown ? "shuts down" : "", record.log_dirs ? `${record.log_dirs.length} directories left` : ""].filter(Boolean).join(", ") || "directories changed";
}

function unregister(context, one) {
  proposed(context, {
    title: `Unregister broker ${one.broker_id}`,
    danger: true,
    foresee: async () => [
      registered(one) === "ONLINE" ? h("p", { class: "notice warn" }, "This broker is in service. Its leaderships move, it leaves every ISR, and it may register again at once.") : null,
      await trial("DELETE", `/v1/brokers/${one.broker_id}?validate_only=true`),
    ],
    request: () => ["DELETE", `/v1/brokers/${one.broker_id}`],
    done: () => { location.hash = "#/brokers"; },
  });
}

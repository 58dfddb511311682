// The brokers: what state each is in and since when, how far it follows, and its states over time.
import { linesOf, newest, read } from "./api.js";
import { button, card, clock, dataLink, duration, facts, h, madeLink, notice, number, offsetLink, replace, since, state, table, title, why } from "./dom.js";
import { TYPES, followed, intervals, lanesOf, registered } from "./lanes.js";
import { alterSetting, drain, unregister } from "./moves.js";

const LOOKED_BACK = 20_000, LANES_MAX = 40;

export async function show(root, context) {
  if (context.path.length) return showOne(root, context, context.path[0]);
  const head = h("div"), rows = h("div"), lanes = h("div");
  root.append(head, rows, lanes);
  const added = []; // told since the page was opened
  let looked = null, present = new Map(); // null: not read yet
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
    present = new Map(shown.items.length <= LANES_MAX ? shown.items.map((one) => [one.broker_id, registered(one)]) : []);
    drawLanes(overview.now_ms);
  };
  const drawLanes = (now) => {
    const found = followed(looked ?? [], added), chart = looked === null ? null : lanesOf(found, now, 1200, present);
    replace(lanes, chart === null ? null : card("States over time", { about: `of the newest ${number(LOOKED_BACK)} records`, side: madeLink("broker-states", () => Object.fromEntries(intervals(found, Date.now(), present))) }, chart));
  };
  const look = () => newest(LOOKED_BACK, null, TYPES).then((found) => { looked = found; drawLanes(found.at(-1)?.time_ms ?? Date.now()); }).catch(() => {});
  await refresh();
  look();
  const timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 3000);
  return {
    refresh,
    concerns: (_name, _batch, types) => types.some((type) => /Broker|all/.test(type)),
    told(name, batch) {
      if (name !== "batch") look();
      else if (batch.brokers.length) ofBatch(batch).then((found) => added.push(...found)).catch(() => {});
    },
    leave: () => clearInterval(timer),
  };
}

const ofBatch = (batch) => linesOf(TYPES, `from=${batch.offset}&until=${batch.end_offset}`, batch.end_offset - batch.offset);

async function showOne(root, context, id) {
  const head = h("div"), about = h("div"), history = h("div"), settings = h("div"), load = h("div");
  root.append(head, h("div", { class: "grid" }, h("div", { class: "w5 stack" }, about, settings), h("div", { class: "w7 stack" }, load, history)));
  const added = [];
  let looked = [], isGone = false;
  const refresh = async () => {
    if (isGone) { replace(load, notice("warn", `Broker ${id} is registered no more.`)); return; }
    const [one, configs, imbalance, overview] = await Promise.all([read(`/v1/brokers/${encodeURIComponent(id)}`), read(`/v1/configs?broker=${encodeURIComponent(id)}`), read("/v1/partitions/imbalance"), read("/v1/overview")]);
    const trouble = overview.troubles.find((each) => each.subject === `brokers/${id}`), isOnline = registered(one) === "ONLINE";
    replace(head, title(`Broker ${one.broker_id}`, "", state(registered(one)),
      context.may("alter") ? button("Drain", () => drain(context, one.broker_id)) : null,
      context.may("alter") ? button("Change a setting", () => alterSetting(context, { title: `Change a setting of broker ${one.broker_id}`, resource: { broker: one.broker_id }, query: `broker=${one.broker_id}` })) : null,
      context.may("cluster") ? button("Unregister", () => unregister(context, one), "danger") : null, dataLink(`/v1/brokers/${one.broker_id}?consistency=stale`)));
    replace(about, card("Registration", {}, h("div", { class: "body" }, facts([
      ...(trouble?.since ? [["because", [why(trouble.since), h("br"), h("small", {}, since(trouble.since, overview.now_ms), " · offset ", offsetLink(trouble.since.offset))]]] : []),
      ["epoch", number(one.broker_epoch)], ["incarnation", h("span", { class: "mono" }, one.incarnation_id)], ["rack", one.rack ?? "–"],
      ["endpoints", one.endpoints.map((each) => `${each.name} ${each.host}:${each.port}`).join(", ")],
      ["answered as", one.control_state], ["waits for", one.waits_for ?? "nothing"],
      ["applied offset", number(one.applied_offset)], ["lag", one.lag_records === null ? "–" : `${number(one.lag_records)} records`],
      ["last contact", one.last_contact_ms_ago === null ? (overview.is_active ? "none: it has no session" : "known to the active controller alone") : `${duration(one.last_contact_ms_ago)} ago`],
    ]))));
    replace(settings, card("Settings of this broker", {}, table([["setting", (each) => h("span", { class: "mono" }, each.name), "nowrap"], ["value", (each) => h("span", { class: "mono" }, each.is_sensitive ? "(secret)" : each.value ?? "–"), "wrap"]], configs.items, "none of its own")));
    const own = imbalance.items.find((each) => each.broker_id === one.broker_id);
    replace(load, card("Leaderships", { about: !own?.exceeds ? "" : !isOnline ? "given back once it is online" : `balanced at the next check, each ${duration(imbalance.interval_seconds * 1000)}` }, h("div", { class: "body" }, facts([
      ["preferred to lead", own ? `${number(own.preferred)} partitions` : "no partition"], ["led by others", own ? `${number(own.led_elsewhere)} of these, ${own.percent} %` : "–"],
    ]))));
  };
  const drawHistory = () => {
    const own = followed(looked, added).filter((line) => /Broker/.test(line.type) && String(line.record.broker_id) === id).reverse();
    replace(history, card("Changes of its registration", { about: `in the newest ${number(LOOKED_BACK)} records` }, own.length ? h("ol", { class: "steps" }, own.map((line) => h("li", {}, h("div", {}, h("span", { class: "mono" }, clock(line.time_ms)), " ", why(line), line.actor ? h("small", {}, ` by ${line.actor}`) : null, " ", offsetLink(line.offset)), h("div", { class: "changed" }, told(line))))) : h("div", { class: "empty" }, "none")));
  };
  await refresh();
  newest(LOOKED_BACK, null, TYPES).then((found) => { looked = found; drawHistory(); }).catch(() => {});
  const timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 3000);
  return {
    refresh,
    concerns: (name, batch, types) => name !== "batch" || batch.brokers.map(String).includes(id) || types.includes("Config"),
    told(name, batch) {
      if (name === "batch" && "UnregisterBroker" in batch.types && batch.brokers.map(String).includes(id)) isGone = true;
      if (name === "batch" && batch.brokers.map(String).includes(id)) ofBatch(batch).then((found) => { added.push(...found); drawHistory(); }).catch(() => {});
    },
    leave: () => clearInterval(timer),
  };
}

function told(line) {
  const record = line.record;
  if (line.type === "RegisterBroker") return `registered at epoch ${record.broker_epoch}, ${record.fenced ? "fenced" : "not fenced"}`;
  if (line.type === "UnregisterBroker") return "removed";
  return [record.fenced === true ? "fenced" : record.fenced === false ? "unfenced" : "", record.in_controlled_shutdown ? "shuts down" : "", record.log_dirs ? `${record.log_dirs.length} directories left` : ""].filter(Boolean).join(", ") || "directories changed";
}

// Lanes of brokers' states over time, drawn from lines of the log. A state has a pattern beside its colour.
import { clock, duration, h, words } from "./dom.js";

const LEFT = 76, LANE = 22, TOP = 24;

/** The state as the log has it; a broker that is registered and silent is ONLINE until its session ends. */
export const registered = (one) => REGISTERED[one.registration_state] ?? one.state;
const REGISTERED = words({ ACTIVE: "ONLINE", CONTROLLED_SHUTDOWN: "STOPPING", FENCED: "FENCED" });

/** The records that the lanes are drawn from. */
export const TYPES = ["RegisterBroker", "UnregisterBroker", "BrokerRegistrationChange", "ControllerClaim"];

/** Lines that were read, and behind them those that were told since, whichever came first. */
export function followed(looked, told) {
  const last = looked.at(-1)?.offset ?? -1;
  return [...looked, ...told.filter((line) => line.offset > last).sort((one, other) => one.offset - other.offset)];
}

/** Return intervals by broker: {id: [{state, from, to}]}, of the records that there are; `present` has the states of now. */
export function intervals(lines, now, present = new Map()) {
  const found = new Map(), begin = beginOf(lines, now);
  const enter = (id, state, at) => {
    const list = found.get(id) ?? found.set(id, []).get(id), last = list.at(-1);
    if (last && last.to === null) { if (last.state === state) return; last.to = at; }
    list.push({ state, from: at, to: null });
  };
  for (const line of lines) {
    const record = line.record, at = line.time_ms;
    if (line.type === "RegisterBroker") enter(record.broker_id, record.fenced ? "FENCED" : "ONLINE", at);
    if (line.type === "UnregisterBroker") enter(record.broker_id, "GONE", at);
    if (line.type !== "BrokerRegistrationChange") continue;
    // What a broker was before its first change of state that is seen follows from the change.
    if (!found.has(record.broker_id) && (record.fenced !== null || record.in_controlled_shutdown)) enter(record.broker_id, record.fenced === false ? "FENCED" : "ONLINE", begin);
    if (record.fenced === true) enter(record.broker_id, "FENCED", at);
    else if (record.in_controlled_shutdown) enter(record.broker_id, "STOPPING", at);
    else if (record.fenced === false) enter(record.broker_id, "ONLINE", at);
  }
  for (const [id, state] of present) if (!found.has(id)) enter(id, state, begin);
  for (const list of found.values()) for (const one of list) one.to ??= now;
  return found;
}

const SHOWN_MS = 600_000; // where nothing changed

const beginOf = (lines, now) => Math.min(lines[0]?.time_ms ?? now, now - SHOWN_MS);

export function lanesOf(lines, now, WIDTH = 1200, present = new Map()) {
  const found = [...intervals(lines, now, present)].sort(([a], [b]) => a - b);
  if (!found.length) return null;
  const begin = beginOf(lines, now), span = Math.max(now - begin, 1000), x = (at) => LEFT + ((WIDTH - LEFT - 8) * (Math.min(Math.max(at, begin), now) - begin)) / span;
  const height = TOP + found.length * LANE + 6;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => { const at = begin + part * span; return [h("path", { class: "tick", d: `M${x(at)} ${TOP - 4}V${height}` }), h("text", { x: x(at), y: 12, "text-anchor": part === 1 ? "end" : part === 0 ? "start" : "middle" }, clock(at).slice(0, -4))]; });
  const claims = lines.filter((line) => line.type === "ControllerClaim").map((line) => h("path", { class: "claim", d: `M${x(line.time_ms)} ${TOP - 4}V${height}` }, h("title", {}, `controller ${line.record.controller_id} claimed epoch ${line.record.controller_epoch}`)));
  const rows = found.flatMap(([id, list], place) => {
    const y = TOP + place * LANE;
    return [h("text", { class: "name", x: 4, y: y + 14 }, `broker ${id}`), ...list.flatMap((one) => {
      const left = x(one.from), wide = Math.max(x(one.to) - left, 2), told = `broker ${id} ${one.state.toLowerCase()} from ${clock(one.from)} for ${duration(one.to - one.from)}`;
      const hatch = one.state === "FENCED" ? "url(#hatch)" : one.state === "GONE" ? "url(#bars)" : null;
      return [h("rect", { class: one.state, x: left, y: y + 2, width: wide, height: LANE - 6, rx: 2 }, h("title", {}, told)), hatch ? h("rect", { x: left, y: y + 2, width: wide, height: LANE - 6, fill: hatch, "pointer-events": "none" }) : null];
    })];
  });
  const patterns = h("defs", {}, h("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, h("path", { class: "hatch", d: "M0 0V6" })), h("pattern", { id: "bars", width: 5, height: 5, patternUnits: "userSpaceOnUse" }, h("path", { class: "hatch", d: "M0 0V5" })));
  const key = ["ONLINE", "STOPPING", "FENCED", "GONE"].map((name) => h("span", {}, h("i", { html: true, class: name }), name.toLowerCase()));
  return [h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "states of brokers over time" }, h("svg", { class: "chart lanes", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": found.map(([id, list]) => `broker ${id}: ${list.map((one) => `${one.state.toLowerCase()} ${duration(one.to - one.from)}`).join(", ")}`).join("; ") }, patterns, ticks, rows, claims)), h("div", { class: "legend" }, key, h("span", {}, "dashed: a controller became the active one"))];
}

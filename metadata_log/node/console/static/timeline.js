// The state at any past offset, and what differs between two moments.
import { lines, read, slowly } from "./api.js";
import { grouped } from "./batches.js";
import { card, clock, dataLink, h, ids, madeLink, notice, number, offsetLink, progress, replace, state, table, title, why } from "./dom.js";
import { intervals, lanesOf } from "./lanes.js";

const DRAWN = 4000, ASK_AFTER_MS = 250;

export async function show(root, context) {
  const overview = await read("/v1/overview");
  const first = overview.log_start_offset, last = overview.end_offset;
  let at = clamp(Number(context.params.get("at") ?? Math.max(first, last - 200)), first, last), to = clamp(Number(context.params.get("to") ?? last), at, last);
  const from = slider("from offset", at, (value) => { at = value; if (to < at) to = at; moved(); });
  const until = slider("to offset", to, (value) => { to = value; if (at > to) at = to; moved(); });
  const told = h("div"), differs = h("div"), happened = h("div"), lanes = h("div");
  const wait = h("div", { "aria-live": "polite" });
  let due = null, generation = 0, ended = null;

  function slider(name, value, set) {
    const range = h("input", { type: "range", min: first, max: last, value, "aria-label": name, oninput: () => set(Number(range.value)) });
    const exact = h("input", { type: "number", min: first, max: last, value, "aria-label": `${name}, exact`, onchange: () => set(clamp(Number(exact.value), first, last)) });
    return { range, exact, draw(now) { range.value = now; if (document.activeElement !== exact) exact.value = now; } };
  }

  function moved() {
    from.draw(at);
    until.draw(to);
    history.replaceState(null, "", `#/timeline?at=${at}&to=${to}`);
    clearTimeout(due);
    due = setTimeout(ask, ASK_AFTER_MS);
  }

  async function ask() {
    const mine = ++generation;
    ended?.abort(); // the node computes no answer that nobody waits for
    ended = new AbortController();
    const mineEnds = ended, waiting = progress(() => mineEnds.abort());
    const late = setTimeout(() => { if (mine === generation) replace(wait, waiting.shown); }, 400);
    try {
      const shown = await slowly(`/v1/past?at=${at}&to=${to}`, waiting.told, ended.signal);
      if (mine !== generation) return;
      replace(told, card("The two moments", { about: "a batch is seen whole: an offset inside it is cut back to its beginning", side: dataLink(`/v1/past?at=${at}&to=${to}&consistency=stale`) }, moments(shown)));
      replace(differs, card("What differs", { about: shown.more ? `the first ${number(shown.items.length)} differences` : `${number(shown.items.length)} differences` }, table([
        ["what", (one) => (one.kind === "partition" ? h("a", { href: `#/topics/${encodeURIComponent(one.key.slice(0, one.key.lastIndexOf(":")))}` }, one.key) : one.kind === "broker" ? h("a", { href: `#/brokers/${one.key}` }, `broker ${one.key}`) : `topic ${one.key}`), "nowrap"],
        ["field", (one) => one.field.replaceAll("_", " ") || (one.before === null ? "created" : "gone")],
        ["before", (one) => plain(one.before, one.field), "mono"], ["after", (one) => h("b", {}, plain(one.after, one.field)), "mono"],
      ], shown.items, "nothing: the two states are the same")));
      const between = grouped(await lines(`from=${Math.max(at, first)}&until=${Math.min(to, at + 400)}`, 400)).filter((one) => Object.keys(one.types).some((type) => type !== "NoOp"));
      if (mine !== generation) return;
      replace(happened, card("What happened between them", { about: to - at > 400 ? "the first 400 records" : "" }, table([
        ["time", (one) => h("span", { class: "mono" }, clock(one.time_ms)), "nowrap"], ["why", (one) => why(one), "wrap"], ["by whom", (one) => one.actor ?? "–"], ["offset", (one) => offsetLink(one.offset), "num"],
      ], between.slice(0, 60), "nothing")));
    } catch (error) { if (mine === generation) replace(told, notice("warn", error.message)); } finally { clearTimeout(late); if (mine === generation) replace(wait); }
  }

  const step = (by) => () => { to = clamp(to + by, at, last); moved(); };
  root.append(title("Timeline", `offsets ${number(first)} to ${number(last)}`), card("Choose two moments", { about: "arrow keys move a slider by one offset" }, h("div", { class: "body stack" },
    h("div", { class: "scrub" }, h("label", {}, "from"), from.range, from.exact), h("div", { class: "scrub" }, h("label", {}, "to"), until.range, until.exact),
    h("div", { class: "bar" }, [[-100, "−100"], [-10, "−10"], [-1, "−1"], [1, "+1"], [10, "+10"], [100, "+100"]].map(([by, text]) => h("button", { type: "button", onclick: step(by), "aria-label": `later moment ${text}` }, text))))),
    wait, told, h("div", { class: "grid" }, h("div", { class: "w7" }, differs), h("div", { class: "w5" }, happened)), lanes);
  root.querySelector(".grid").classList.add("gap");
  lines(`from=${Math.max(first, last - DRAWN)}&until=${last}`, DRAWN).then((found) => {
    const chart = lanesOf(found, overview.now_ms);
    if (chart) replace(lanes, card("Brokers over time", { about: `of the newest ${number(Math.min(DRAWN, last))} records`, side: madeLink("broker-states", () => Object.fromEntries(intervals(found, overview.now_ms))) }, chart));
  }).catch(() => {});
  ask();
  return { concerns: () => false, leave: () => { clearTimeout(due); ended?.abort(); } };
}

const clamp = (value, low, high) => Math.min(Math.max(Number.isFinite(value) ? value : low, low), high);
const plain = (value, field) => (value === null || value === undefined ? "–" : Array.isArray(value) ? ids(value) : field === "leader" && value === -1 ? "none" : String(value));

function moments(shown) {
  const row = (name, of) => ({ name, values: [shown.from, shown.to].map((one) => (one ? of(one) : "–")) });
  const states = (one) => { const counts = {}; for (const each of Object.values(one.brokers)) counts[each] = (counts[each] ?? 0) + 1; return Object.entries(counts).flatMap(([name, count]) => [state(name), ` ${count} `]); };
  return table([["", (one) => one.name], ["earlier", (one) => one.values[0]], ["later", (one) => one.values[1]]], [
    row("time (UTC)", (one) => (one.end_offset === 0 ? "before the first record" : clock(one.time_ms))), row("offset", (one) => number(one.end_offset)), row("epoch", (one) => number(one.controller_epoch)), row("brokers", states),
    row("topics", (one) => number(one.topics)), row("partitions", (one) => number(one.partitions.partitions)), row("without leader", (one) => number(one.partitions.offline)), row("under-replicated", (one) => number(one.partitions.under_replicated)),
  ]);
}

// What the loss of brokers would do, before it happens.
import { read, slowly } from "./api.js";
import { card, dataLink, h, ids, mark, notice, number, progress, replace, state, table, title } from "./dom.js";

export async function show(root, context) {
  const { items } = await read("/v1/brokers"), chosen = new Set((context.params.get("lose") ?? "").split(",").filter(Boolean));
  const answer = h("div", { "aria-live": "polite" });
  let ended = null;
  const boxes = items.map((one) => h("label", { class: "check" }, h("input", { type: "checkbox", checked: chosen.has(String(one.broker_id)), onchange: (event) => { if (event.target.checked) chosen.add(String(one.broker_id)); else chosen.delete(String(one.broker_id)); } }), `broker ${one.broker_id}`, one.rack ? h("small", {}, one.rack) : null, one.registration_state === "ACTIVE" ? null : state("FENCED")));
  const go = h("button", { class: "main" }, "Show what it would do");
  root.append(title("What if", "these brokers were lost, one after the other; nothing is written"),
    h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); ask(); } }, h("div", { class: "body bar" }, boxes.length ? boxes : "no broker is registered", go)), answer);

  async function ask() {
    if (!chosen.size) { replace(answer, notice("idle", "Choose a broker.")); return; }
    go.disabled = true;
    ended = new AbortController();
    const waiting = progress(() => ended.abort());
    replace(answer, waiting.shown);
    try {
      const lose = [...chosen].join(","), shown = await slowly(`/v1/whatif?lose=${lose}`, waiting.told, ended.signal);
      history.replaceState(null, "", `#/whatif?lose=${lose}`);
      const worst = shown.steps.at(-1), hurt = shown.steps.flatMap((step) => step.suffering.map((one) => ({ ...one, broker: step.broker })));
      const bad = shown.steps.reduce((sum, step) => sum + step.leaderless + step.under_min_isr, 0);
      replace(answer, bad ? notice("bad", mark("bad", "harm"), ` ${number(shown.steps.reduce((sum, step) => sum + step.leaderless, 0))} partitions would have no leader, ${number(shown.steps.reduce((sum, step) => sum + step.under_min_isr, 0))} too few in-sync replicas.`) : notice("good", mark("good", "safe"), " Every partition keeps a leader and min.insync.replicas."),
        card("Step by step", { about: `on the state at offset ${number(shown.end_offset)}`, side: dataLink(`/v1/whatif?lose=${lose}&consistency=stale`) }, table([
          ["lost", (one) => `broker ${one.broker}`], ["leaders moved", (one) => number(one.leaders_moved), "num"], ["unclean", (one) => number(one.unclean), "num"], ["without leader", (one) => (one.leaderless ? mark("bad", number(one.leaderless)) : "0"), "num"], ["under min ISR", (one) => (one.under_min_isr ? mark("bad", number(one.under_min_isr)) : "0"), "num"], ["records", (one) => number(one.records), "num"],
        ], shown.steps, "nothing changes: these brokers are fenced already")),
        hurt.length ? card("Partitions that would suffer", { about: "100 of each step at most" }, table([
          ["with broker", (one) => String(one.broker), "num"], ["partition", (one) => h("a", { href: `#/topics/${encodeURIComponent(one.topic)}` }, `${one.topic}:${one.partition}`)], ["leader", (one) => (one.leader === -1 ? mark("bad", "none") : String(one.leader))], ["ISR", (one) => ids(one.isr), "mono"], ["replicas", (one) => ids(one.replicas), "mono"], ["min ISR", (one) => number(one.min_isr), "num"],
        ], hurt)) : null);
    } catch (error) { replace(answer, notice("bad", error.message)); }
    go.disabled = false;
  }
  if (chosen.size) ask();
  return { concerns: () => false, leave: () => ended?.abort() };
}

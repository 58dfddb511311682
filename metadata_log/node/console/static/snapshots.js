// The snapshots of the asked controller: which past each of them makes cheap to read.
import { lines, read } from "./api.js";
import { proposed } from "./changes.js";
import { button, bytes, card, clock, dataLink, duration, facts, h, number, replace, table, title } from "./dom.js";

export async function show(root, context) {
  const head = h("div"), about = h("div"), rows = h("div"), atBroker = context.session.role === "broker";
  root.append(head, about, rows);
  const times = new Map();
  const refresh = async () => {
    const [shown, overview] = await Promise.all([read("/v1/snapshots"), read("/v1/overview")]);
    const items = [...shown.items].reverse(), newest = items[0], of = `controller ${overview.node_id}`;
    const take = context.may("cluster") ? button("Take a snapshot", () => proposed(context, {
      title: "Take a snapshot",
      foresee: async () => h("p", {}, `${atBroker ? "The active controller" : of} writes its state at offset ${number((await read("/v1/snapshots")).end_offset)} to a file. No record is written; older snapshots and log segments go as retention has it.`),
      request: () => ["POST", "/v1/snapshots", {}],
    })) : null;
    replace(head, title("Snapshots", `of ${of}`, take, dataLink("/v1/snapshots?consistency=stale")));
    const draw = () => {
      replace(about, card("State", {}, h("div", { class: "body" }, facts([
        ["log", `offsets ${number(overview.log_start_offset)} to ${number(shown.end_offset)}`],
        ["newest snapshot", newest ? `at offset ${number(newest.end_offset)}, ${number(shown.end_offset - newest.end_offset)} records ago` : "none yet: the log is still short"],
        ["on its disk", `${number(items.length)} snapshot${items.length === 1 ? "" : "s"}, ${bytes(items.reduce((sum, one) => sum + one.bytes, 0))}`],
      ]))));
      replace(rows, card("On its disk", { about: "the state at any offset is read from the nearest snapshot below it and the log from there on" }, table([
        ["state at offset", (one) => h("a", { href: `#/timeline?at=${one.end_offset}`, class: "mono" }, number(one.end_offset)), "num"],
        ["written about", (one) => { const at = times.get(one.end_offset); return at ? [clock(at), h("small", {}, `, ${duration(overview.now_ms - at)} ago`)] : "–"; }, "nowrap"],
        ["epoch", (one) => number(one.controller_epoch), "num"], ["size", (one) => bytes(one.bytes), "num nowrap"],
        ["records since", (one) => number(shown.end_offset - one.end_offset), "num"],
        ["SHA-256", (one) => h("span", { class: "mono muted", title: one.sha256 }, `${one.sha256.slice(0, 16)}…`), "nowrap"],
        ["", (one) => (context.may("raw") && !atBroker ? h("a", { href: `/v1/metadata/snapshots/${encodeURIComponent(one.id)}?consistency=stale`, download: `${one.id}.snapshot` }, "download") : ""), "num"],
      ], items, "none yet: the log is still short")));
    };
    draw();
    for (const one of items.slice(0, 20)) {
      if (times.has(one.end_offset) || one.end_offset <= overview.log_start_offset) continue;
      lines(`from=${one.end_offset - 1}&until=${one.end_offset}`, 1).then(([line]) => { if (line) { times.set(one.end_offset, line.time_ms); draw(); } }).catch(() => {});
      times.set(one.end_offset, null);
    }
  };
  await refresh();
  const timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 10_000);
  return { refresh, concerns: () => false, leave: () => clearInterval(timer) };
}

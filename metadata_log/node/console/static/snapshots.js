// The snapshots of the asked controller.
import { read } from "./api.js";
import { proposed } from "./changes.js";
import { bytes, card, dataLink, h, notice, number, replace, table, title } from "./dom.js";

export async function show(root, context) {
  if (context.session.role === "broker") {
    root.append(title("Snapshots"), notice("idle", "A broker shows no snapshots of controllers: open the console of a controller, from the page Quorum."));
    return {};
  }
  const head = h("div"), rows = h("div");
  root.append(head, rows);
  const refresh = async () => {
    const shown = await read("/v1/snapshots");
    const take = context.may("cluster") ? h("button", { type: "button", onclick: () => proposed(context, {
      title: "Take a snapshot",
      foresee: async () => h("p", {}, `Controller ${context.session.node_id} writes its state at offset ${number((await read("/v1/snapshots")).end_offset)} to a file. No record is written; older snapshots and log segments go as retention has it.`),
      request: () => ["POST", "/v1/snapshots", {}],
    }) }, "Take a snapshot") : null;
    replace(head, title("Snapshots", `of controller ${context.session.node_id}`, take, dataLink("/v1/snapshots")));
    replace(rows, card("On its disk", { about: `the log is at offset ${number(shown.end_offset)}` }, table([
      ["state at offset", (one) => number(one.end_offset), "num"], ["epoch", (one) => number(one.controller_epoch), "num"], ["size", (one) => bytes(one.bytes), "num"], ["id", (one) => h("span", { class: "mono" }, one.id)], ["SHA-256", (one) => h("span", { class: "mono muted" }, `${one.sha256.slice(0, 16)}…`)],
    ], [...shown.items].reverse(), "none yet: the log is still short")));
  };
  await refresh();
  return { refresh };
}

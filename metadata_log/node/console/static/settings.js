// Settings of the cluster and of brokers, what the controllers' files add, and feature levels.
import { read } from "./api.js";
import { button, card, dataLink, h, number, replace, table, title } from "./dom.js";
import { alterLevel, alterSetting } from "./moves.js";

export async function show(root, context) {
  const head = h("div"), dynamic = h("div"), features = h("div"), file = h("div"), may = context.may("alter");
  root.append(head, h("div", { class: "grid" }, h("div", { class: "w7 stack" }, dynamic, features), h("div", { class: "w5" }, file)));
  const alter = (name = "") => alterSetting(context, { title: "Change a setting of the cluster", resource: { cluster: true }, query: "cluster=1", name });
  const refresh = async () => {
    const [set, levels, own] = await Promise.all([read("/v1/configs?cluster=1&effective=1"), read("/v1/features"), read("/v1/quorum/settings")]);
    replace(head, title("Settings", "", may ? button("Change a setting of the cluster", () => alter()) : null, dataLink("/v1/configs?cluster=1&effective=1&consistency=stale")));
    replace(dynamic, card("Of the cluster", { about: "set while it runs, for all brokers; those of one broker or topic are on its page" }, table([
      ["setting", (one) => h("span", { class: "mono" }, one.name), "wrap"], ["value", (one) => h("span", { class: "mono" }, one.is_sensitive ? "(secret)" : one.value ?? "–"), "wrap"],
      ["", (one) => (may ? button("Change", () => alter(one.name), "plain") : ""), "num"],
    ], set.items, "none set")));
    replace(features, card("Features", { about: "levels that are finalized" }, table([
      ["feature", (one) => h("span", { class: "mono" }, one.feature), "nowrap"], ["level", (one) => number(one.level), "num"], ["supported", (one) => (one.supported_max === null ? "not by this release" : `${one.supported_min} to ${one.supported_max}`), "num nowrap"],
      ["", (one) => (context.may("cluster") ? button("Change level", () => alterLevel(context, one), "plain") : ""), "num"],
    ], levels.items)));
    const rows = [["session_timeout_ms", own.session_timeout_ms], ...["topics", "elections"].flatMap((part) => Object.entries(own[part] ?? {}).map(([name, value]) => [`${part}.${name}`, value]))];
    replace(file, card("Of the controllers' files", { about: "what they add to decisions" }, table([
      ["key", ([name]) => h("span", { class: "mono" }, name)], ["value", ([, value]) => h("span", { class: "mono" }, String(value)), "num"],
    ], rows)));
  };
  await refresh();
  return { refresh, concerns: (_name, _batch, types) => types.some((type) => /Config|Feature|all/.test(type)) };
}

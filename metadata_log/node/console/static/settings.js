// Settings of the cluster, what the controllers' files add, and feature levels.
import { change, read } from "./api.js";
import { proposed, trial } from "./changes.js";
import { card, dataLink, h, number, replace, table, title } from "./dom.js";

export async function show(root, context) {
  const head = h("div"), dynamic = h("div"), features = h("div"), file = h("div");
  root.append(head, h("div", { class: "grid" }, h("div", { class: "w7 stack" }, dynamic, features), h("div", { class: "w5" }, file)));
  const refresh = async () => {
    const [set, levels, own] = await Promise.all([read("/v1/configs?cluster=1&effective=1"), read("/v1/features"), read("/v1/quorum/settings")]);
    replace(head, title("Settings", "", context.may("alter") ? h("button", { type: "button", onclick: () => alter(context) }, "Change a setting of the cluster") : null, dataLink("/v1/configs?cluster=1&effective=1&consistency=stale")));
    replace(dynamic, card("Of the cluster", { about: "set while it runs, for all brokers" }, table([
      ["setting", (one) => h("span", { class: "mono" }, one.name), "nowrap"], ["value", (one) => h("span", { class: "mono" }, one.is_sensitive ? "(secret)" : one.value ?? "–"), "wrap"],
    ], set.items, "none set")));
    replace(features, card("Features", { about: "levels that are finalized" }, table([
      ["feature", (one) => h("span", { class: "mono" }, one.feature)], ["level", (one) => number(one.level), "num"], ["supported", (one) => `${one.supported_min} to ${one.supported_max}`, "num nowrap"],
    ], levels.items)));
    const rows = [["session_timeout_ms", own.session_timeout_ms], ...["topics", "elections"].flatMap((part) => Object.entries(own[part]).map(([name, value]) => [`${part}.${name}`, value]))];
    replace(file, card("Of the controllers' files", { about: "what they add to decisions" }, table([
      ["key", ([name]) => h("span", { class: "mono" }, name)], ["value", ([, value]) => h("span", { class: "mono" }, String(value)), "num"],
    ], rows)));
  };
  await refresh();
  return { refresh };
}

function alter(context) {
  const name = h("input", { required: true, placeholder: "min.insync.replicas" }), value = h("input", { placeholder: "empty: back to the default" });
  const body = (trial) => ({ resources: [{ cluster: true, ...(value.value === "" ? { unset: [name.value] } : { set: { [name.value]: value.value } }) }], ...(trial ? { validate_only: true } : {}) });
  proposed(context, {
    title: "Change a setting of the cluster",
    fields: [h("label", { class: "field" }, "setting", name), h("label", { class: "field" }, "value", value)],
    foresee: async () => {
      const checked = await trial("PATCH", "/v1/configs", body(true)), now = await read("/v1/configs?cluster=1&effective=1");
      return [checked, h("p", {}, h("code", {}, name.value), ": ", h("s", {}, now.items.find((one) => one.name === name.value)?.value ?? "not set"), " → ", h("b", {}, value.value === "" ? "the default" : value.value))];
    },
    request: () => ["PATCH", "/v1/configs", body(false)],
  });
}

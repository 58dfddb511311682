// Who may do what to which resources (ACLs), who logs in by SCRAM or by delegation tokens, and the quotas of clients.
import { read } from "./api.js";
import { button, card, dataLink, h, mark, notice, number, replace, table, title, words } from "./dom.js";
import { alterQuotas, createAcls, deleteAcls, deleteUser, entityText, setPassword } from "./grants.js";
import { OPERATIONS, TYPES, low, ruleText } from "./rules.js";
import { showTokens } from "./tokens.js";

const OF = words({ acls: "access control lists", users: "SCRAM users", tokens: "delegation tokens", quotas: "client quotas" });
const SHOWN_MAX = 500;
const FIELDS = ["resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type"];

export async function show(root, context) {
  const of = OF[context.params.get("of")] ? context.params.get("of") : "acls";
  const pick = h("select", { "aria-label": "which", onchange: () => { location.hash = `#/access${pick.value === "acls" ? "" : `?of=${pick.value}`}`; } }, Object.entries(OF).map(([name, text]) => h("option", { value: name, selected: name === of }, text)));
  return { acls: showAcls, users: showUsers, tokens: showTokens, quotas: showQuotas }[of](root, context, pick);
}

const shortened = (items, what) => (items.length > SHOWN_MAX ? `the first ${number(SHOWN_MAX)} of ${number(items.length)} ${what}` : `${number(items.length)} ${what}`);
const placeOf = (one) => [one.resource_type, one.resource_name, one.principal, one.operation, one.host].join("\0");
const choice = (label, values, chosen, all) => h("select", { "aria-label": label }, h("option", { value: "" }, all), values.map((value) => h("option", { value, selected: value === chosen }, low(value))));
const text = (label, value) => h("input", { type: "search", value, placeholder: label, "aria-label": label, size: 14, spellcheck: "false" });

async function showAcls(root, context, pick) {
  const head = h("div"), about = h("small", { "aria-live": "polite" }), rows = h("div"), may = context.may("cluster");
  const meant = Object.fromEntries(FIELDS.map((name) => [name, context.params.get(name)]).filter(([, value]) => value));
  const inputs = {
    resource_type: choice("type of resource", TYPES, meant.resource_type, "any type"), resource_name: text("resource", meant.resource_name ?? ""),
    pattern_type: choice("pattern", ["MATCH", "LITERAL", "PREFIXED"], meant.pattern_type, "any pattern"), principal: text("principal", meant.principal ?? ""),
    host: text("host", meant.host ?? ""), operation: choice("operation", OPERATIONS, meant.operation, "any operation"), permission_type: choice("permission", ["ALLOW", "DENY"], meant.permission_type, "allow or deny"),
  };
  const search = (event) => {
    event.preventDefault();
    const query = new URLSearchParams(FIELDS.map((name) => [name, inputs[name].value.trim()]).filter(([, value]) => value));
    location.hash = `#/access${query.size ? `?${query}` : ""}`;
  };
  const filters = h("form", { class: "bar", role: "search", "aria-label": "filter", onsubmit: search }, Object.values(inputs), h("button", { type: "submit" }, "Filter"), Object.keys(meant).length ? h("a", { href: "#/access" }, "all") : null);
  // The filters stay where they are: one that is put in again would lose the focus of who types into it.
  root.append(head, h("div", { class: "stack" }, explaining(), h("section", { class: "card" }, h("header", {}, h("h2", {}, "Rules"), about), h("div", { class: "body" }, filters), rows)));
  const path = `/v1/acls${Object.keys(meant).length ? `?${new URLSearchParams(meant)}` : ""}`;
  const refresh = async () => {
    const listed = await read(path), items = listed.items.sort((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1));
    replace(head, title("Access", OF.acls, pick, may ? button("Create a rule", () => createAcls(context), "main") : null, may && items.length > 1 && Object.keys(meant).length ? button(`Delete these ${number(items.length)}`, () => deleteAcls(context, meant, `Delete ${number(items.length)} rules`), "danger") : null, dataLink(`${path}${path.includes("?") ? "&" : "?"}consistency=stale`)),
      listed.enforced ? null : notice("warn", mark("warn", "not enforced"), " These rules do not count on the doors of this controller: [acls] enforced is not true. Brokers of Kafka may enforce them."));
    about.textContent = shortened(items, "rules");
    replace(rows, table([
      ["", (one) => (one.permission_type === "DENY" ? mark("bad", "deny") : mark("good", "allow")), "nowrap"], ["principal", (one) => h("b", {}, one.principal), "wrap"],
      ["operation", (one) => low(one.operation), "nowrap"], ["resource", (one) => [low(one.resource_type), " ", h("b", {}, one.resource_name)], "wrap"],
      ["pattern", (one) => low(one.pattern_type), "nowrap"], ["host", (one) => one.host, "mono wrap"],
      ["", (one) => (may ? button("Delete", () => deleteAcls(context, Object.fromEntries(FIELDS.map((name) => [name, one[name]])), "Delete a rule"), "plain") : ""), "num"],
    ], items.slice(0, SHOWN_MAX), Object.keys(meant).length ? "no rule is meant" : "there is no rule yet: without one, ACLs allow nothing"));
  };
  await refresh();
  return { refresh, concerns: (_name, _batch, types) => types.some((type) => /AccessControl|all/.test(type)) };
}

/** The question whether a principal may do something, and which rule decides. */
function explaining() {
  const principal = h("input", { required: true, placeholder: "User:alice", "aria-label": "who", size: 16, spellcheck: "false" }), operation = choice("may do", OPERATIONS.slice(1), "READ", "operation");
  const kind = choice("to a", TYPES, "TOPIC", "type"), name = h("input", { placeholder: "its name", "aria-label": "named", size: 16, spellcheck: "false" }), host = h("input", { placeholder: "from any host", "aria-label": "from host", size: 14 });
  const told = h("div", { "aria-live": "polite" });
  const ask = async (event) => {
    event.preventDefault();
    const named = kind.value === "CLUSTER" ? "kafka-cluster" : name.value.trim();
    const query = new URLSearchParams({ principal: principal.value.trim(), operation: operation.value, resource: `${kind.value.toLowerCase()}:${named}`, ...(host.value.trim() ? { host: host.value.trim() } : {}) });
    try {
      const verdict = await read(`/v1/acls/explain?${query}`);
      replace(told, h("p", { class: `notice ${verdict.allowed ? "good" : "warn"}` }, verdict.allowed ? mark("good", "allowed") : mark("bad", "not allowed"), " ", verdict.rule ? `This rule decides: ${ruleText(verdict.rule)}` : `${verdict.why}.`),
        verdict.roles?.length && !verdict.allowed ? notice("idle", `The roles of ${query.get("principal")} come first, and count beside: ${verdict.roles.join(", ")}.`) : null);
    } catch (error) { replace(told, notice("bad", error.message)); }
  };
  return card("May somebody do something?", { about: "and which rule decides" }, h("div", { class: "body stack" }, h("form", { class: "bar", "aria-label": "explain", onsubmit: ask }, principal, operation, kind, name, host, h("button", { type: "submit" }, "Explain")), told));
}

async function showUsers(root, context, pick) {
  const head = h("div"), rows = h("div"), may = context.may("cluster");
  root.append(head, rows);
  const refresh = async () => {
    const { items } = await read("/v1/users");
    replace(head, title("Access", OF.users, pick, may ? button("Set a password", () => setPassword(context), "main") : null, dataLink("/v1/users?consistency=stale")));
    replace(rows, card("Users that log in by SCRAM", { about: `${shortened(items, "users")}; no secret leaves a controller` }, table([
      ["user", (one) => h("b", {}, one.user), "wrap"], ["credentials", (one) => one.credentials.map((each) => `${each.mechanism}, ${number(each.iterations)} iterations`).join("; "), "wrap"],
      ["", (one) => (may ? [button("Set a password", () => setPassword(context, one), "plain"), " ", button("Delete", () => deleteUser(context, one), "plain")] : ""), "num"],
    ], items.slice(0, SHOWN_MAX), "no user has SCRAM credentials")));
  };
  await refresh();
  return { refresh, concerns: (_name, _batch, types) => types.some((type) => /Scram|all/.test(type)) };
}

async function showQuotas(root, context, pick) {
  const head = h("div"), rows = h("div"), may = context.may("cluster");
  root.append(head, rows);
  const refresh = async () => {
    const { items } = await read("/v1/quotas");
    replace(head, title("Access", OF.quotas, pick, may ? button("Set a quota", () => alterQuotas(context), "main") : null, dataLink("/v1/quotas?consistency=stale")));
    replace(rows, card("Quotas of clients", { about: shortened(items, "entities") }, table([
      ["of", (one) => h("b", {}, entityText(one.entity)), "wrap"], ["quotas", (one) => Object.entries(one.quotas).map(([key, value]) => [h("span", { class: "mono" }, key), ` ${number(value)}`, h("br", { html: true })]), "wrap"],
      ["", (one) => (may ? [button("Change", () => alterQuotas(context, one), "plain"), " ", button("Remove", () => alterQuotas(context, one, true), "plain")] : ""), "num"],
    ], items.slice(0, SHOWN_MAX), "no client has a quota")));
  };
  await refresh();
  return { refresh, concerns: (_name, _batch, types) => types.some((type) => /Quota|all/.test(type)) };
}

// Delegation tokens, by which clients act as their owner: listed, and issued, renewed and expired, each shown first.
import { read } from "./api.js";
import { proposed, trial } from "./changes.js";
import { button, clock, dataLink, duration, facts, field, h, mark, notice, number, replace, table, title } from "./dom.js";

const SHOWN_MAX = 500;
const HOUR_MS = 3_600_000;
const PATH = "/v1/tokens";

export async function showTokens(root, context, pick) {
  const head = h("div"), about = h("small"), rows = h("div"), { identity, principal } = context.session, owner = context.params.get("owner") ?? "";
  const filter = h("input", { type: "search", value: owner, placeholder: "owner or renewer", "aria-label": "owner or renewer", spellcheck: "false" });
  const search = (event) => { event.preventDefault(); location.hash = `#/access?${new URLSearchParams({ of: "tokens", ...(filter.value.trim() ? { owner: filter.value.trim() } : {}) })}`; };
  const filters = h("form", { class: "bar", role: "search", "aria-label": "filter", onsubmit: search }, filter, h("button", { type: "submit" }, "Filter"), owner ? h("a", { href: "#/access?of=tokens" }, "all") : null);
  const query = owner ? `?${new URLSearchParams({ owner })}` : "", may = identity && location.protocol === "https:";
  // The filter stays where it is: one that is put in again would lose the focus of who types into it.
  root.append(head, h("section", { class: "card" }, h("header", {}, h("h2", {}, "Tokens that you may see"), about), h("div", { class: "body" }, filters), rows));
  const refresh = async () => {
    const { items } = await read(`${PATH}${query}`), now = Date.now();
    items.sort((a, b) => a.expiry_timestamp_ms - b.expiry_timestamp_ms);
    replace(head, title("Access", "delegation tokens", pick, may ? button("Create a token", () => createToken(context), "main") : null, dataLink(`${PATH}${query || "?"}${query ? "&" : ""}consistency=stale`)),
      may ? null : notice("warn", mark("warn", "not here"), " Delegation tokens are not asked for in the clear, nor without an identity: they need [tls] and [identity]."));
    about.textContent = items.length > SHOWN_MAX ? `the first ${number(SHOWN_MAX)} of ${number(items.length)} tokens` : `${number(items.length)} tokens; no list shows an HMAC`;
    replace(rows, table(columns(now, (one) => {
      const own = one.owner === principal || one.renewers.includes(principal);
      return [may && own ? button("Renew", () => renewToken(context, one), "plain") : null, " ", may && (own || context.may("cluster")) ? button("Expire", () => expireToken(context, one), "plain") : null];
    }), items.slice(0, SHOWN_MAX), "there is no delegation token that you may see"));
  };
  await refresh();
  return { refresh, concerns: (_name, _batch, types) => types.some((type) => /DelegationToken|all/.test(type)) };
}

const columns = (now, buttons) => [
  ["token", (one) => h("span", { class: "mono" }, one.token_id), "nowrap"],
  ["owner", (one) => h("b", {}, one.owner), "wrap"],
  ["asked for by", (one) => (one.requester === one.owner ? "its owner" : one.requester), "wrap"],
  ["renewed also by", (one) => (one.renewers.length ? one.renewers.join(", ") : "–"), "wrap"],
  ["issued", (one) => clock(one.issue_timestamp_ms), "nowrap"],
  ["ends", (one) => ending(one, now), "nowrap"],
  ["ends at last", (one) => clock(one.max_timestamp_ms), "nowrap"],
  ["", buttons, "num nowrap"],
];

function ending(one, now) {
  const left = one.expiry_timestamp_ms - now;
  return left < 0 ? mark("bad", `${clock(one.expiry_timestamp_ms)}, it has ended`) : `${clock(one.expiry_timestamp_ms)}, in ${duration(left)}`;
}

// --- changes

const typed = (more = {}) => h("input", { autocomplete: "off", spellcheck: "false", ...more });
const hours = () => typed({ type: "number", min: 0, step: "any" });
const sent = (name, input) => (input.value === "" ? {} : { [name]: Math.round(Number(input.value) * HOUR_MS) });

function createToken(context) {
  const owner = typed({ placeholder: context.session.principal }), renewers = h("textarea", { rows: 2, spellcheck: "false", placeholder: "User:scheduler" }), lifetime = hours();
  const body = () => ({ ...(owner.value.trim() ? { owner: owner.value.trim() } : {}), renewers: renewers.value.split("\n").map((one) => one.trim()).filter(Boolean), ...sent("max_lifetime_ms", lifetime) });
  proposed(context, {
    title: "Create a token",
    fields: [field("owner", owner, "its clients act as this principal; empty: as you"), field("renewers", renewers, "one a line; they may renew and expire it, too"), field("lifetime in hours", lifetime, "for how long it can be renewed; empty: as the controllers' settings say")],
    foresee: () => trial("POST", `${PATH}?validate_only=true`, body()),
    request: () => ["POST", PATH, body()],
    done: (issued) => showOnce(context, issued),
  });
}

/** Show the HMAC of a token, this once: the page keeps it nowhere but in this dialog. */
function showOnce(context, issued) {
  const dialog = context.dialog;
  const forget = () => { if (dialog.open) return; replace(dialog); dialog.removeEventListener("close", forget); }; // the dialog before may be told of its end only now
  dialog.addEventListener("close", forget);
  replace(dialog, h("form", { method: "dialog" }, h("header", { id: "dialog-title" }, "The token is issued"), h("div", { class: "body" },
    issued.hmac ? notice("warn", mark("warn", "shown this once"), " Keep the HMAC now: no list shows it, and who has it acts as the owner.") : notice("idle", "The HMAC is shown to the owner and to who asked for the token alone."),
    facts([["user name", h("span", { class: "mono" }, issued.token_id)], ["HMAC, the password", issued.hmac ? h("pre", { "aria-label": "HMAC" }, issued.hmac) : "–"], ["owner", issued.owner], ["ends", clock(issued.expiry_timestamp_ms)], ["ends at last", clock(issued.max_timestamp_ms)]]),
    h("p", { class: "muted" }, "Clients log in by SCRAM with both, and with tokenauth=true.")), h("footer", {}, button("I have kept it", () => dialog.close(), "main"))));
  dialog.showModal();
}

function renewToken(context, one) {
  const period = hours(), body = () => ({ token_id: one.token_id, ...sent("renew_period_ms", period) });
  proposed(context, {
    title: `Renew the token of ${one.owner}`,
    fields: [field("hours from now", period, "empty: as the controllers' settings say")],
    foresee: () => trial("POST", `${PATH}/renew?validate_only=true`, body()),
    request: () => ["POST", `${PATH}/renew`, body()],
  });
}

function expireToken(context, one) {
  const period = hours(), body = () => ({ token_id: one.token_id, ...sent("expiry_period_ms", period) });
  proposed(context, {
    title: `Expire the token of ${one.owner}`,
    danger: true,
    fields: [field("hours from now", period, "empty: it is removed at once")],
    foresee: async () => [notice("warn", "Connections that logged in by it may do nothing more once it has ended."), await trial("POST", `${PATH}/expire?validate_only=true`, body())],
    request: () => ["POST", `${PATH}/expire`, body()],
  });
}

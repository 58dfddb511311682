// Who may do what, what was refused, who looks, and what this node knows of certificates.
import { own, read } from "./api.js";
import { card, clock, dataLink, duration, facts, h, mark, notice, number, replace, table, title, words } from "./dom.js";

const RIGHTS = words({
  read: "see the metadata, secrets masked", raw: "fetch bytes of the log and of snapshots, which hold secrets", alter: "change topics, partitions and settings",
  cluster: "change brokers, controllers, voters, features and leadership", principals: "see who may do what, and what was refused", broker: "take part as a broker", controller: "take part as a controller",
});
const DATED = /CERTIFICATE|AUTHORITY|certificate|authority/;
const DAY_MS = 86_400_000;

export async function show(root, context) {
  const head = h("div"), body = h("div");
  root.append(head, body);
  const refresh = async () => {
    const [session, ready] = await Promise.all([own("/v1/session"), own("/readyz")]);
    const known = session.identity && session.rights.includes("principals") ? await own("/v1/principals") : null;
    const dated = [...(ready.reasons ?? []), ...(ready.recent_warnings ?? [])].filter((one) => DATED.test(one.code));
    const tls = location.protocol === "https:", now = Date.now();
    replace(head, title("Security", `as ${session.role} ${session.node_id} has it`, known ? dataLink("/v1/principals") : null));
    replace(body, session.identity ? null : notice("warn", mark("warn", "identity is off"), " Anybody who reaches a port reads and changes everything: docs/secure.md says how to switch it on."),
      h("div", { class: "grid" },
        known ? card("Principals", { width: "w12", about: `of the principals file of this node, and nodes that showed a certificate since it began` }, principals(known.items, now)) : null,
        known ? card("Refused last", { width: "w12", about: `${number(known.refused_total.unauthenticated)} without identity and ${number(known.refused_total.unauthorized)} without the right, since this process began` }, refused(known.refused, now)) : null,
        session.identity && !known ? card("Principals", { width: "w12" }, h("div", { class: "empty" }, "Who else may do what is shown to principals with the right principals.")) : null,
        card("You", { width: "w6" }, h("div", { class: "body" }, facts([["principal", session.principal ?? "none"], ["known by", session.has_session ? "a session, begun with a token" : session.identity ? "a client certificate" : "nothing: everybody is"], ["connection", tls ? mark("good", "TLS") : mark("warn", "not encrypted")]]))),
        card("What you may do", { width: "w6" }, table([["right", (name) => h("b", {}, name)], ["", (name) => (session.rights.includes(name) ? mark("good", "yes") : mark("idle", "no"))], ["it allows to", (name) => RIGHTS[name], "wrap"]], Object.keys(RIGHTS))),
        card("Certificates of this node", { width: "w12", about: "named from 30 days before the end of one" }, dated.length ? table([["what", (one) => h("span", { class: "mono" }, one.code)], ["detail", (one) => one.detail, "wrap"]], dated) : h("div", { class: "empty" }, tls ? "none ends within 30 days" : "TLS is off here"))));
  };
  await refresh();
  const timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 10_000);
  return { refresh, concerns: () => false, leave: () => clearInterval(timer) };
}

function ends(at, now) {
  if (at === null) return "–";
  const left = at - now, text = `${clock(at).slice(0, 10)}, ${left < 0 ? `${duration(-left)} ago` : `in ${duration(left)}`}`;
  return left < 2 * DAY_MS ? mark("bad", text) : left < 30 * DAY_MS ? mark("warn", text) : text;
}

function principals(items, now) {
  return table([
    ["principal", (one) => h("b", {}, one.name), "nowrap"],
    ["roles", (one) => (one.roles.length ? one.roles.join(", ") : mark("idle", "none")), "nowrap"],
    ["rights", (one) => (one.rights.length ? one.rights.join(", ") : "none"), "wrap"],
    ["token", (one) => (one.has_token ? "yes" : "no")],
    ["logs in as", (one) => one.user ?? "–", "nowrap"],
    ["certificate ends", (one) => ends(one.certificate_ends_ms, now), "nowrap"],
    ["seen last", (one) => (one.seen_at_ms === null ? "not since this node began" : [`${duration(Math.max(0, now - one.seen_at_ms))} ago`, one.seen_from ? h("small", {}, ` from ${one.seen_from}`) : null]), "nowrap"],
  ], items, "the file has no principal");
}

function refused(items, now) {
  return table([
    ["last", (one) => `${duration(Math.max(0, now - one.at_ms))} ago`, "nowrap"],
    ["times", (one) => number(one.times), "num"],
    ["who", (one) => [one.reason === "unauthenticated" ? "unknown" : one.principal, one.address ? h("small", {}, ` from ${one.address}`) : null], "nowrap"],
    ["asked", (one) => [h("span", { class: "mono" }, one.asked), one.door === "kafka" ? h("small", {}, " (Kafka)") : null], "wrap"],
    ["why not", (one) => one.message, "wrap"],
  ], items, "nothing was refused");
}

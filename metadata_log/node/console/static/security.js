// Who looks, with which rights; and what this node knows of certificates.
import { own, read } from "./api.js";
import { card, h, mark, notice, replace, table, title } from "./dom.js";

const RIGHTS = {
  read: "see the metadata, secrets masked", raw: "fetch bytes of the log and of snapshots, which hold secrets", alter: "change topics, partitions and settings",
  cluster: "change brokers, controllers, voters, features and leadership", broker: "take part as a broker", controller: "take part as a controller",
};
const DATED = /CERTIFICATE|AUTHORITY|certificate|authority/;

export async function show(root, context) {
  const body = h("div");
  root.append(title("Security", `as ${context.session.role} ${context.session.node_id} has it`), body);
  const refresh = async () => {
    const [session, ready] = await Promise.all([own("/v1/session"), own("/readyz")]);
    const dated = [...(ready.reasons ?? []), ...(ready.recent_warnings ?? [])].filter((one) => DATED.test(one.code));
    const tls = location.protocol === "https:";
    replace(body, session.identity ? null : notice("warn", mark("warn", "identity is off"), " Anybody who reaches a port reads and changes everything: docs/secure.md says how to switch it on."),
      h("div", { class: "grid" },
        card("You", { width: "w6" }, h("div", { class: "body" }, h("dl", {}, ...[["principal", session.principal ?? "none"], ["known by", session.has_session ? "a session, begun with a token" : session.identity ? "a client certificate" : "nothing: everybody is"], ["connection", tls ? mark("good", "TLS") : mark("warn", "not encrypted")]].flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])))),
        card("What you may do", { width: "w6" }, table([["right", (name) => h("b", {}, name)], ["", (name) => (session.rights.includes(name) ? mark("good", "yes") : mark("idle", "no"))], ["it allows to", (name) => RIGHTS[name], "wrap"]], Object.keys(RIGHTS))),
        card("Certificates of this node", { width: "w12", about: "named from 30 days before the end of one" }, dated.length ? table([["what", (one) => h("span", { class: "mono" }, one.code)], ["detail", (one) => one.detail, "wrap"]], dated) : h("div", { class: "empty" }, tls ? "none ends within 30 days" : "TLS is off here"))));
  };
  await refresh();
  return { refresh };
}

// The controllers: who leads, who follows how far, and over which links.
import { read } from "./api.js";
import { proposed } from "./changes.js";
import { button, card, clock, dataLink, duration, facts, field, h, mark, nodeLink, number, replace, since, state, table, title } from "./dom.js";
import { addVoter, removeVoter, replaceVoter, replaceable } from "./voters.js";

export async function show(root, context) {
  const head = h("div"), drawing = h("div"), about = h("div"), rows = h("div");
  root.append(head, h("div", { class: "grid" }, h("div", { class: "w5" }, drawing), h("div", { class: "w7" }, about), h("div", { class: "w12" }, rows)));
  const may = context.may("cluster");
  const refresh = async () => {
    const [shown, overview] = await Promise.all([read("/v1/quorum"), read("/v1/overview")]);
    const leads = shown.leader_id === shown.node_id;
    const all = [...shown.voters.map((one) => ({ ...one, vote: true })), ...shown.observers.map((one) => ({ ...one, vote: false }))];
    const handOver = may && shown.leader_id !== -1 ? button("Hand leadership over", () => transfer(context, shown)) : null;
    const swaps = may ? replaceable(shown).map(({ old, now }) => button(`Replace the disk of ${now.id}`, () => replaceVoter(context, old, now))) : [];
    const change = (one) => (!may || one.locked_out ? "" : one.vote ? shown.voters.length > 1 ? button("Take its vote", () => removeVoter(context, shown, one), "plain") : "" : button("Let it vote", () => addVoter(context, shown, one), "plain"));
    replace(head, title("Quorum", `as controller ${shown.node_id} sees it`, handOver, may ? button("Add a voter", () => addVoter(context, shown, null)) : null, ...swaps, dataLink("/v1/quorum")));
    replace(drawing, card("Links", { about: leads ? "of the leader" : `of controller ${shown.node_id}: it does not see those of others` }, linksOf(shown)));
    replace(about, card("State", {}, h("div", { class: "body" }, facts([
      ["leader", shown.leader_id === -1 ? mark("bad", "none known") : `controller ${shown.leader_id}`],
      ["epoch", number(shown.controller_epoch)],
      ["leads", overview.leads_since ? since(overview.leads_since, overview.now_ms) : "since before this controller began to apply the log"],
      ["high watermark", number(shown.high_watermark)],
      ["log begins at", number(shown.log_start_offset)],
      ["known to be all until", clock(shown.observed_until_ms)],
      ["change of voters", shown.change_pending ? mark("warn", "in flight") : "none"],
      ["state digest", h("span", { class: "mono" }, `${shown.digest.value.slice(0, 16)}… at ${number(shown.digest.end_offset)}`)],
    ]))));
    replace(rows, card("Controllers", { about: `${shown.voters.length} voters, ${shown.observers.length} observers` }, table([
      ["controller", (one) => [h("b", {}, one.id), one.id === shown.node_id ? h("small", {}, " asked") : null], "nowrap"],
      ["role", (one) => (one.role ? state(one.role) : mark("idle", one.vote ? "voter" : "observer"))],
      ["link", (one) => (one.id === shown.node_id ? "–" : one.silent_ms ? mark("warn", `silent for ${duration(one.silent_ms)}`) : one.reachable ? mark("good", "up") : mark("bad", "down"))],
      ["end offset", (one) => number(one.end_offset), "num"],
      ["lag, records", (one) => number(one.lag_records), "num"],
      ["caught up", (one) => (one.last_caught_up_ms_ago === null ? "–" : one.last_caught_up_ms_ago === 0 ? "now" : `${duration(one.last_caught_up_ms_ago)} ago`), "num nowrap"],
      ["its console, Raft address", (one) => [one.http ? nodeLink(one.http, "quorum") : "–", h("br"), h("small", { class: "mono" }, one.address ?? "–")], "nowrap"],
      ["directory", (one) => h("span", { class: "mono muted" }, one.directory_id), "nowrap"],
      ["", (one) => (one.locked_out ? one.locked_out : change(one)), "nowrap"],
    ], all)));
  };
  await refresh();
  const timer = setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 2000);
  return { refresh, leave: () => clearInterval(timer) };
}

function transfer(context, shown) {
  const to = h("select", { "aria-label": "next leader" }, h("option", { value: "" }, "any voter that is up to date"), shown.voters.filter((one) => one.id !== shown.leader_id).map((one) => h("option", { value: one.id }, `controller ${one.id}`)));
  proposed(context, {
    title: "Hand leadership over",
    fields: [field("to", to)],
    foresee: async () => h("p", {}, `Controller ${shown.leader_id} ends its claim, and ${to.value ? `controller ${to.value}` : "one of the others"} claims the next epoch. No record of yours is written or lost; writes wait for the next leader.`),
    request: () => ["POST", "/v1/quorum/transfer", { to: to.value === "" ? null : Number(to.value) }],
  });
}

function linksOf(shown) {
  const nodes = shown.voters, width = 420, height = 196, across = 140, down = 66;
  const at = new Map(nodes.map((one, place) => {
    const angle = -Math.PI / 2 + (2 * Math.PI * place) / nodes.length;
    return [one.id, nodes.length === 1 ? [width / 2, height / 2] : [width / 2 + across * Math.cos(angle), height / 2 + 12 + down * Math.sin(angle)]];
  }));
  const [fromX, fromY] = at.get(shown.node_id) ?? [width / 2, height / 2];
  const links = nodes.filter((one) => one.id !== shown.node_id).map((one) => {
    const [x, y] = at.get(one.id);
    return h("path", { class: one.silent_ms ? "silent" : one.reachable ? "" : "down", d: `M${fromX} ${fromY}L${x} ${y}` }, h("title", {}, `controller ${one.id}: ${one.silent_ms ? "linked, and does not answer" : one.reachable ? "link up" : "no link"}`));
  });
  const marks = nodes.map((one) => {
    const [x, y] = at.get(one.id), leads = one.id === shown.leader_id, down = !one.reachable && one.id !== shown.node_id;
    const below = down ? "no link" : one.silent_ms ? "silent" : leads ? "leader" : one.lag_records === null ? "follower" : `lag ${number(one.lag_records)}`;
    return h("g", {}, h("circle", { class: `node ${leads ? "leads" : ""}`, cx: x, cy: y, r: 26 }), h("text", { class: "name", x, y: y - 1, "text-anchor": "middle", "font-weight": "600" }, one.id), h("text", { x, y: y + 13, "text-anchor": "middle" }, below));
  });
  return h("div", { class: "body" }, h("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": nodes.map((one) => `controller ${one.id} ${one.silent_ms ? "linked, and silent" : one.reachable ? "linked" : "not linked"}`).join(", ") }, h("g", { class: "links" }, links), marks));
}

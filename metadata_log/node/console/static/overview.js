// What is wrong, since when and because of what; how much there is; and what happened last.
import { linesOf, newest, read } from "./api.js";
import { continued, grouped, joined } from "./batches.js";
import { card, clock, dataLink, duration, h, madeLink, mark, notice, number, offsetLink, replace, since, table, title, why } from "./dom.js";
import { TYPES, followed, intervals, lanesOf, registered } from "./lanes.js";

const SHOWN = 9, KEPT = 200, LOOKED_BACK = 4000, AT_ONCE = 60, LANES_MAX = 40;
// What is read further back: all but the records of partitions, of which one change may have thousands.
const NEWS = ["ControllerClaim", "RegisterController", "UnregisterController", "Voters", "RegisterBroker", "UnregisterBroker", "BrokerRegistrationChange",
  "Topic", "TopicTombstone", "TopicRestore", "RemoveTopic", "Config", "FeatureLevel", "AccessControlEntry", "RemoveAccessControlEntry", "ClientQuota",
  "UserScramCredential", "RemoveUserScramCredential", "DelegationToken", "RemoveDelegationToken"];

export async function show(root, context) {
  const head = h("div"), tiles = h("div", { class: "tiles" }), troubles = h("div"), lanes = h("div"), warnings = h("div"), changes = h("div");
  root.append(head, tiles, h("div", { class: "grid" }, h("div", { class: "w7 stack" }, troubles, lanes, warnings), h("div", { class: "w5" }, changes)));
  let fresh = [], earlier = [], looked = []; // what was told since the page was opened, and what was read
  const added = []; // of what was told, the lines about brokers
  let present = new Map(); // the brokers' states
  const happened = () => [...fresh.filter((one) => !earlier.some((each) => each.end_offset >= one.end_offset)), ...earlier];
  const drawChanges = () => replace(changes, card("What happened last", { side: h("a", { href: "#/log" }, "whole log") }, table([
    ["time", (one) => h("span", { class: "mono" }, clock(one.time_ms)), "nowrap"],
    ["what, by whom", (one) => [why(one), h("br"), h("small", {}, [one.actor, subjects(one)].filter(Boolean).join(" · ") || "–")], "wrap"],
    ["offset", (one) => offsetLink(one.offset), "num"],
  ], joined(happened()).slice(0, SHOWN), "nothing yet")));
  const refresh = async () => {
    const shown = await read("/v1/overview");
    context.overview = shown;
    replace(head, title("Overview", `cluster ${shown.cluster_id}`, dataLink("/v1/overview")));
    replace(tiles, ...tilesOf(shown));
    replace(troubles, troublesOf(shown));
    replace(warnings, warningsOf(shown));
    drawLanes();
  };
  const drawLanes = () => {
    const found = followed(looked, added), chart = lanesOf(found, context.overview.now_ms, 740, present);
    replace(lanes, chart === null ? null : card("Brokers over time", { side: madeLink("broker-states", () => Object.fromEntries(intervals(found, context.overview.now_ms, present))) }, chart));
  };
  replace(changes, card("What happened last", { side: h("a", { href: "#/log" }, "whole log") }, h("div", { class: "empty tall" }, "reading the log")));
  await refresh();
  // What is wrong is shown first: to read the log may take longer.
  const took = (found) => {
    const batches = grouped(found), [first] = batches;
    if (first?.offset > context.overview.log_start_offset) first.isPart = true; // it may begin before what was read
    earlier = batches.filter(isNews).reverse();
    drawChanges();
  };
  const readFurther = async () => {
    looked = await newest(LOOKED_BACK, context.overview, NEWS);
    const oldest = earlier.at(-1); // of its batch perhaps only the end was read
    const older = grouped(looked, true).filter((one) => isNews(one) && (!oldest || one.key === oldest.key || one.end_offset <= oldest.offset));
    earlier = continued(earlier, older.reverse().map((one) => ({ ...one, isPart: true })), true);
    drawChanges();
    const all = Object.values(context.overview.brokers).reduce((sum, count) => sum + count, 0);
    if (all <= LANES_MAX) present = new Map((await read("/v1/brokers")).items.map((one) => [one.broker_id, registered(one)]));
    drawLanes();
  };
  // A few records are read at once; the node makes more of them in a process that may have to begin.
  newest(AT_ONCE, context.overview).then(took).catch((error) => replace(changes, notice("warn", error.message))).then(readFurther).catch(() => {});
  return {
    refresh,
    told(name, batch) {
      if (name !== "batch" || !isNews(batch)) return;
      if (batch.brokers.length) linesOf(TYPES, `from=${batch.offset}&until=${batch.end_offset}`, batch.end_offset - batch.offset).then((found) => { added.push(...found); drawLanes(); }).catch(() => {});
      fresh = [batch, ...fresh].slice(0, KEPT);
      drawChanges();
    },
  };
}

const isNews = (batch) => Object.keys(batch.types).some((type) => type !== "NoOp");

export function subjects(batch) {
  const topics = batch.topics ?? [], named = topics.slice(0, 3).join(", ") + (topics.length > 3 ? " and others" : "");
  const records = Object.values(batch.types).reduce((sum, count) => sum + count, 0);
  if (batch.isPart) return named;
  return `${named ? `${named} · ` : ""}${number(records)} record${records === 1 ? "" : "s"}${batch.batches > 1 ? ` in ${number(batch.batches)} batches from offset ${number(batch.first_offset)} on` : ""}`;
}

function tilesOf(shown) {
  const tile = (name, value, href, level = "", more = "") => h("a", { class: `tile ${level}`, href }, h("span", {}, name), h("b", {}, number(value), more ? h("small", {}, ` ${more}`) : null));
  const { partitions, brokers } = shown, online = brokers.ONLINE ?? 0, all = Object.values(brokers).reduce((sum, count) => sum + count, 0);
  return [
    tile("brokers online", online, "#/brokers", online < all ? "warn" : "", `of ${number(all)}`),
    tile("topics", shown.topics, "#/topics"),
    tile("partitions", partitions.partitions, "#/topics"),
    tile("without leader", partitions.offline, "#/topics?only=unavailable", partitions.offline ? "bad" : ""),
    tile("under min ISR", partitions.under_min_isr, "#/topics?only=under-min-isr", partitions.under_min_isr ? "bad" : ""),
    tile("under-replicated", partitions.under_replicated, "#/topics?only=under-replicated", partitions.under_replicated ? "warn" : ""),
    tile("not preferred", partitions.not_preferred, "#/topics?only=not-preferred"),
    tile("reassigning", partitions.reassigning, "#/topics?only=reassigning"),
  ];
}

const TICK = "M12 1a11 11 0 1 0 0 22 11 11 0 0 0 0-22Zm-1.6 15.7-4.3-4.3 1.7-1.7 2.6 2.6 5.9-5.9 1.7 1.7Z";

function troublesOf(shown) {
  const found = shown.troubles;
  if (!found.length) {
    return card("Nothing is wrong", { about: `as controller ${shown.node_id} sees it at offset ${number(shown.end_offset)}` }, h("div", { class: "calm" }, h("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, h("path", { d: TICK })), h("div", {}, h("b", {}, "Every broker is online, every partition has its leader and all of its ISR."), h("span", { class: "muted" }, shown.leads_since ? `Controller ${shown.leader_id} leads ${since(shown.leads_since, shown.now_ms)}.` : ""))));
  }
  return card(`${found.length} thing${found.length > 1 ? "s" : ""} to see to`, { about: "what, since when, because of what" }, h("ul", { class: "troubles" }, found.map((trouble) => h("li", {}, h("div", {}, mark(trouble.level === "red" ? "bad" : "warn", trouble.level === "red" ? "critical" : "warning")), h("div", {}, h("p", {}, trouble.subject ? h("a", { href: `#/${trouble.subject}` }, trouble.detail) : trouble.detail), h("p", { class: "why" }, because(trouble, shown.now_ms)))))));
}

function because(trouble, now) {
  if (!trouble.since) return trouble.subject === "quorum" ? trouble.code : since(null);
  return [since(trouble.since, now), ": ", why(trouble.since), trouble.since.actor ? `, by ${trouble.since.actor}` : "", " · offset ", offsetLink(trouble.since.offset)];
}

function warningsOf(shown) {
  if (!shown.recent_warnings.length) return null;
  return card("Warnings of this node within the last hour", {}, table([
    ["what", (one) => h("span", { class: "mono" }, one.code), "nowrap"],
    ["detail", (one) => one.detail, "wrap"],
    ["times", (one) => number(one.count), "num"],
    ["last", (one) => `${duration(one.ms_ago)} ago`, "num nowrap"],
  ], shown.recent_warnings));
}

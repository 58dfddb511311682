// Topics in windows, their partitions, and why each partition is as it is.
import { change, lines, read } from "./api.js";
import { proposed, trial } from "./changes.js";
import { button, card, clock, dataLink, duration, field, h, ids, mark, notice, number, offsetLink, replace, table, title, why, words } from "./dom.js";
import { alterSetting, cancel, elect, reassign, undelete } from "./moves.js";
import { LongTable } from "./table.js";

const ONLY = words({ "": "all topics", unavailable: "without leader", "under-min-isr": "under min ISR", "under-replicated": "under-replicated", "at-min-isr": "at min ISR", "not-preferred": "not preferred", reassigning: "reassigning", deleted: "deleted" });
const EXPLAINED_BACK = 100_000;
const NAMED_MAX = 8; // topics that the event of a batch names: with as many it may be about others as well
const ENDS = ["RemoveTopic", "TopicTombstone"];
const ELSEWHERE_MS = 5000;

export async function show(root, context) {
  if (context.path.length) return showTopic(root, context, context.path[0]);
  const only = ONLY[context.params.get("only")] ? context.params.get("only") : "", contains = context.params.get("contains") ?? "";
  const go = (changed) => {
    const query = new URLSearchParams({ only, contains, ...changed });
    for (const [name, value] of [...query]) if (!value) query.delete(name);
    location.hash = `#/topics${query.size ? `?${query}` : ""}`;
  };
  const search = h("input", { type: "search", value: contains, placeholder: "part of a name", "aria-label": "part of a topic's name", onchange: () => go({ contains: search.value }) });
  const pick = h("select", { "aria-label": "which", onchange: () => go({ only: pick.value }) }, Object.entries(ONLY).map(([name, text]) => h("option", { value: name, selected: name === only }, text)));
  if (only === "deleted") return showDeleted(root, context, pick);
  if (only === "reassigning") return showReassigning(root, context, pick);
  const create = context.may("alter") ? [
    only === "not-preferred" ? button("Elect preferred leaders", () => elect(context)) : null,
    only === "unavailable" ? button("Elect unclean leaders", () => elect(context, { election: "unclean" }), "danger") : null,
    only ? null : button("Create a topic", () => createTopic(context), "main"),
  ] : [];
  const rows = only ? partitionRows(context, { only, contains }) : topicRows(contains);
  root.append(title("Topics", ONLY[only], ...create, dataLink(only ? `/v1/partitions?only=${only}&limit=1000&consistency=stale` : "/v1/topics?limit=1000&consistency=stale")),
    h("div", { class: "card" }, h("header", {}, h("form", { class: "bar", role: "search", onsubmit: (event) => { event.preventDefault(); go({ contains: search.value }); } }, search, pick), h("span", { class: "push" }, rows.count)), rows.scroll));
  await rows.ready;
  return only ? { refresh: () => rows.refresh(), concerns: (_name, _batch, types) => types.some((type) => /Partition|Topic|Broker/.test(type)) } : { refresh: () => rows.refresh(), concerns: concerning(rows) };
}

/** Whether a change concerns topics that are seen; a change of others may shift how many there are, which can wait. */
function concerning(rows) {
  let looked = 0;
  return (name, batch, types) => {
    if (name === "reset") return true;
    if (!types.some((type) => /Topic|Partition/.test(type))) return false;
    if (name === "batch" && batch.topics.length < NAMED_MAX) {
      const changed = new Set(batch.topics);
      if (rows.shows((row) => changed.has(row.name))) return true;
      if (!types.some((type) => /Topic/.test(type))) return false;
      const last = rows.rows.at(-1);
      if (!last || rows.next === null || batch.topics.some((each) => each < last.name)) return true;
    }
    if (performance.now() - looked < ELSEWHERE_MS) return false;
    looked = performance.now();
    return true;
  };
}

async function showDeleted(root, context, pick) {
  const head = h("div"), rows = h("div");
  root.append(head, rows);
  const refresh = async () => {
    const shown = await read("/v1/topics?deleted=true"), now = Date.now(), window = shown.undelete_window_ms;
    replace(head, title("Topics", "deleted", pick, dataLink("/v1/topics?deleted=true&consistency=stale")));
    replace(rows, card("Deleted topics that can be restored", { about: window ? `a topic is kept for ${duration(window)} after its deletion` : "this cluster keeps no deleted topics (undelete_window_ms in [topics] of the controllers' settings)" }, table([
      ["topic", (one) => h("b", {}, one.name)], ["partitions", (one) => number(one.partition_count), "num"], ["replication factor", (one) => number(one.replication_factor), "num"],
      ["deleted", (one) => clock(one.deleted_at_ms), "nowrap"], ["gone in", (one) => duration(Math.max(0, one.gone_at_ms - now)), "num nowrap"], ["topic id", (one) => h("span", { class: "mono muted" }, one.topic_id)],
      ["", (one) => (context.may("alter") ? button("Restore", () => undelete(context, one), "plain") : ""), "num"],
    ], shown.items, "no topic that was deleted can be restored")));
  };
  await refresh();
  return { refresh, concerns: (_name, _batch, types) => types.some((type) => /Topic|all/.test(type)) };
}

async function showReassigning(root, context, pick) {
  const head = h("div"), rows = h("div");
  root.append(head, rows);
  const refresh = async () => {
    const shown = await read("/v1/partitions/reassignments"), may = context.may("alter");
    replace(head, title("Topics", "reassigning", pick, may && shown.items.length > 1 ? button(`Cancel all ${number(shown.items.length)}`, () => cancel(context, shown.items), "danger") : null, dataLink("/v1/partitions/reassignments?consistency=stale")));
    replace(rows, card("Reassignments under way", { about: `${number(shown.items.length)} partitions${shown.items.length > 500 ? ", the first 500" : ""}` }, table([
      ["partition", (one) => h("a", { href: `#/topics/${encodeURIComponent(one.topic)}` }, `${one.topic}:${one.partition}`), "nowrap"],
      ["replicas", (one) => ids(one.replicas), "mono nowrap"], ["ISR", (one) => ids(one.isr), "mono nowrap"], ["adds", (one) => ids(one.adding_replicas), "mono nowrap"], ["removes", (one) => ids(one.removing_replicas), "mono nowrap"],
      ["state", (one) => (one.why_stuck ? [mark("warn", "stuck"), " ", h("small", {}, one.why_stuck)] : mark("good", "goes on")), "wrap"],
      ["", (one) => (may ? button("Cancel", () => cancel(context, [one]), "plain") : ""), "num"],
    ], shown.items.slice(0, 500), "no partition is being reassigned")));
  };
  await refresh();
  return { refresh, concerns: (_name, _batch, types) => types.some((type) => /Partition|Topic|Broker|all/.test(type)) };
}

function topicRows(contains) {
  const lack = (count, level, word) => (count ? mark(level, `${number(count)} ${word}`) : null);
  const rows = new LongTable([
    ["topic", (one) => h("a", { href: `#/topics/${encodeURIComponent(one.name)}` }, one.name)],
    ["partitions", (one) => number(one.partition_count), "num"],
    ["replication factor", (one) => number(one.replication_factor), "num"],
    ["state", (one) => { const found = [lack(one.offline, "bad", "without leader"), lack(one.under_replicated, "warn", "under-replicated"), lack(one.reassigning, "idle", "reassigning"), lack(one.not_preferred, "idle", "not preferred")].filter(Boolean); return found.length ? found.flatMap((each) => [each, " "]) : mark("good", "whole"); }],
    ["topic id", (one) => h("span", { class: "mono muted" }, one.topic_id)],
  ], (after, limit) => read(`/v1/topics?${new URLSearchParams({ limit, ...(contains ? { contains } : {}), ...(after ? { after } : {}) })}`), { empty: contains ? `no topic has ${contains} in its name` : "there is no topic yet" });
  return rows;
}

function partitionRows(context, { only = "", topic = "", contains = "" }) {
  const query = (after, limit) => new URLSearchParams({ limit, ...(only ? { only } : {}), ...(topic ? { topic } : {}), ...(after ? { after } : {}) });
  const rows = new LongTable([
    ["partition", (one) => h("a", { href: `#/topics/${encodeURIComponent(one.topic)}` }, `${topic ? "" : `${one.topic}:`}${one.partition}`)],
    ["leader", (one) => (one.leader === -1 ? mark("bad", "none") : h("a", { href: `#/brokers/${one.leader}` }, one.leader)), "num"],
    ["state", (one) => stateOf(one)],
    ["ISR", (one) => ids(one.isr), "mono"],
    ["replicas", (one) => ids(one.replicas), "mono"],
    ["leader epoch", (one) => number(one.leader_epoch), "num"],
    ["partition epoch", (one) => number(one.partition_epoch), "num"],
  ], async (after, limit) => {
    const page = await read(`/v1/partitions?${query(after, limit)}`);
    return contains ? { ...page, items: page.items.filter((one) => one.topic.includes(contains)) } : page;
  }, {
    empty: only ? `no partition is ${ONLY[only]}` : "none", key: (one) => `${one.topic}:${one.partition}`, open: (one) => explained(one, context),
    compare: (a, b) => (a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1),
  });
  return rows;
}

function stateOf(one) {
  if (one.leader === -1) return mark("bad", "without leader");
  const missing = one.replicas.filter((id) => !one.isr.includes(id));
  if (missing.length) return mark("warn", `not in sync: ${ids(missing)}`);
  if (one.adding_replicas?.length || one.removing_replicas?.length) return mark("idle", "reassigning");
  if (one.leader !== one.replicas[0]) return mark("idle", `${one.replicas[0]} is preferred`);
  return mark("good", "whole");
}

/** Each change of a partition, newest first: what changed, why, by whom. */
function explained(one, context) {
  const root = h("div", { class: "muted" }, "reading the log");
  tell(root, one).catch((error) => replace(root, notice("bad", error.message)));
  const changes = context.may("alter") ? h("div", { class: "bar within" },
    button("Reassign", () => reassign(context, one)),
    one.adding_replicas?.length || one.removing_replicas?.length ? button("Cancel its reassignment", () => cancel(context, [one]), "danger") : null,
    button("Elect a leader", () => elect(context, { topic: one.topic, partition: one.partition, election: one.leader === -1 ? "unclean" : "preferred" }))) : null;
  return h("div", {}, changes, root);
}

async function tell(root, one) {
  const overview = await read("/v1/overview");
  const from = Math.max(overview.log_start_offset, overview.end_offset - EXPLAINED_BACK);
  const found = await lines(new URLSearchParams({ topics: one.topic, from, until: overview.end_offset }), 5000);
  const steps = [];
  let before = null, topicId = null;
  for (const line of found) {
    const record = line.record;
    if (line.type === "Topic" && record.name === one.topic) { topicId = record.topic_id; before = null; }
    if (!["Partition", "PartitionChange"].includes(line.type) || record.partition_id !== one.partition || (topicId !== null && record.topic_id !== topicId)) continue;
    const changed = [];
    for (const name of ["leader", "isr", "replicas", "adding_replicas", "removing_replicas", "eligible_leader_replicas", "leader_recovery_state"]) {
      const now = record[name];
      if (now === null || now === undefined) continue;
      const was = before?.[name];
      if (JSON.stringify(was) !== JSON.stringify(now) && !(was === undefined && (now === 0 ? name === "leader_recovery_state" : Array.isArray(now) && !now.length))) changed.push([name.replaceAll("_", " "), was, now]);
    }
    before = { ...before, ...Object.fromEntries(Object.entries(record).filter(([, value]) => value !== null)) };
    steps.push({ line, changed });
  }
  root.className = "";
  if (!steps.length) { replace(root, h("div", { class: "muted" }, `nothing about it in the newest ${number(EXPLAINED_BACK)} records`)); return; }
  const value = (each) => (Array.isArray(each) ? ids(each) : each === -1 ? "none" : String(each ?? "–"));
  replace(root, h("ol", { class: "steps" }, steps.reverse().slice(0, 30).map(({ line, changed }) => h("li", {}, h("div", {}, h("span", { class: "mono" }, clock(line.time_ms)), " ", why(line), line.actor ? h("small", {}, ` by ${line.actor}`) : null, " ", offsetLink(line.offset)), h("div", { class: "changed" }, changed.map(([name, was, now]) => h("span", {}, `${name} `, was === undefined ? null : [h("s", { html: true }, value(was)), " → "], h("b", {}, value(now)))))))));
}

async function showTopic(root, context, name) {
  const rows = partitionRows(context, { topic: name });
  const settings = h("div"), head = h("div");
  let isShown = false;
  let isGone = false;
  const refresh = async () => {
    if (isGone) { replace(settings, notice("warn", `Topic ${name} was deleted.`)); return; }
    const [configs] = await Promise.all([read(`/v1/configs?topic=${encodeURIComponent(name)}&effective=1`), isShown ? rows.refresh() : rows.ready]);
    isShown = true;
    const own = configs.items.filter((one) => one.source === "DYNAMIC_TOPIC_CONFIG");
    replace(settings, card("Settings", { about: `${own.length} of its own` }, table([
      ["setting", (one) => h("span", { class: "mono" }, one.name), "nowrap"],
      ["value", (one) => h("span", { class: "mono" }, one.is_sensitive ? "(secret)" : one.value ?? "–"), "wrap"],
      ["from", (one) => one.source.toLowerCase().replaceAll("_", " ").replace(" config", ""), "nowrap"],
    ], [...own, ...configs.items.filter((one) => ["min.insync.replicas", "retention.ms", "cleanup.policy"].includes(one.name) && !own.includes(one))], "none set")));
  };
  const changes = context.may("alter") ? [
    button("Change a setting", () => alterSetting(context, { title: `Change a setting of ${name}`, resource: { topic: name }, query: `topic=${encodeURIComponent(name)}` })),
    button("Add partitions", () => morePartitions(context, name)),
    button("Elect leaders", () => elect(context, { topic: name })),
    button("Delete", () => deleteTopic(context, name), "danger"),
  ] : [];
  head.append(title(name, "topic", ...changes, dataLink(`/v1/topics/${encodeURIComponent(name)}?consistency=stale`)));
  root.append(head, h("div", { class: "card" }, h("header", {}, h("h2", {}, "Partitions"), h("span", { class: "push" }, rows.count)), rows.scroll), settings);
  rows.scroll.style.maxHeight = "60vh";
  await refresh();
  const concerns = (event, batch, types) => event !== "batch" || batch.topics.includes(name) || (batch.topics.length >= NAMED_MAX && types.some((type) => /Topic|Partition/.test(type))) || types.includes("Config");
  const told = (event, batch) => { if (event === "batch" && batch.topics.includes(name) && batch.types) isGone = ENDS.some((type) => type in batch.types); };
  return { refresh, concerns, told };
}

// --- changes

function createTopic(context) {
  const name = h("input", { required: true, autofocus: true, maxlength: 249 }), partitions = h("input", { type: "number", min: 1, value: "6" }), factor = h("input", { type: "number", min: 1, value: "3" });
  const body = (trial) => ({ name: name.value, partitions: Number(partitions.value), replication_factor: Number(factor.value), ...(trial ? { validate_only: true } : {}) });
  proposed(context, {
    title: "Create a topic",
    fields: [field("name", name), field("partitions", partitions), field("replication factor", factor)],
    foresee: async () => {
      const made = await change("POST", "/v1/topics", body(true));
      return [h("p", {}, `Topic ${made.name} with ${number(made.partitions.length)} partitions. Where its replicas could lie (chance decides again when it is created):`), table([["partition", (one) => String(one.partition), "num"], ["leader", (one) => String(one.leader), "num"], ["replicas", (one) => ids(one.replicas), "mono"]], made.partitions.slice(0, 12)), made.partitions.length > 12 ? h("p", { class: "muted" }, `and ${number(made.partitions.length - 12)} more`) : null];
    },
    request: () => ["POST", "/v1/topics", body(false)],
    done: () => { location.hash = `#/topics/${encodeURIComponent(name.value)}`; },
  });
}

function deleteTopic(context, name) {
  const path = `/v1/topics/${encodeURIComponent(name)}`;
  proposed(context, {
    title: `Delete ${name}`,
    danger: true,
    foresee: async () => {
      const [topic, deleted] = await Promise.all([read(path), read("/v1/topics?deleted=true")]);
      const window = deleted.undelete_window_ms;
      return [await trial("DELETE", `${path}?validate_only=true`), h("p", {}, `${number(topic.partitions.length)} partitions and their messages go.`), window ? h("p", {}, `It can be restored for ${Math.round(window / 60000)} minutes.`) : h("p", { class: "notice warn" }, "It cannot be restored: this cluster keeps no deleted topics.")];
    },
    request: () => ["DELETE", path],
    done: () => { location.hash = "#/topics"; },
  });
}

function morePartitions(context, name) {
  const to = h("input", { type: "number", min: 1, required: true });
  const body = (trial) => ({ topics: [{ name, partitions: Number(to.value) }], ...(trial ? { validate_only: true } : {}) });
  proposed(context, {
    title: `Add partitions to ${name}`,
    fields: [field("partitions it shall have", to)],
    foresee: async () => [await trial("POST", "/v1/topics/partitions", body(true)), h("p", {}, "Partitions are never taken away again, and keys go to other partitions from then on.")],
    request: () => ["POST", "/v1/topics/partitions", body(false)],
  });
}

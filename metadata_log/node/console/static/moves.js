// What moves leaderships and replicas: elections, reassignments, and the draining of brokers.
import { read } from "./api.js";
import { proposed, trial } from "./changes.js";
import { field, h, ids, notice, number, table } from "./dom.js";

const AT_ONCE = 1000;
const PLANNED_MAX = 200_000;

const chunks = (list, size = AT_ONCE) => Array.from({ length: Math.ceil(list.length / size) }, (_, place) => list.slice(place * size, (place + 1) * size));
const pair = ({ topic, partition }) => ({ topic, partition });

/** Partitions in windows, until the last or PLANNED_MAX of them. */
async function allPartitions(query = "") {
  const found = [];
  let after = null;
  do {
    const page = await read(`/v1/partitions?${new URLSearchParams({ limit: 10_000, ...(after ? { after } : {}) })}${query}`);
    found.push(...page.items);
    after = page.next_after;
    if (found.length > PLANNED_MAX) throw new Error(`more than ${number(PLANNED_MAX)} partitions: use the command line`);
  } while (after !== null);
  return found;
}

/** "0, 2-4" as numbers; none typed: all of them. */
function chosen(text, all) {
  if (!text.trim()) return all;
  const numbers = new Set();
  for (const part of text.split(",")) {
    const match = /^\s*(\d+)\s*(?:-\s*(\d+)\s*)?$/.exec(part);
    if (!match) throw new Error(`${part.trim()} is no partition: write numbers and ranges, as 0, 2-4`);
    const last = Number(match[2] ?? match[1]);
    if (last - Number(match[1]) > 100_000) throw new Error(`${part.trim()} is a very long range`);
    for (let one = Number(match[1]); one <= last; one += 1) numbers.add(one);
  }
  const found = all.filter((one) => numbers.has(one.partition));
  if (found.length < numbers.size) throw new Error(`there are no such partitions: ${[...numbers].filter((one) => !all.some((each) => each.partition === one)).slice(0, 5).join(", ")}`);
  return found;
}

/** Elect leaders of a topic's partitions, or of all that have another leader than the preferred one, or none. */
export function elect(context, { topic = null, partition = null, election = "preferred" } = {}) {
  const kind = h("select", {}, [["preferred", "preferred: the first replica"], ["unclean", "unclean: any replica, messages may be lost"]].map(([value, text]) => h("option", { value, selected: value === election }, text)));
  const which = h("input", { placeholder: "all", value: partition ?? "", "aria-label": "partitions" });
  let wanted = [];
  const body = (some) => ({ election: kind.value, partitions: some.map(pair) });
  proposed(context, {
    title: topic ? `Elect leaders of ${topic}` : "Elect leaders",
    danger: election === "unclean",
    fields: [field("election", kind), topic ? field("partitions", which, "numbers and ranges: 0, 2-4") : null],
    foresee: async () => {
      wanted = topic ? chosen(which.value, (await read(`/v1/topics/${encodeURIComponent(topic)}`)).partitions.map((one) => ({ topic, ...one }))) : await allPartitions(`&only=${kind.value === "unclean" ? "unavailable" : "not-preferred"}`);
      if (!wanted.length) throw new Error(kind.value === "unclean" ? "every partition has a leader" : "every partition is led by its preferred replica");
      return [
        kind.value === "unclean" ? notice("bad", "Where no replica of the ISR is online, one that is behind may lead: what it lacks is lost for good.") : null,
        h("p", {}, `${number(wanted.length)} partitions are looked at${wanted.length > AT_ONCE ? `; shown is what the first ${number(AT_ONCE)} would do` : ""}.`),
        await trial("POST", "/v1/partitions/elect?validate_only=true", body(wanted.slice(0, AT_ONCE))),
      ];
    },
    requests: () => chunks(wanted).map((some) => ["POST", "/v1/partitions/elect", body(some)]),
  });
}

export function reassign(context, one) {
  const replicas = h("input", { required: true, value: one.replicas.filter((id) => !one.removing_replicas?.includes(id)).join(", ") });
  const body = () => {
    const list = replicas.value.split(/[\s,]+/).filter(Boolean).map(Number);
    if (!list.length || list.some((id) => !Number.isInteger(id) || id < 0)) throw new Error("replicas are ids of brokers, with commas between");
    return { partitions: [{ ...pair(one), replicas: list }] };
  };
  proposed(context, {
    title: `Reassign ${one.topic}:${one.partition}`,
    fields: [field("replicas it shall have", replicas, "the first one is preferred to lead")],
    foresee: async () => [h("p", {}, h("span", { class: "muted" }, "replicas "), h("s", { html: true }, ids(one.replicas)), " → ", h("b", {}, ids(body().partitions[0].replicas))), await trial("POST", "/v1/partitions/reassign?validate_only=true", body())],
    request: () => ["POST", "/v1/partitions/reassign", body()],
  });
}

/** Cancel reassignments under way: replicas that were being added go, and those that were being removed stay. */
export function cancel(context, list) {
  const body = (some) => ({ partitions: some.map((one) => ({ ...pair(one), replicas: null })) });
  proposed(context, {
    title: list.length === 1 ? `Cancel the reassignment of ${list[0].topic}:${list[0].partition}` : `Cancel ${number(list.length)} reassignments`,
    danger: true,
    foresee: async () => trial("POST", "/v1/partitions/reassign?validate_only=true", body(list.slice(0, AT_ONCE))),
    requests: () => chunks(list).map((some) => ["POST", "/v1/partitions/reassign", body(some)]),
  });
}

// --- draining

/**
 * Return the reassignments that leave no replica on a broker: each replica keeps its place, and goes to the broker with the
 * fewest that has none of the partition, in a rack that has none where there is one.
 */
export function drained(id, brokers, partitions) {
  const able = brokers.filter((one) => one.broker_id !== id && one.registration_state === "ACTIVE");
  const rack = new Map(brokers.map((one) => [one.broker_id, one.rack]));
  const load = new Map(able.map((one) => [one.broker_id, 0])), plan = [], unplaced = [], moved = new Map();
  const stays = (one) => one.replicas.filter((each) => !one.removing_replicas?.includes(each));
  for (const one of partitions) for (const each of stays(one)) if (load.has(each)) load.set(each, load.get(each) + 1);
  for (const one of partitions) {
    const replicas = stays(one);
    if (!replicas.includes(id)) continue;
    const others = replicas.filter((each) => each !== id), racks = new Set(others.map((each) => rack.get(each)));
    const free = able.map((each) => each.broker_id).filter((each) => !others.includes(each));
    free.sort((a, b) => racks.has(rack.get(a)) - racks.has(rack.get(b)) || load.get(a) - load.get(b) || a - b);
    if (!free.length) { unplaced.push(one); continue; }
    load.set(free[0], load.get(free[0]) + 1);
    moved.set(free[0], (moved.get(free[0]) ?? 0) + 1);
    plan.push({ ...pair(one), replicas: replicas.map((each) => (each === id ? free[0] : each)) });
  }
  return { plan, unplaced, moved, load };
}

export function drain(context, id) {
  let plan = [];
  proposed(context, {
    title: `Drain broker ${id}`,
    danger: true,
    foresee: async () => {
      const [brokers, partitions] = await Promise.all([read("/v1/brokers"), allPartitions()]);
      const found = drained(id, brokers.items, partitions);
      if (found.unplaced.length) throw new Error(`${number(found.unplaced.length)} partitions need more brokers than are left in service: ${found.unplaced.slice(0, 3).map((one) => `${one.topic}:${one.partition}`).join(", ")}`);
      plan = found.plan;
      if (!plan.length) throw new Error(`broker ${id} has no replica`);
      return [
        h("p", {}, `${number(plan.length)} replicas are copied to other brokers, and then leave broker ${id}. It stays registered, and new topics may still use it. The page Topics, filter reassigning, shows how far it is.`),
        table([["to broker", (one) => h("b", {}, one[0]), "num"], ["gets", (one) => number(one[1]), "num"], ["has then", (one) => number(found.load.get(one[0])), "num"]], [...found.moved].sort((a, b) => a[0] - b[0])),
        await trial("POST", "/v1/partitions/reassign?validate_only=true", { partitions: plan.slice(0, AT_ONCE) }),
        plan.length > AT_ONCE ? h("p", { class: "muted" }, `Shown is what the first ${number(AT_ONCE)} would write; the others follow in parts of ${number(AT_ONCE)}.`) : null,
      ];
    },
    requests: () => chunks(plan).map((some) => ["POST", "/v1/partitions/reassign", { partitions: some }]),
    done: () => { location.hash = "#/topics?only=reassigning"; },
  });
}

export function undelete(context, one) {
  const body = { topics: [{ topic_id: one.topic_id }] };
  proposed(context, {
    title: `Restore ${one.name}`,
    foresee: async () => [h("p", {}, `Topic ${one.name} comes back with its ${number(one.partition_count)} partitions, its settings and its id.`), await trial("POST", "/v1/topics/undelete?validate_only=true", body)],
    request: () => ["POST", "/v1/topics/undelete", body],
    done: () => { location.hash = `#/topics/${encodeURIComponent(one.name)}`; },
  });
}

export function unregister(context, one) {
  const runs = one.state !== "OFFLINE" && one.registration_state !== "FENCED";
  const sure = h("input", { type: "checkbox" });
  proposed(context, {
    title: `Unregister broker ${one.broker_id}`,
    danger: true,
    fields: runs ? [h("label", { class: "check" }, sure, "although it runs")] : [],
    foresee: async () => {
      if (runs && !sure.checked) throw new Error("This broker runs, and would register again at once: stop it first, or tick the box.");
      return [
        runs ? notice("warn", "This broker is in service. Its leaderships move, it leaves every ISR, and it may register again at once.") : null,
        await trial("DELETE", `/v1/brokers/${one.broker_id}?validate_only=true`),
      ];
    },
    request: () => ["DELETE", `/v1/brokers/${one.broker_id}`],
    done: () => { location.hash = "#/brokers"; },
  });
}

/** Change one setting of the cluster, a broker or a topic: `resource` names it as the API does. */
export function alterSetting(context, { title, resource, query, name = "" }) {
  const known = h("datalist", { id: "known-settings", html: true });
  const setting = h("input", { required: true, value: name, list: "known-settings", autocomplete: "off", spellcheck: "false" }), value = h("input", { placeholder: "empty: back to the default", autocomplete: "off" });
  const body = (isTrial) => ({ resources: [{ ...resource, ...(value.value === "" ? { unset: [setting.value] } : { set: { [setting.value]: value.value } }) }], ...(isTrial ? { validate_only: true } : {}) });
  read(`/v1/configs?${query}&effective=1`).then((found) => known.append(...found.items.map((one) => h("option", { value: one.name })))).catch(() => {});
  proposed(context, {
    title,
    fields: [field("setting", setting), field("value", value), known],
    foresee: async () => {
      const checked = await trial("PATCH", "/v1/configs", body(true));
      const before = (await read(`/v1/configs?${query}&effective=1`)).items.find((one) => one.name === setting.value);
      return [checked, h("p", {}, h("code", {}, setting.value), ": ", h("s", { html: true }, before?.is_sensitive ? "(secret)" : before?.value ?? "not set"), " → ", h("b", {}, value.value === "" ? "the default" : value.value))];
    },
    request: () => ["PATCH", "/v1/configs", body(false)],
  });
}

/** Finalize a feature at another level. */
export function alterLevel(context, one) {
  const level = h("input", { type: "number", min: 0, max: one.supported_max ?? 32767, required: true, value: one.level });
  const kind = h("select", {}, [["upgrade", "raise"], ["safe_downgrade", "lower, nothing is lost"], ["unsafe_downgrade", "lower, although something is lost"]].map(([value, text]) => h("option", { value }, text)));
  const body = (isTrial) => ({ updates: [{ feature: one.feature, level: Number(level.value), upgrade_type: kind.value }], ...(isTrial ? { validate_only: true } : {}) });
  level.addEventListener("input", () => { kind.value = Number(level.value) >= one.level ? "upgrade" : kind.value === "upgrade" ? "safe_downgrade" : kind.value; });
  proposed(context, {
    title: `Change the level of ${one.feature}`,
    fields: [field("level", level, one.supported_max === null ? "" : `this release supports ${one.supported_min} to ${one.supported_max}; 0 switches it off`), field("how", kind)],
    foresee: async () => [await trial("POST", "/v1/features", body(true)), h("p", {}, h("code", {}, one.feature), ": ", h("s", { html: true }, number(one.level)), " → ", h("b", {}, level.value))],
    request: () => ["POST", "/v1/features", body(false)],
  });
}


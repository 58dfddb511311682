// Elements and words. All text comes in as text nodes: nothing that a node sends becomes markup.

/** Words by name. It has no other names: a name may come from the address of a page, "constructor" as well. */
export const words = (entries) => Object.assign(Object.create(null), entries);

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "circle", "text", "g", "line", "title", "defs", "pattern"]);

/** An element with attributes, listeners (onclick: f) and children. */
export function h(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) && attributes.html !== true ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false || name === "html") continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else if (name === "checked") made.checked = true;
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false).map((child) => (child instanceof Node ? child : document.createTextNode(String(child)))));
  return made;
}

/** What makes two controls the same for a person: their words, and in a table those of their row. */
const meant = (one) => [one.localName, one.getAttribute("aria-label"), one.closest("tr")?.textContent ?? one.textContent].join("\0");

/** Replace what is in a node. A control that has the focus keeps it: a refresh leaves the keyboard where it was. */
export function replace(node, ...children) {
  const held = node !== document.activeElement && node.contains(document.activeElement) ? document.activeElement : null;
  const nth = held && alike(node, held).indexOf(held);
  node.replaceChildren(...children.flat(Infinity).filter((child) => child));
  if (held) (node.contains(held) ? held : alike(node, held)[nth])?.focus({ preventScroll: true });
  return node;
}

const alike = (node, held) => [...node.querySelectorAll(held.localName)].filter((one) => meant(one) === meant(held));

const SHAPES = words({
  good: "M1 5.5 2.5 4 4.2 5.8 7.6 1.8 9 3 4.3 8.4Z",
  warn: "M5 .8 9.8 9.2H.2Z",
  bad: "M3 0h4l3 3v4l-3 3H3L0 7V3Z",
  idle: "M0 4h10v2H0Z",
});

/** A state as a colour, a shape and a word. */
export function mark(level, word) {
  return h("span", { class: `mark ${level}` }, h("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, h("path", { d: SHAPES[level] })), word);
}

const LEVELS = words({ ONLINE: "good", STOPPING: "warn", FENCED: "bad", OFFLINE: "bad", leader: "good", follower: "idle", observer: "idle", red: "bad", yellow: "warn", candidate: "warn" });
export function state(name) {
  return mark(LEVELS[name] ?? "idle", String(name ?? "unknown").toLowerCase());
}

export function card(title, options, ...content) {
  const { about = "", side = null, width = "" } = options ?? {};
  return h("section", { class: `card ${width}` }, h("header", {}, h("h2", {}, title), about ? h("small", {}, about) : null, side ? h("span", { class: "push" }, side) : null), ...content);
}

export function title(text, more = "", ...side) {
  document.title = `${text} · metaquorum`;
  return h("div", { class: "title" }, h("h1", {}, text), h("span", { class: "more" }, more), side.length ? h("span", { class: "push" }, ...side) : null);
}

export function notice(level, ...words) {
  return h("p", { class: `notice ${level}`, role: level === "bad" ? "alert" : "status" }, ...words);
}

/** A plain table; columns are [title, cell of a row, class]. */
export function table(columns, rows, empty = "none") {
  if (!rows.length) return h("div", { class: "empty" }, empty);
  const head = h("thead", {}, h("tr", {}, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind ?? "" }, name))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" }, h("table", {}, head, h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, cell, kind]) => h("td", { class: kind ?? "" }, cell(row))))))));
}

// --- words

export const number = (value) => (value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US"));
export const ids = (list) => (list && list.length ? list.join(", ") : "–");

const CLOCK_MS = [-62_135_596_800_000, 253_402_300_799_999]; // of the years 1 to 9999

export function clock(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < CLOCK_MS[0] || ms > CLOCK_MS[1]) return ms < 0 ? "before the year 1" : "after the year 9999";
  const at = new Date(ms);
  const time = at.toISOString().slice(11, 23);
  return at.toISOString().slice(0, 10) === new Date().toISOString().slice(0, 10) ? time : `${at.toISOString().slice(0, 10)} ${time.slice(0, 8)}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

export function bytes(size) {
  if (size < 1024) return `${size} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let shown = size, at = -1;
  while (shown >= 1024 && at < 3) { shown /= 1024; at += 1; }
  return `${shown.toFixed(shown < 10 ? 1 : 0)} ${units[at]}`;
}

const LINKS = words({
  acknowledges: "; its connection was up, so its process stood still or was too busy",
  unanswered: "; nothing that was sent to it was acknowledged",
  ended: "; its connection had ended",
  unread: "; what it had sent lay unread",
});

const CAUSES = words({
  BROKER_REGISTERED: (d, ref) => `broker ${d.broker_id} registered${ref === null ? " for the first time" : d.clean === false ? ", its run before had not ended cleanly" : ""}`,
  BROKER_UNREGISTERED: (d) => `broker ${d.broker_id} was removed`,
  BROKER_UNFENCED: (d) => `broker ${d.broker_id} had caught up and was unfenced`,
  CONTROLLED_SHUTDOWN: (d) => `broker ${d.broker_id} asked to shut down`,
  DIRECTORIES_REPORTED: (d) => `broker ${d.broker_id} reported where its replicas lie`,
  FENCE_REQUESTED: (d) => `broker ${d.broker_id} asked to be fenced`,
  ISR_REPORTED: (d) => `leader ${d.broker_id} reported the ISR`,
  LEADERS_BALANCED: () => "leaderships were given back to first replicas",
  LOG_DIR_OFFLINE: (d) => `directories of broker ${d.broker_id} failed`,
  PREFERRED_ELECTION_REQUESTED: () => "a preferred election was asked for",
  UNCLEAN_ELECTION_REQUESTED: () => "an unclean election was asked for",
  REASSIGNMENT_REQUESTED: () => "a reassignment was asked for",
  SESSION_EXPIRED: (d) =>
    `broker ${d.broker_id} was silent${d.silent_ms ? ` for ${d.silent_ms} ms` : ""}: its session ended${LINKS[d.link] ?? ""}`,
  SHUTDOWN_GRANTED: (d) => `broker ${d.broker_id} shut down`,
  TOPIC_DELETED: () => "the topic was deleted",
  TOPIC_UNDELETED: () => "the topic was restored",
  CONTROLLER_CLAIMED: (d) => `controller ${d.node_id} took over`,
  CONTROLLER_REGISTERED: () => "a controller registered",
  CONTROLLER_UNREGISTERED: () => "a controller was removed from the registrations",
  DELEGATION_TOKEN_EXPIRED: () => "delegation tokens had ended",
  ELIGIBLE_REPLICAS_CLEARED: () => "min.insync.replicas was about to change",
  LOG_DIR_CORDONED: (d) => `broker ${d.broker_id} reported which directories are cordoned`,
  PRODUCER_IDS_REQUESTED: (d) => `broker ${d.broker_id} asked for producer ids`,
  UNCLEAN_SWEEP: () => "the topic accepts lost messages, and no other replica could lead",
  UNDELETE_WINDOW_COUNTED: () => "deleted topics can still be restored; the log's time goes on",
  UNDELETE_WINDOW_PASSED: () => "deleted topics could be restored no longer, and were removed",
});

/** Why a batch was written: its cause in words, else the operation that was asked for. */
export function why(batch) {
  const cause = batch.cause;
  if (cause) return CAUSES[cause.code]?.(cause.detail ?? {}, cause.ref_offset) ?? cause.code.toLowerCase().replaceAll("_", " ");
  if (batch.operation === "completeActivation") return "a controller became the active one";
  if (batch.operation === "writeNoOpRecord") return "the quiet quorum marked that it is alive";
  return batch.operation ? `${batch.operation.replace(/\.many$/, "")} was asked for` : "–";
}

export function since(began, now) {
  if (!began) return "since before this controller started to apply the log";
  return `since ${clock(began.time_ms)}, ${duration(now - began.time_ms)} ago`;
}

export function offsetLink(offset) {
  return h("a", { href: `#/log?from=${offset}`, class: "mono" }, number(offset));
}

/** A link to another node's console; what is no address of HTTP stays text. */
export function nodeLink(url, page, text = null) {
  const shown = text ?? url.replace(/^https?:\/\//, "");
  return /^https?:\/\/[^/]+$/.test(url) ? h("a", { href: `${url}/#/${page}` }, shown) : shown;
}

/** A list of facts: [name, value]. */
export function facts(rows) {
  return h("dl", {}, rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** What is shown while a long answer is made: how far it is, and the way to call it off. */
export function progress(callOff) {
  const bar = h("progress", { max: 1 }), text = h("span", {}, "asking"), began = performance.now();
  const shown = h("div", { class: "notice idle waiting" }, bar, text, button("Call it off", callOff));
  return { shown, told({ doing, share }) {
    text.textContent = `${doing}, ${duration(performance.now() - began)}`;
    if (share === null) bar.removeAttribute("value"); else bar.value = share;
  } };
}

/** An input with its label, and what there is to know about it. */
export function field(label, input, more = "") {
  if (!more) return h("label", { class: "field" }, label, input);
  described += 1;
  input.setAttribute("aria-describedby", `about-${described}`);
  return h("div", { class: "field" }, h("label", { class: "field" }, label, input), h("small", { id: `about-${described}` }, more));
}
let described = 0;

export function button(text, onclick, kind = "") {
  return h("button", { type: "button", class: kind, onclick }, text);
}

/** What a page shows, for other programs. */
export function dataLink(path) {
  return h("a", { href: path, target: "_blank", rel: "noopener" }, "data as JSON");
}

/** The data of a chart that a page made itself; `made` is asked once the link is followed. */
export function madeLink(name, made) {
  return h("a", { href: "#", download: `${name}.json`, onclick: (event) => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(made(), null, 1)], { type: "application/json" }));
    event.currentTarget.href = url;
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  } }, "data as JSON");
}

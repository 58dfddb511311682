// What a page asks its own node, and what the node tells by itself.

export class Refused extends Error {
  constructor(status, body) {
    super(body?.message ?? `the node answered ${status}`);
    this.status = status;
    this.code = body?.error ?? "UNREACHABLE";
    this.retryable = body?.retryable === true;
    this.controller = null;
  }
}

const TIMEOUT_MS = 8000;
let firstSeen = null;

/** The offset of the first answer: what is told from there on, no page has missed. */
export const firstOffset = () => (firstSeen === null ? null : Number(firstSeen));

async function send(method, path, body) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-Metaquorum-Console"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal: AbortSignal.timeout(TIMEOUT_MS), credentials: "same-origin" });
  } catch (error) {
    throw new Refused(0, { message: error.name === "TimeoutError" ? `the node did not answer within ${TIMEOUT_MS / 1000} s` : "the node cannot be reached" });
  }
  firstSeen ??= answer.headers.get("X-High-Watermark");
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { value = null; }
  if (answer.ok || (path === "/readyz" && value)) return value;
  const refused = new Refused(answer.status, value);
  refused.controller = answer.headers.get("X-Controller");
  if (answer.status === 401) dispatchEvent(new CustomEvent("login-needed"));
  throw refused;
}

const stale = (path) => `${path}${path.includes("?") ? "&" : "?"}consistency=stale`;

/** A read from what this node has, whoever leads. */
export const read = (path) => send("GET", stale(path));
export const own = (path) => send("GET", path);
export const change = (method, path, body) => send(method, path, body);

/** An answer that may take long: `told` is called with how far it is; `signal` ends the question at the node as well. */
export async function slowly(path, told, signal) {
  let answer;
  try {
    answer = await fetch(stale(path), { headers: { Accept: "application/x-ndjson" }, signal, credentials: "same-origin" });
  } catch (error) {
    throw new Refused(0, { message: signal.aborted ? "the question was called off" : "the node cannot be reached" });
  }
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null));
  let last = null, rest = "";
  try {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part) { last = JSON.parse(part); if ("doing" in last) told(last); }
    }
  } catch (error) { throw new Refused(0, { message: signal.aborted ? "the question was called off" : last?.message ?? "the answer broke off: ask again" }); }
  if (last === null || "doing" in last || "error" in last) throw new Refused(0, { message: last?.message ?? "the answer broke off: ask again" });
  return last;
}

/** Lines of the log from an offset on, read as they arrive: at most `max` of them. */
export async function lines(query, max = 500) {
  const ended = new AbortController();
  const answer = await fetch(stale(`/v1/log/lines?${query}`), { signal: ended.signal });
  if (!answer.ok) throw new Refused(answer.status, await answer.json().catch(() => null));
  const found = [];
  let rest = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) found.push(JSON.parse(part));
    if (found.length >= max) { ended.abort(); break; }
  }
  return found.slice(0, max);
}

/** The lines of the newest `count` records, of all types or of some; `overview` says where the log begins and ends. */
export async function newest(count, overview = null, types = []) {
  const { end_offset, log_start_offset } = overview ?? await read("/v1/overview");
  const range = `from=${Math.max(log_start_offset, end_offset - count)}&until=${end_offset}`;
  return types.length ? linesOf(types, range, count) : lines(range, count);
}

/** The lines of records of some types in a range of at most `max` records. */
export function linesOf(types, range, max) {
  return lines(`${range}&types=${types}`, max).catch((error) => {
    if (error.status !== 400) throw error;
    return lines(range, max); // a broker's page, and a controller of an earlier release
  });
}

// --- events

const QUIET_MAX_MS = 8000;

/** Follows the node's events, and comes back from where it was: after a break, and when its page is shown again. */
export class Events extends EventTarget {
  constructor(position) {
    super();
    this.position = position;
    this.view = null;
    this.state = "connecting";
    this.heard = performance.now();
    this.retry = 250;
    addEventListener("visibilitychange", () => (document.hidden ? this.pause() : this.open()));
    setInterval(() => { if (this.source && performance.now() - this.heard > QUIET_MAX_MS) this.lost(); }, 1000);
    this.open();
  }

  open() {
    if (this.source || document.hidden) return;
    clearTimeout(this.timer);
    const source = new EventSource(stale(`/v1/events${this.position === null ? "" : `?after=${this.position}`}`));
    this.source = source;
    this.heard = performance.now();
    for (const name of ["batch", "batches", "reset", "quorum"]) source.addEventListener(name, (event) => this.take(name, event));
    source.onerror = () => { if (this.source === source) this.lost(); };
  }

  take(name, event) {
    this.heard = performance.now();
    this.retry = 250;
    const data = JSON.parse(event.data);
    if (event.lastEventId !== "") {
      const at = Number(event.lastEventId);
      if (name !== "quorum" && this.position !== null && at <= this.position) return;
      this.position = at;
    }
    if (name === "quorum") this.view = data;
    const was = this.state;
    this.state = "live";
    if (was !== "live") this.dispatchEvent(new CustomEvent("state"));
    this.dispatchEvent(new CustomEvent(name, { detail: data }));
  }

  pause() {
    this.source?.close();
    this.source = null;
  }

  lost() {
    this.pause();
    if (this.state !== "lost") { this.state = "lost"; this.dispatchEvent(new CustomEvent("state")); }
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), this.retry);
    this.retry = Math.min(this.retry * 2, 4000);
  }
}

// The frame: which page is shown, how live it is, and who is logged in.
import { Events, Refused, change, firstOffset, own, read } from "./api.js";
import { card, clock, duration, h, mark, nodeLink, notice, number, replace, title, words } from "./dom.js";
import * as access from "./access.js";
import * as brokers from "./brokers.js";
import * as log from "./log.js";
import * as overview from "./overview.js";
import * as quorum from "./quorum.js";
import * as security from "./security.js";
import * as settings from "./settings.js";
import * as snapshots from "./snapshots.js";
import * as timeline from "./timeline.js";
import * as topics from "./topics.js";
import * as whatif from "./whatif.js";

const PAGES = words({ overview, quorum, brokers, topics, log, timeline, whatif, snapshots, settings, access, security });
const REFRESH_MS = 400;

const content = document.getElementById("content");
const live = document.getElementById("live"), said = document.getElementById("said");
const context = { session: null, events: null, overview: null, params: new URLSearchParams(), path: [], may, dialog: document.getElementById("dialog"), refresh: () => refreshSoon(true) };
let page = null, shownAt = null, asked = 0, due = null, running = false, again = false, generation = 0;

/** Whether the one who looks may do what needs a right; without identity everybody may. */
function may(right) {
  return !context.session?.identity || context.session.rights.includes(right);
}

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  return { name: PAGES[parts[0]] ? parts[0] : "overview", path: parts.slice(1), params: new URLSearchParams(query ?? "") };
}

async function go() {
  const { name, path, params } = place();
  page?.leave?.();
  page = null;
  Object.assign(context, { path, params });
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.page === name) { link.setAttribute("aria-current", "page"); link.scrollIntoView({ block: "nearest", inline: "center" }); }
    else link.removeAttribute("aria-current");
  }
  const mine = ++generation, root = h("div");
  try {
    const made = await PAGES[name].show(root, context);
    if (mine !== generation) { made?.leave?.(); return; }
    page = made ?? {};
    shownAt = Date.now();
    replace(content, root);
  } catch (error) {
    if (mine !== generation) return;
    if (!(error instanceof Refused)) throw error;
    page = { refresh: go };
    replace(content, title(nameOf(name)), failed(error));
  }
  draw();
}

const nameOf = (name) => document.querySelector(`#nav a[data-page="${name}"]`).textContent;

function failed(error) {
  if (error.status === 401) return loginForm();
  return notice("bad", error.message);
}

// --- keeping what is shown true

function refreshSoon(now = false) {
  if (due !== null) return;
  if (running) { again = true; return; } // one at a time: changes that come faster than answers must not discard them all
  const wait = now ? 0 : Math.max(0, asked + REFRESH_MS - performance.now());
  due = setTimeout(refresh, wait);
}

async function refresh() {
  due = null;
  running = true;
  asked = performance.now();
  const mine = generation;
  try {
    await page?.refresh?.();
    if (mine === generation) shownAt = Date.now();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  } finally { running = false; }
  if (again) { again = false; refreshSoon(); }
  draw();
}

const looks = (view) => JSON.stringify([view?.leader_id, view?.is_active, view?.unreachable, view?.reasons, view?.controller_epoch]);

function follow(events) {
  let before = null, missed = events.position === null;
  events.addEventListener("quorum", () => {
    if (before !== null && looks(events.view) !== before) refreshSoon();
    before = looks(events.view);
    draw();
  });
  for (const name of ["batch", "batches", "reset"]) {
    events.addEventListener(name, ({ detail }) => {
      page?.told?.(name, detail);
      const types = Object.keys(detail.types ?? { all: 1 });
      if (types.some((type) => type !== "NoOp") && (page?.concerns?.(name, detail, types) ?? true)) refreshSoon();
      draw();
    });
  }
  events.addEventListener("state", () => {
    if (events.state === "live") { before = null; if (missed) refreshSoon(); missed = true; }
    draw();
  });
  setInterval(draw, 1000);
}

/** The line under the head: whom this page asks, who leads, and how old what is shown is. */
function draw() {
  const { events, session } = context, view = events?.view;
  if (!session) return;
  const node = `${session.role} ${session.node_id}`;
  live.className = "";
  const parts = [h("span", {}, "asked: ", h("b", {}, node))];
  if (events?.state === "lost" || !view) {
    live.className = events?.state === "lost" ? "lost" : "";
    parts.push(mark(events?.state === "lost" ? "bad" : "idle", events?.state === "lost" ? "not reached: trying again" : "connecting"));
    if (shownAt) parts.push(h("span", {}, "shown as of ", h("b", {}, clock(shownAt).slice(0, 8))));
  } else {
    const leads = view.leader_id === -1 ? null : view.leader_id;
    if (leads === null) {
      live.className = "stale";
      parts.push(mark("bad", "no leader"), h("span", {}, `what controller ${view.node_id} has, offset `, h("b", {}, number(view.end_offset)), ": there may be more"));
    } else {
      const sees = view.is_active ? "active" : session.role === "broker" ? "active" : "a follower's view";
      const url = view.is_active || session.role !== "controller" ? null : context.overview?.leader_id === leads ? context.overview.leader_url : null;
      parts.push(h("span", {}, "leader ", url ? nodeLink(url, location.hash.replace(/^#\/?/, ""), `controller ${leads}`) : h("b", {}, `controller ${leads}`)), mark(view.is_active ? "good" : "idle", view.is_active ? "live" : `live, ${sees}`));
      parts.push(h("span", {}, "epoch ", h("b", {}, number(view.controller_epoch))), h("span", {}, "offset ", h("b", { id: "offset" }, number(view.end_offset))));
    }
  }
  const who = session.identity ? (session.principal ?? "not logged in") : "identity is off";
  parts.push(h("span", { class: "push" }, who, session.has_session ? [" ", h("button", { class: "plain", type: "button", onclick: logOut }, "log out")] : null));
  const text = parts.map((part) => part.textContent).join("|");
  if (live.dataset.text !== text) { live.dataset.text = text; replace(live, ...parts); }
  // Read aloud: who leads and whether the node is there, and not each offset.
  const aloud = [...live.querySelectorAll(".mark")].map((one) => one.textContent).join(", ");
  if (said.textContent !== aloud) said.textContent = aloud;
}

// --- identity

function loginForm() {
  const field = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, "aria-label": "token", size: 44 });
  const said = h("div");
  const form = h("form", { class: "bar", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await change("POST", "/v1/session", { token: field.value });
      await start();
    } catch (error) { replace(said, notice("bad", error.message)); }
  } }, field, h("button", { class: "main" }, "Log in"));
  return card("This node asks who you are", { about: "a token of its principals file, or a client certificate" }, h("div", { class: "body" }, said, form));
}

async function logOut() {
  await change("DELETE", "/v1/session");
  location.reload();
}

async function start() {
  context.session = await own("/v1/session");
  if (context.session.identity && !context.session.rights.includes("read")) {
    replace(content, title("Log in"), loginForm());
    draw();
    return;
  }
  if (!context.events) { context.events = new Events(firstOffset()); follow(context.events); }
  await go();
}

addEventListener("hashchange", () => { go(); content.focus({ preventScroll: true }); scrollTo(0, 0); });
addEventListener("login-needed", async () => {
  if (!context.session?.identity) return;
  page?.leave?.(); // its timers would ask again, and put an empty form in place of one that is being filled in
  page = null;
  const mine = ++generation;
  context.session = await own("/v1/session");
  if (mine === generation) { replace(content, title("Log in"), loginForm()); draw(); }
});
for (let wait = 250; ; wait = Math.min(2 * wait, 4000)) {
  try { await start(); break; } catch (error) {
    if (!(error instanceof Refused)) throw error;
    replace(content, notice("bad", `${error.message}: trying again`));
    await new Promise((go_on) => setTimeout(go_on, wait));
  }
}

// The log as it grows: each batch with its cause and its actor; a batch unfolds to its records.
import { lines, newest, read } from "./api.js";
import { continued, grouped } from "./batches.js";
import { button, card, clock, h, madeLink, notice, number, replace, title, why } from "./dom.js";
import { subjects } from "./overview.js";

const KEPT = 4000, PAGE = 400; // each new batch draws all rows: one page is kept, and what else was asked for

export async function show(root, context) {
  const from = context.params.get("from"), body = h("tbody"), more = h("div", { class: "bar" }), opened = new Set();
  let shown = [], follows = from === null, quiet = true, first = 0, last = 0, range = null, kept = PAGE, loads = 0, loading = false;
  const wanted = h("input", { type: "search", placeholder: "cause, actor, topic, type", "aria-label": "filter", oninput: () => draw() });
  const follow = h("input", { type: "checkbox", checked: follows, onchange: () => { follows = follow.checked; if (follows) load(null); } });
  const noops = h("input", { type: "checkbox", onchange: () => { quiet = !noops.checked; draw(); } });
  const jump = h("input", { type: "number", min: 0, placeholder: "offset", "aria-label": "go to an offset", value: from ?? "", onchange: () => { location.hash = jump.value === "" ? "#/log" : `#/log?from=${jump.value}`; } });

  async function load(start) {
    const overview = await read("/v1/overview");
    const begin = start === null ? Math.max(overview.log_start_offset, overview.end_offset - PAGE) : Math.min(Math.max(start, overview.log_start_offset), overview.end_offset);
    const end = Math.min(begin + PAGE, overview.end_offset), found = grouped(await lines(`from=${begin}&until=${end}`, PAGE));
    [range, first, last, kept, loads] = [overview, begin, end, PAGE, loads + 1];
    shown = start === null ? found.reverse() : found;
    if (start !== null && shown[0]) opened.add(shown[0].offset);
    draw();
  }

  /** Load what lies before the batches that are shown, or behind them where they begin at an offset. */
  async function loadMore() {
    if (loading) return; // two answers to one question would be shown twice
    loading = true;
    const mine = loads;
    try {
      range = await read("/v1/overview"); // the log has grown meanwhile, and may have lost its beginning
      const [begin, end] = from === null ? [Math.max(range.log_start_offset, first - PAGE), first] : [last, Math.min(last + PAGE, range.end_offset)];
      const found = begin < end ? grouped(await lines(`from=${begin}&until=${end}`, PAGE)) : [];
      if (mine !== loads) return; // what it continues is shown no more
      if (from === null) { shown = continued(shown, found.reverse()); first = begin; } else { shown = continued(found.reverse(), shown.toReversed()).reverse(); last = end; }
      kept = Math.max(PAGE, shown.length);
      draw();
    } catch (error) {
      replace(more, notice("warn", error.message), button("Try again", loadMore));
    } finally { loading = false; }
  }

  function matches(one) {
    if (quiet && from === null && Object.keys(one.types).every((type) => type === "NoOp")) return false;
    const text = wanted.value.trim().toLowerCase();
    return !text || [why(one), one.actor, one.operation, one.cause?.code, ...(one.topics ?? []), ...Object.keys(one.types)].join(" ").toLowerCase().includes(text);
  }

  function draw(fresh = null) {
    const rows = shown.filter(matches).slice(0, KEPT);
    const isAll = from === null ? first <= range.log_start_offset : last >= range.end_offset;
    const end = shown.length >= KEPT ? "go to an offset for more" : from === null ? `the log begins at offset ${number(range.log_start_offset)}` : "this is the end of the log";
    replace(more, isAll || shown.length >= KEPT ? h("span", { class: "muted" }, end) : button(from === null ? "Show older batches" : "Show later batches", loadMore));
    replace(body, rows.length ? rows.flatMap((one) => line(one, one.offset === fresh)) : h("tr", {}, h("td", { colspan: 6, class: "empty" }, `no batch from offset ${number(first)} to ${number(last)} matches`)));
  }

  function line(one, isNew) {
    const isOpen = opened.has(one.offset);
    const unfold = () => { if (isOpen) opened.delete(one.offset); else opened.add(one.offset); draw(); };
    const row = h("tr", { class: isNew ? "new" : "" },
      h("td", { class: "nowrap mono" }, clock(one.time_ms)), h("td", { class: "num mono" }, number(one.offset)),
      h("td", { class: "wrap" }, why(one), one.cause?.ref_offset ? [" ", h("a", { href: `#/log?from=${one.cause.ref_offset}` }, h("small", {}, `rests on ${number(one.cause.ref_offset)}`))] : null),
      h("td", {}, one.actor ?? "–"), h("td", { class: "wrap" }, h("small", {}, Object.entries(one.types).map(([type, count]) => (count > 1 ? `${type} × ${number(count)}` : type)).join(", ")), one.topics?.length ? h("div", {}, one.topics.slice(0, 4).join(", ")) : null),
      h("td", { class: "num" }, h("button", { class: "plain", type: "button", "aria-expanded": String(isOpen), onclick: unfold }, isOpen ? "hide" : "records")));
    return isOpen ? [row, h("tr", {}, h("td", { colspan: 6 }, records(one)))] : [row];
  }

  function records(one) {
    const room = h("div", { class: "muted" }, "reading");
    const tell = (found) => { room.className = ""; replace(room, h("pre", {}, found.map((each) => `${each.offset}  ${each.type}  ${JSON.stringify(each.record)}`).join("\n"))); };
    if (one.lines) tell(one.lines);
    else lines(`from=${one.offset}&until=${one.end_offset}`, 200).then((found) => { one.lines = found; tell(found); }).catch((error) => { room.textContent = error.message; });
    return room;
  }

  root.append(title("Log", from === null ? "newest first" : `from offset ${number(from)} on`, madeLink("log", () => shown)),
    h("div", { class: "card" }, h("header", {}, h("div", { class: "bar" }, wanted, jump, from === null ? h("label", { class: "check" }, follow, "follow") : h("a", { href: "#/log", class: "button" }, "newest"), from === null ? h("label", { class: "check" }, noops, "marks of a quiet quorum") : null)),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "batches" }, h("table", {}, h("thead", {}, h("tr", {}, ["time (UTC)", "offset", "why", "by whom", "records"].map((name) => h("th", { scope: "col", class: name === "offset" ? "num" : "" }, name)), h("th", {}))), body)), h("div", { class: "empty" }, more)));
  await load(from === null ? null : Number(from));
  return {
    concerns: () => false, // it is told of each batch
    told(name, batch) {
      if (!follows) return;
      if (name !== "batch") { load(null); return; }
      shown = [batch, ...shown].slice(0, loading ? KEPT : Math.min(kept, KEPT)); // older ones will follow the last
      [first, last] = [shown.at(-1).offset, batch.end_offset];
      draw(batch.offset);
    },
  };
}

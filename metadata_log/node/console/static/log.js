// The log as it grows: each batch with its cause and its actor; a batch unfolds to its records.
import { lines, newest, read } from "./api.js";
import { grouped } from "./batches.js";
import { card, clock, h, madeLink, number, replace, title, why } from "./dom.js";
import { subjects } from "./overview.js";

const KEPT = 400, PAGE = 400;

export async function show(root, context) {
  const from = context.params.get("from"), body = h("tbody"), opened = new Set();
  let shown = [], follows = from === null, quiet = true;
  const wanted = h("input", { type: "search", placeholder: "cause, actor, topic, type", "aria-label": "filter", oninput: () => draw() });
  const follow = h("input", { type: "checkbox", checked: follows, onchange: () => { follows = follow.checked; if (follows) load(null); } });
  const noops = h("input", { type: "checkbox", onchange: () => { quiet = !noops.checked; draw(); } });
  const jump = h("input", { type: "number", min: 0, placeholder: "offset", "aria-label": "go to an offset", value: from ?? "", onchange: () => { location.hash = jump.value === "" ? "#/log" : `#/log?from=${jump.value}`; } });

  async function load(start) {
    const overview = await read("/v1/overview");
    const begin = start === null ? Math.max(overview.log_start_offset, overview.end_offset - PAGE) : Math.min(Math.max(start, overview.log_start_offset), overview.end_offset);
    shown = grouped(await lines(`from=${begin}&until=${Math.min(begin + PAGE, overview.end_offset)}`, PAGE));
    if (start === null) shown.reverse();
    if (start !== null && shown[0]) opened.add(shown[0].offset);
    draw();
  }

  function matches(one) {
    if (quiet && from === null && Object.keys(one.types).every((type) => type === "NoOp")) return false;
    const text = wanted.value.trim().toLowerCase();
    return !text || [why(one), one.actor, one.operation, one.cause?.code, ...(one.topics ?? []), ...Object.keys(one.types)].join(" ").toLowerCase().includes(text);
  }

  function draw(fresh = null) {
    const rows = shown.filter(matches).slice(0, KEPT);
    replace(body, rows.length ? rows.flatMap((one) => line(one, one.offset === fresh)) : h("tr", {}, h("td", { colspan: 6, class: "empty" }, "no batch of those that are loaded matches")));
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
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "batches" }, h("table", {}, h("thead", {}, h("tr", {}, ["time (UTC)", "offset", "why", "by whom", "records"].map((name) => h("th", { scope: "col", class: name === "offset" ? "num" : "" }, name)), h("th", {}))), body))));
  await load(from === null ? null : Number(from));
  return {
    concerns: () => false, // it is told of each batch
    told(name, batch) {
      if (!follows) return;
      if (name !== "batch") { load(null); return; }
      shown = [batch, ...shown].slice(0, KEPT);
      draw(batch.offset);
    },
  };
}

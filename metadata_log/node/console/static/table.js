// A table of any length: rows come in windows, and only those that are seen are in the document.
import { h, replace } from "./dom.js";

const ROW = 34;
const AHEAD = 12;

/** columns as in dom.js `table`; `load(after)` returns {items, next_after, total}; `open(row)` what a row unfolds to. */
export class LongTable {
  constructor(columns, load, { empty = "none", open = null, key = (row) => row.name, height = "calc(100vh - 290px)" } = {}) {
    Object.assign(this, { columns, load, empty, open, key, rows: [], next: undefined, total: null, opened: null, generation: 0 });
    this.body = h("tbody");
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "rows" }, h("table", {}, h("thead", {}, h("tr", {}, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind ?? "" }, name)), open ? h("th", { scope: "col", class: "num" }, h("span", { class: "muted" }, "")) : null)), this.body));
    this.scroll.classList.add("long");
    this.scroll.style.maxHeight = height;
    this.scroll.style.minHeight = "120px";
    this.scroll.addEventListener("scroll", () => this.draw(), { passive: true });
    this.count = h("small", { "aria-live": "polite" });
    this.ready = this.reload();
  }

  /** Load the first windows again, as far as they were loaded, and stay where the reader is. */
  async reload() {
    const generation = ++this.generation, wanted = Math.max(this.rows.length, 1);
    const rows = [];
    let next, total = null;
    try {
      do {
        const page = await this.load(next);
        rows.push(...page.items);
        total = page.total ?? null;
        next = page.next_after ?? null;
      } while (next !== null && rows.length < Math.min(wanted, 2000));
    } catch (error) {
      if (generation === this.generation) replace(this.body, h("tr", {}, h("td", { colspan: this.columns.length, class: "empty" }, error.message)));
      return;
    }
    if (generation !== this.generation) return;
    Object.assign(this, { rows, next, total });
    this.draw();
  }

  async more() {
    if (this.loading || this.next === null || this.next === undefined) return;
    this.loading = true;
    const generation = this.generation;
    try {
      const page = await this.load(this.next);
      if (generation !== this.generation) return;
      this.rows.push(...page.items);
      this.next = page.next_after ?? null;
    } finally { this.loading = false; }
    this.draw();
  }

  draw() {
    const height = this.scroll.clientHeight || 600, from = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - AHEAD);
    const to = Math.min(this.rows.length, from + Math.ceil(height / ROW) + 2 * AHEAD);
    const space = (rows) => (rows > 0 ? h("tr", { class: "spacer", "aria-hidden": "true" }, sized(h("td", { colspan: this.columns.length }), rows * ROW)) : null);
    const shown = this.rows.slice(from, to).flatMap((row) => this.line(row));
    this.count.textContent = this.total === null ? `${this.rows.length.toLocaleString("en-US")}${this.next ? "+" : ""}` : this.total.toLocaleString("en-US");
    if (!this.rows.length) replace(this.body, h("tr", {}, h("td", { colspan: this.columns.length, class: "empty" }, this.empty)));
    else replace(this.body, space(from), ...shown, space(this.rows.length - to));
    if (to > this.rows.length - AHEAD) this.more();
  }

  line(row) {
    const key = this.key(row), cells = h("tr", {}, this.columns.map(([, cell, kind]) => h("td", { class: kind ?? "" }, cell(row))));
    if (!this.open) return [cells];
    const isOpen = this.opened?.key === key;
    const button = h("button", { class: "plain", type: "button", "aria-expanded": String(isOpen), onclick: () => this.toggle(row, key) }, isOpen ? "hide" : "explain");
    cells.append(h("td", { class: "num" }, button));
    return isOpen ? [cells, h("tr", {}, h("td", { colspan: this.columns.length + 1 }, this.opened.content))] : [cells];
  }

  toggle(row, key) {
    this.opened = this.opened?.key === key ? null : { key, content: this.open(row) };
    this.draw();
  }
}

function sized(cell, height) {
  cell.style.height = `${height}px`;
  return cell;
}

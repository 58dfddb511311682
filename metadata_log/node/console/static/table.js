// A table of any length: rows come in windows, and only those that are seen are in the document, and asked for again.
import { h, replace } from "./dom.js";

const ROW = 34;
const AHEAD = 12;
const LOADED_AT_ONCE = 200;
const LOOK_AGAIN_MS = 150;

/**
 * columns as in dom.js `table`; `load(after, limit)` returns {items, next_after, total}, rows in the order of `compare`;
 * `place(row)` is what `load` goes on behind; `open(row)` is what a row unfolds to.
 */
export class LongTable {
  constructor(columns, load, { empty = "none", open = null, key = (row) => row.name, place = key, compare = (a, b) => (key(a) < key(b) ? -1 : 1), height = "calc(100vh - 290px)" } = {}) {
    Object.assign(this, { columns, load, empty, open, key, place, compare, rows: [], next: undefined, total: null, opened: null, generation: 0, fresh: [0, 0], isOld: false });
    this.body = h("tbody");
    this.scroll = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "rows" }, h("table", {}, h("thead", {}, h("tr", {}, columns.map(([name, , kind]) => h("th", { scope: "col", class: kind ?? "" }, name)), open ? h("th", { scope: "col", class: "num" }, h("span", { class: "muted" }, "")) : null)), this.body));
    this.scroll.classList.add("long");
    this.scroll.style.maxHeight = height;
    this.scroll.style.minHeight = "120px";
    this.scroll.addEventListener("scroll", () => this.moved(), { passive: true });
    this.scroll.addEventListener("pointerdown", () => {
      this.isPressed = true;
      const released = () => { this.isPressed = false; if (this.isDue) setTimeout(() => this.draw()); };
      for (const name of ["pointerup", "pointercancel"]) addEventListener(name, released, { once: true });
    });
    this.count = h("small", { "aria-live": "polite" });
    this.ready = this.first();
  }

  /** Load the first window. */
  async first() {
    const generation = ++this.generation;
    try {
      const page = await this.load(undefined, LOADED_AT_ONCE);
      if (generation !== this.generation) return;
      Object.assign(this, { rows: page.items, next: page.next_after ?? null, total: page.total ?? null, fresh: [0, page.items.length] });
      this.draw();
    } catch (error) { this.failed(error, generation); }
  }

  /** Ask again for the rows that are seen, however many are loaded; the others are asked for once they are seen. */
  async refresh() {
    const generation = ++this.generation, [from, to] = this.seen();
    const limit = Math.max(to - from, 2 * AHEAD);
    try {
      const page = await this.load(from > 0 ? this.place(this.rows[from - 1]) : undefined, limit);
      if (generation !== this.generation) return;
      const last = page.items.at(-1), isEnd = (page.next_after ?? null) === null;
      const rest = isEnd || last === undefined ? [] : this.rows.slice(from).filter((row) => this.compare(row, last) > 0 && this.key(row) !== this.key(last));
      this.rows = [...this.rows.slice(0, from), ...page.items, ...rest];
      if (!rest.length) this.next = page.next_after ?? null;
      Object.assign(this, { total: page.total ?? null, fresh: [from, from + page.items.length], isOld: true });
      this.draw();
    } catch (error) { if (!this.rows.length) this.failed(error, generation); else throw error; }
  }

  /** Whether a row that is seen answers to `test`. */
  shows(test) {
    const [from, to] = this.seen();
    return this.rows.slice(from, to).some(test);
  }

  failed(error, generation) {
    if (generation === this.generation) replace(this.body, h("tr", {}, h("td", { colspan: this.columns.length + 1, class: "empty" }, error.message)));
  }

  seen() {
    const height = this.scroll.clientHeight || 600, from = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - AHEAD);
    return [Math.min(from, this.rows.length), Math.min(this.rows.length, from + Math.ceil(height / ROW) + 2 * AHEAD)];
  }

  moved() {
    this.draw();
    const [from, to] = this.seen();
    if (!this.isOld || (from >= this.fresh[0] && to <= this.fresh[1])) return;
    clearTimeout(this.due);
    this.due = setTimeout(() => this.refresh().catch(() => {}), LOOK_AGAIN_MS);
  }

  async more() {
    if (this.loading || this.next === null || this.next === undefined) return;
    this.loading = true;
    const generation = this.generation;
    try {
      const page = await this.load(this.next, LOADED_AT_ONCE);
      if (generation !== this.generation) return;
      this.rows.push(...page.items);
      this.next = page.next_after ?? null;
      if (this.fresh[1] === this.rows.length - page.items.length) this.fresh = [this.fresh[0], this.rows.length];
    } catch { return; } finally { this.loading = false; }
    this.draw();
  }

  draw() {
    this.isDue = this.isPressed === true; // a row that is replaced under a pressed pointer would lose its click
    if (this.isDue) return;
    const [from, to] = this.seen();
    const space = (rows) => (rows > 0 ? h("tr", { class: "spacer", "aria-hidden": "true" }, sized(h("td", { colspan: this.columns.length }), rows * ROW)) : null);
    const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.row : undefined;
    const shown = this.rows.slice(from, to).flatMap((row) => this.line(row));
    this.count.textContent = this.total === null ? `${this.rows.length.toLocaleString("en-US")}${this.next ? "+" : ""}` : this.total.toLocaleString("en-US");
    if (!this.rows.length) replace(this.body, h("tr", {}, h("td", { colspan: this.columns.length + 1, class: "empty" }, this.empty)));
    else replace(this.body, space(from), ...shown, space(this.rows.length - to));
    if (focused !== undefined) [...this.body.querySelectorAll("button[data-row]")].find((one) => one.dataset.row === focused)?.focus({ preventScroll: true });
    if (to > this.rows.length - AHEAD) this.more();
  }

  line(row) {
    const key = this.key(row), cells = h("tr", {}, this.columns.map(([, cell, kind]) => h("td", { class: kind ?? "" }, cell(row))));
    if (!this.open) return [cells];
    const isOpen = this.opened?.key === key;
    const unfold = h("button", { class: "plain", type: "button", "data-row": key, "aria-expanded": String(isOpen), onclick: () => this.toggle(row, key) }, isOpen ? "hide" : "explain");
    cells.append(h("td", { class: "num" }, unfold));
    return isOpen ? [cells, h("tr", {}, h("td", { colspan: this.columns.length + 1 }, h("div", { class: "unfolded" }, this.opened.content)))] : [cells];
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

// The list of trajectories: filters, text search, sorting, and a table that keeps only the rows in view in the page.

import { button, clamp, el, short } from "./dom.js";
import { OUTCOMES } from "./player.js";

const ROW = 30; // pixels, as in viewer.css
const MARGIN = 8; // rows kept beyond the edges
const SEARCH_MS = 250;
const COLUMNS = {
  task: ["task", (r) => `${r.env} ${r.task}`], item: ["item", (r) => r.item], rounds: ["rounds", (r) => r.rounds],
  reward: ["reward", (r) => r.reward], stop: ["ended by", (r) => r.stop], step: ["step", (r) => r.step ?? -1],
};
const natural = new Intl.Collator(undefined, { numeric: true });

export class Browser {
  rows = [];
  marked = new Set();
  #shown = [];
  #cursor = 0;
  #sort = { by: null, down: false };
  #found = null;
  #timer = null;
  #open = [];

  /** `onOpen(row, beside)` is called when a trajectory is chosen; `search(text)` finds ids by text. */
  constructor({ onOpen, search, onMark = () => {} }) {
    this.onOpen = onOpen;
    this.searchText = search;
    this.onMark = onMark;
    this.#filters();
    this.#table();
    this.root = el("section", { class: "browser", "aria-label": "Trajectories" }, this.form, this.count, this.problems, this.grid);
  }

  get shown() { return this.#shown; }

  add(rows, { total, done, problems, restarted }) {
    if (restarted) { this.rows = []; this.marked.clear(); }
    for (const row of rows) this.rows.push(row);
    this.progress = done ? "" : `, reading ${this.rows.length} of about ${total}`;
    this.problems.textContent = problems.length ? `${problems.length} lines could not be read: ${problems.slice(0, 3).join("; ")}` : "";
    this.#choices();
    this.refresh();
  }

  /** Trajectories of the same item, in the order of training. */
  family(row) {
    return this.rows.filter((r) => r.env === row.env && r.item === row.item && r.seed === row.seed)
      .sort((a, b) => (a.step ?? Infinity) - (b.step ?? Infinity) || natural.compare(a.run, b.run) || a.sample - b.sample || a.id - b.id);
  }

  setOpen(ids) {
    this.#open = ids;
    const k = this.#shown.findIndex((r) => r.id === ids[0]);
    if (k >= 0 && !ids.includes(this.#shown[this.#cursor]?.id)) this.#cursor = k;
    this.#paint();
  }

  refresh() {
    const f = Object.fromEntries(new FormData(this.form));
    const range = (value, low, high) => (low === "" || (value !== null && value >= Number(low))) && (high === "" || (value !== null && value <= Number(high)));
    this.#shown = this.rows.filter((r) => (!f.env || r.env === f.env) && (!f.task || r.task === f.task) && (!f.run || r.run === f.run)
      && (!f.stop || r.stop === f.stop) && (!f.outcome || r.success === (f.outcome === "success"))
      && range(r.rounds, f.rounds_low, f.rounds_high) && range(r.step, f.step_low, f.step_high) && (!this.#found || this.#found.has(r.id)));
    const { by, down } = this.#sort;
    if (by) {
      const value = COLUMNS[by][1];
      const order = (a, b) => { const [x, y] = [value(a), value(b)]; return typeof x === "string" ? natural.compare(x, y) : x - y; };
      this.#shown.sort((a, b) => (down ? order(b, a) : order(a, b)) || a.id - b.id);
    }
    this.#cursor = clamp(this.#cursor, 0, Math.max(0, this.#shown.length - 1));
    const wins = this.#shown.reduce((n, r) => n + r.success, 0);
    const share = this.#shown.length ? `, ${Math.round((100 * wins) / this.#shown.length)} % successful` : "";
    this.count.textContent = `${this.#shown.length} of ${this.rows.length} trajectories${share}${this.progress ?? ""}`;
    this.grid.setAttribute("aria-rowcount", this.#shown.length + 1);
    this.space.style.height = `${this.#shown.length * ROW}px`;
    this.#paint();
  }

  #filters() {
    const select = (name, label) => el("select", { name, "aria-label": label }, el("option", { value: "" }, `any ${label}`));
    const number = (name, hint) => el("input", { name, type: "number", min: 0, placeholder: hint, "aria-label": `${name.split("_")[0]} ${hint}` });
    const outcome = el("select", { name: "outcome", "aria-label": "outcome" }, el("option", { value: "" }, "any outcome"), el("option", {}, "success"), el("option", {}, "failure"));
    this.search = el("input", { name: "text", type: "search", placeholder: "search what was said ( / )", "aria-label": "Search the text of all trajectories" });
    this.selects = { env: select("env", "environment"), task: select("task", "task"), stop: select("stop", "ending"), run: select("run", "run") };
    const { env, task, stop, run } = this.selects;
    this.form = el("form", { class: "filters", role: "search" }, this.search, env, task, outcome, stop, run,
      el("span", { class: "range" }, "rounds ", number("rounds_low", "from"), number("rounds_high", "to")),
      el("span", { class: "range" }, "step ", number("step_low", "from"), number("step_high", "to")), el("button", { type: "reset" }, "Clear"));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", (event) => { if (event.target === this.search) this.#searchSoon(); else this.refresh(); });
    this.form.addEventListener("reset", () => setTimeout(() => { this.#found = null; this.refresh(); }));
    this.count = el("p", { class: "count muted", role: "status" });
    this.problems = el("p", { class: "problems", role: "alert" });
  }

  #choices() {
    for (const [name, select] of Object.entries(this.selects)) {
      const values = [...new Set(this.rows.map((r) => r[name]))].filter(Boolean).sort(natural.compare);
      const known = [...select.options].slice(1).map((o) => o.value);
      select.hidden = values.length < 2 && !select.value;
      if (values.length === known.length) continue;
      const chosen = select.value;
      select.replaceChildren(select.options[0], ...values.map((v) => el("option", { value: v, selected: v === chosen }, name === "stop" ? OUTCOMES[v] ?? v : v)));
    }
  }

  #searchSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      const text = this.search.value.trim();
      const found = text ? await this.searchText(text) : null;
      if (text !== this.search.value.trim()) return; // typed on meanwhile
      this.#found = found;
      this.refresh();
    }, SEARCH_MS);
  }

  #table() {
    this.heads = Object.entries(COLUMNS).map(([key, [label]]) => el("span", { role: "columnheader", class: `cell ${key}` }, button(label, () => this.#sortBy(key))));
    this.space = el("div", { class: "space", role: "rowgroup" });
    this.body = el("div", { class: "rows", role: "presentation" }, this.space);
    const head = el("div", { class: "head", role: "row" }, el("span", { role: "columnheader", class: "cell mark", "aria-label": "marked" }), this.heads);
    this.grid = el("div", { class: "grid", role: "grid", tabindex: 0, "aria-label": "Trajectories: arrow keys move, Enter opens, c opens beside, m marks" }, head, this.body);
    this.body.addEventListener("scroll", () => this.#paint());
    this.grid.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#paint()).observe(this.body);
  }

  #sortBy(key) {
    const { by, down } = this.#sort;
    this.#sort = by !== key ? { by: key, down: false } : down ? { by: null, down: false } : { by: key, down: true };
    Object.keys(COLUMNS).forEach((k, n) => {
      const on = this.#sort.by === k;
      this.heads[n].setAttribute("aria-sort", on ? (this.#sort.down ? "descending" : "ascending") : "none");
    });
    this.refresh();
  }

  #paint() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / ROW) - MARGIN);
    const last = Math.min(this.#shown.length, Math.ceil((this.body.scrollTop + this.body.clientHeight) / ROW) + MARGIN);
    this.space.replaceChildren(...this.#shown.slice(first, last).map((row, n) => this.#line(row, first + n)));
    this.grid.setAttribute("aria-activedescendant", this.#shown.length ? `${this.#prefix}${this.#cursor}` : "");
  }

  #prefix = `agl-${Math.random().toString(36).slice(2, 8)}-`;

  #line(row, k) {
    const place = this.#open.indexOf(row.id);
    const cell = (name, ...content) => el("span", { role: "gridcell", class: `cell ${name}` }, content);
    const mark = el("input", { type: "checkbox", tabindex: -1, checked: this.marked.has(row.id), "aria-label": `mark ${row.item}`, onclick: (e) => { e.stopPropagation(); this.#mark(row); } });
    const line = el("div", { role: "row", id: `${this.#prefix}${k}`, class: `row${k === this.#cursor ? " cursor" : ""}${place >= 0 ? " open" : ""}`, "aria-rowindex": k + 2,
      "aria-selected": place >= 0 ? "true" : "false", dataset: { id: row.id }, title: [row.item, row.run, row.when, `seed ${row.seed}`, `sample ${row.sample}`].filter(Boolean).join(" · ") },
      cell("mark", mark), cell("task", el("b", { class: row.success ? "dot good" : "dot bad" }, row.success ? "✓" : "✗"), ` ${row.env} `, el("span", { class: "muted" }, row.task)),
      cell("item", row.item.startsWith(`${row.env}_`) ? row.item.slice(row.env.length + 1) : row.item), cell("rounds", row.max_rounds ? `${row.rounds}/${row.max_rounds}` : row.rounds), cell("reward", short(row.reward, 2)),
      cell("stop", row.stop.replace("_", " ")), cell("step", row.step ?? "", place > 0 ? " ◨" : ""));
    line.style.top = `${k * ROW}px`;
    line.addEventListener("click", (event) => { this.#cursor = k; this.onOpen(row, event.ctrlKey || event.metaKey || event.shiftKey); });
    return line;
  }

  #mark(row) {
    if (!this.marked.delete(row.id)) this.marked.add(row.id);
    this.onMark(this.marked);
    this.#paint();
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(this.body.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const row = this.#shown[this.#cursor];
    if (event.target.tagName === "BUTTON") return;
    if (event.key in moves) this.#moveTo(this.#cursor + moves[event.key]);
    else if (event.key === "Enter" && row) this.onOpen(row, event.shiftKey);
    else if (event.key === "c" && row) this.onOpen(row, true);
    else if (event.key === "m" && row) this.#mark(row);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #moveTo(k) {
    this.#cursor = clamp(k, 0, Math.max(0, this.#shown.length - 1));
    const top = this.#cursor * ROW;
    this.body.scrollTop = clamp(this.body.scrollTop, top + ROW - this.body.clientHeight, top);
    this.#paint();
  }
}

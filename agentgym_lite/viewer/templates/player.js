// Plays one or several trajectories side by side under one set of controls.

import { button, clamp, el, short } from "./dom.js";
import { picture } from "./pictures.js";
import { MODES, advantageScale, hasMode, legend, rowView, tokenRun } from "./tokens.js";

const SPEEDS = { slow: 2800, normal: 1400, fast: 500 };
export const OUTCOMES = { success: "goal reached", failure: "ended without success", max_rounds: "out of rounds",
  context_full: "context full", env_error: "environment error", playing: "being played" };

export class Player {
  #bodies = [];
  #turn = 0;
  #timer = null;
  #mode = "logprob";

  /** `onShow({turn})` is told of every move. */
  constructor({ onShow = () => {} } = {}) {
    this.onShow = onShow;
    const act = (label, name, run) => button(label, () => { this.stop(); run(); }, { "aria-label": name, title: name });
    this.playButton = button("Play", () => this.toggle(), { class: "play", "aria-label": "Play" });
    this.slider = el("input", { type: "range", min: 0, value: 0, "aria-label": "Turn", oninput: () => { this.stop(); this.show(Number(this.slider.value)); } });
    this.where = el("output", { "aria-live": "polite" });
    this.speed = el("select", { "aria-label": "Speed", onchange: () => this.#restart() }, Object.keys(SPEEDS).map((s) => el("option", { selected: s === "normal" }, s)));
    this.modes = el("select", { "aria-label": "Colour of tokens", onchange: () => this.setMode(this.modes.value) });
    this.modeBox = el("label", { class: "mode" }, "colour ", this.modes);
    this.controls = el("div", { class: "controls", role: "toolbar", "aria-label": "Replay controls" },
      act("|◀", "First turn", () => this.show(0)), act("◀", "Previous turn", () => this.move(-1)), this.playButton,
      act("▶", "Next turn", () => this.move(1)), act("▶|", "End of the episode", () => this.show(this.last)), this.slider, this.where, this.speed, this.modeBox);
    this.legend = el("div");
    this.notes = el("div", { class: "notes muted" });
    this.panes = el("div", { class: "panes" });
    this.root = el("section", { class: "player", tabindex: 0, "aria-label": "Replay; arrow keys step, space plays" }, this.controls, this.legend, this.notes, this.panes);
    this.root.addEventListener("keydown", (event) => this.#key(event));
  }

  get last() { return Math.max(0, ...this.#bodies.map((b) => b.turns.length)); }
  get turn() { return this.#turn; }
  get mode() { return this.#mode; }

  /** Show these trajectories, at the given turn. */
  setBodies(bodies, turn = 0) {
    this.stop();
    this.#bodies = bodies;
    this.root.classList.toggle("several", bodies.length > 1);
    this.#draw();
    this.show(turn);
  }

  setMode(mode) {
    this.#mode = mode;
    this.#draw();
    this.show(this.#turn);
  }

  /** The next way to colour that the trajectories hold. */
  cycleMode() {
    const options = this.#modes();
    if (options.length) this.setMode(options[(options.indexOf(this.#mode) + 1) % options.length]);
  }

  move(by) { this.show(this.#turn + by); }

  show(turn) {
    this.#turn = clamp(turn, 0, this.last);
    this.slider.max = this.last;
    this.slider.value = this.#turn;
    this.root.dataset.turn = this.#turn;
    const words = this.#turn === this.last ? "end" : `turn ${this.#turn + 1} of ${this.last}`;
    this.where.textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
    for (const pane of this.panes.children) pane.show(this.#turn);
    this.onShow({ turn: this.#turn });
  }

  toggle() {
    if (this.#timer !== null) { this.stop(); return; }
    if (this.#turn === this.last) this.show(0);
    this.playButton.textContent = "Pause";
    this.playButton.setAttribute("aria-label", "Pause");
    this.#timer = setInterval(() => { this.move(1); if (this.#turn === this.last) this.stop(); }, SPEEDS[this.speed.value]);
  }

  stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.playButton.textContent = "Play";
    this.playButton.setAttribute("aria-label", "Play");
  }

  #restart() {
    if (this.#timer !== null) { this.stop(); this.toggle(); }
  }

  #modes() {
    const rows = this.#bodies.flatMap((b) => b.rows);
    return rows.length ? Object.keys(MODES).filter((mode) => hasMode(rows, mode)) : [];
  }

  #draw() {
    const rows = this.#bodies.flatMap((b) => b.rows);
    const options = this.#modes();
    if (options.length && !options.includes(this.#mode)) this.#mode = options[0];
    const scale = advantageScale(rows);
    this.modes.replaceChildren(...Object.entries(MODES).map(([mode, name]) =>
      el("option", { value: mode, selected: mode === this.#mode, disabled: !options.includes(mode) }, options.includes(mode) ? name : `${name} (not in the file)`)));
    this.modeBox.hidden = !rows.length;
    this.legend.replaceChildren(...(rows.length ? [legend(this.#mode, scale)] : []));
    this.notes.replaceChildren(...[...new Set(this.#bodies.flatMap((b) => b.notes ?? []))].map((text) => el("p", {}, text)));
    this.panes.replaceChildren(...this.#bodies.map((body) => pane(body, this.#mode, scale, (turn) => { this.stop(); this.show(turn); })));
  }

  #key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const onButton = /^(BUTTON|SUMMARY)$/.test(event.target.tagName);
    const keys = { ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1), Home: () => this.show(0), End: () => this.show(this.last), t: () => this.cycleMode() };
    if (event.key === " " && !onButton) this.toggle();
    else if (Object.hasOwn(keys, event.key)) { if (event.key !== "t") this.stop(); keys[event.key](); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function pane(body, mode, scale, go) {
  const actions = body.turns.map((turn, k) => el("li", {}, button(turn.action ?? "no action could be read", () => go(k), { class: turn.invalid ? "invalid" : "" })));
  actions.push(el("li", { class: "end" }, button(body.stop === "playing" ? "now" : "end", () => go(body.turns.length))));
  const list = el("ol", { class: "turns", "aria-label": "Turns" }, actions);
  const frame = el("article", { class: "frame" });
  const rows = body.live ? [] : body.rows.map((row, k) => {
    const details = el("details", {}, el("summary", {}, `All tokens of training row ${k + 1}`));
    details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(rowView(row, body.vocab, mode, scale)); });
    return details;
  });
  const badge = el("span", { class: `badge ${body.success ? "good" : body.stop === "playing" ? "" : "bad"}` }, OUTCOMES[body.stop] ?? body.stop);
  const node = el("section", { class: "pane", "aria-label": body.label || body.item }, el("h3", {}, body.label || body.env, " ", badge),
    el("p", { class: "muted facts" }, facts(body)), list, frame, rows);
  node.show = (turn) => {
    const k = Math.min(turn, body.turns.length);
    node.dataset.turn = k;
    list.querySelectorAll("[aria-current]").forEach((b) => b.removeAttribute("aria-current"));
    const current = actions[k].firstChild;
    current.setAttribute("aria-current", "step");
    list.scrollTop = current.offsetTop - list.offsetTop - list.clientHeight / 2;
    frame.replaceChildren(...frameOf(body, k, mode, scale));
  };
  return node;
}

function facts(body) {
  const limit = body.max_rounds ? ` of at most ${body.max_rounds}` : "";
  return [body.item, body.task, `seed ${body.seed}`, body.step !== null && body.step !== undefined ? `training step ${body.step}` : "",
    `${body.turns.length}${limit} rounds`, `reward ${short(body.reward)}`, body.run].filter(Boolean).join(" · ");
}

function frameOf(body, k, mode, scale) {
  const turn = body.turns[k];
  const seen = turn ?? body.end;
  const marks = [turn?.invalid && ["bad", "invalid action"], turn?.truncated && ["bad", "reply cut off"], turn?.reward && ["good", `reward +${short(turn.reward)}`]];
  const title = turn ? `turn ${k + 1}` : body.stop === "playing" ? "now" : "end of the episode";
  const parts = [
    el("h4", {}, title, marks.filter(Boolean).map(([kind, text]) => [" ", el("span", { class: `badge ${kind}` }, text)])),
    el("div", { class: "seen" }, el("div", { class: "said env" }, el("span", { class: "tag" }, "environment"), el("div", { class: "text", tabindex: 0 }, seen.observation)), picture(seen.render)),
  ];
  if (turn) parts.push(el("div", { class: "said agent" }, el("span", { class: "tag" }, turn.by ?? "agent"), el("div", { class: "text" }, reply(body, turn, mode, scale))));
  return parts;
}

function reply(body, turn, mode, scale) {
  const row = body.rows[turn.row];
  return row && turn.end > turn.start ? tokenRun(row, body.vocab, turn.start, turn.end, mode, scale) : turn.reply;
}

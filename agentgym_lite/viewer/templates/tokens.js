// Tokens coloured by what is known of them. Only sampled tokens (action mask 1) have values; the rest is context.

import { clamp, el, short, visible } from "./dom.js";

/** Ways to colour, in the order of the `t` key. */
export const MODES = { logprob: "log-prob", mask: "mask", advantage: "advantage", ratio: "ratio" };

const SPECIAL = /^<\|[^|<>]+\|>$/;
const STEP_LABELS = PROBABILITY_STEPS.map((p, k) => (k ? `${PROBABILITY_STEPS[k - 1]} – ${p}` : `p < ${p}`)).concat(`p ≥ ${PROBABILITY_STEPS.at(-1)}`);
const RATIO_SPAN = Math.log(1.5); // a ratio of 1.5 or 1/1.5 has the full colour

/** Whether the rows hold what a mode shows. */
export const hasMode = (rows, mode) => mode === "mask" || rows.some((row) => Array.isArray(row[mode]));

/** Largest advantage of any sampled token, which gets the full colour. */
export function advantageScale(rows) {
  let top = 0;
  for (const row of rows) row.advantage?.forEach((a, k) => { if (row.mask[k]) top = Math.max(top, Math.abs(a)); });
  return top || 1;
}

/** Tokens `start` to `end` (exclusive) of a row. */
export function tokenRun(row, vocab, start, end, mode, scale) {
  const run = document.createDocumentFragment();
  for (let k = start; k < end; k++) run.append(token(row, vocab, k, mode, scale));
  return run;
}

function token(row, vocab, k, mode, scale) {
  const text = vocab[row.ids[k]] ?? "";
  const node = el("span", { class: `t ${SPECIAL.test(text) ? "x " : ""}${row.mask[k] ? "s" : "c"}`, title: note(row, k) });
  for (const part of visible(text).split(/( |\t|\n)/)) {
    if (part === " ") node.append(el("i", {}, "·"), document.createElement("wbr")); // a line may break where the space was
    else if (part === "\t") node.append(el("i", {}, "⇥"));
    else if (part === "\n") node.append(el("i", {}, "⏎"), "\n");
    else if (part) node.append(part);
  }
  if (row.mask[k]) paint(node, row, k, mode, scale);
  return node;
}

function note(row, k) {
  if (!row.mask[k]) return `id ${row.ids[k]} · context`;
  const lp = row.logprob[k];
  const parts = [`id ${row.ids[k]}`, `sampled with p ${Math.exp(lp).toFixed(3)} (log-prob ${lp.toFixed(3)})`];
  if (row.advantage) parts.push(`advantage ${short(row.advantage[k])}`);
  if (row.ratio) parts.push(`ratio ${short(row.ratio[k], 4)}`);
  return parts.join(" · ");
}

function paint(node, row, k, mode, scale) {
  if (mode === "logprob") {
    const p = Math.exp(row.logprob[k]);
    node.classList.add(`p${PROBABILITY_STEPS.filter((step) => p >= step).length}`);
  } else if (mode === "mask" || !row[mode]) {
    node.classList.add("m");
  } else {
    const value = mode === "advantage" ? row.advantage[k] / scale : Math.log(row.ratio[k]) / RATIO_SPAN;
    node.classList.add(value < 0 ? "neg" : "pos");
    node.style.setProperty("--w", `${Math.round(75 * clamp(Math.abs(value), 0, 1))}%`);
  }
}

/** Key to the colours. */
export function legend(mode, scale) {
  const chip = (cls, text, weight) => {
    const node = el("span", { class: `t s ${cls}` }, text);
    if (weight) node.style.setProperty("--w", weight);
    return node;
  };
  const keys = {
    logprob: () => ["by probability when sampled: ", ...STEP_LABELS.map((label, k) => chip(`p${k}`, label))],
    mask: () => [chip("m", "sampled (mask 1), trained")],
    advantage: () => ["by advantage: ", chip("neg", `−${short(scale)}`, "75%"), chip("pos", "0", "0%"), chip("pos", `+${short(scale)}`, "75%")],
    ratio: () => ["new ÷ old probability: ", chip("neg", "≤ 0.67", "75%"), chip("pos", "1", "0%"), chip("pos", "≥ 1.5", "75%")],
  };
  return el("p", { class: "legend" }, el("span", { class: "t c" }, "context (mask 0)"), keys[mode]());
}

/** A whole training row, one block per turn. */
export function rowView(row, vocab, mode, scale) {
  const sampled = row.mask.reduce((n, m) => n + m, 0);
  const blocks = [el("p", { class: "muted" }, `${row.ids.length} tokens, ${sampled} of them sampled by the policy. Point at a token for its numbers.`)];
  let start = 0;
  for (let k = 1; k <= row.ids.length; k++) {
    if (k < row.ids.length && row.turn[k] === row.turn[start]) continue;
    const name = row.turn[start] < 0 ? "opening" : `turn ${row.turn[start] + 1}`;
    blocks.push(el("div", { class: "token-block" }, el("span", { class: "tag" }, name), el("div", { class: "token-text" }, tokenRun(row, vocab, start, k, mode, scale))));
    start = k;
  }
  return el("div", { class: "tokens" }, blocks);
}

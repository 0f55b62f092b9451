// Draws a row of tokens; updates only the positions that changed.

import { el, percent, visible } from "./dom.js";
import { END } from "./recording.js";

const LONGEST = 7.5; // letters that fit on a tile

/** The appearance of a position: its cell and its marks. */
function look(frame, place, marks) {
  const cell = frame.row[place];
  return {
    cell,
    isNew: frame.changed.has(place),
    ends: place === frame.end,
    locked: marks.locked?.has(place) ?? false,
    selected: marks.selected?.has(place) ?? false,
    was: marks.was?.get(place), // the cell before the user masked it
    guess: marks.guesses?.get(place),
    final: marks.final?.(place), // the cell at the last step
    joined: continues(frame.row, place),
    joins: continues(frame.row, place + 1),
  };
}

/** True if a token continues the word before it. */
function continues(row, place) {
  const [before, here] = [row[place - 1]?.text ?? "", row[place]?.text ?? ""];
  return /[\p{L}\p{N}]$/u.test(before) && /^[\p{L}\p{N}'’]/u.test(here);
}

function same(a, b) {
  return a && Object.keys(b).every((name) => a[name] === b[name]);
}

export class Board {
  constructor({ label, letters = false }) {
    this.root = el("div", {
      class: "board flow",
      role: "listbox",
      "aria-multiselectable": "true",
      "aria-label": label,
      "aria-orientation": "horizontal",
    });
    this.letters = letters;
    this.tokens = [];
    this.looks = [];
    this.focused = 0;
  }

  set letters(value) {
    this.root.classList.toggle("letters", value);
  }

  set layout(name) {
    this.root.classList.toggle("tiles", name !== "text");
    this.root.classList.toggle("flow", name === "text");
    this.looks.fill(null); // draw every token again
  }

  /** Draws a row up to its end mark. */
  draw(frame, marks = {}) {
    const count = frame.end === null ? frame.row.length : frame.end + 1;
    while (this.tokens.length > count) {
      this.tokens.pop().remove();
      this.looks.pop();
    }
    while (this.tokens.length < count) {
      const token = el("span", { role: "option", tabindex: "-1", "data-place": this.tokens.length });
      this.tokens.push(token);
      this.looks.push(null);
      this.root.append(token);
    }
    for (let place = 0; place < count; place += 1) {
      const now = look(frame, place, marks);
      if (same(this.looks[place], now)) continue;
      paint(this.tokens[place], now, place);
      this.looks[place] = now;
    }
    this.#tabStop(Math.min(this.focused, this.tokens.length - 1));
  }

  #tabStop(place) {
    this.tokens[this.focused]?.setAttribute("tabindex", "-1");
    this.focused = Math.max(place, 0);
    this.tokens[this.focused]?.setAttribute("tabindex", "0");
  }

  focus(place) {
    this.#tabStop(Math.max(0, Math.min(place, this.tokens.length - 1)));
    this.tokens[this.focused]?.focus();
  }

  /** The position of an element of the board, or null. */
  placeOf(element) {
    const token = element?.closest?.("[data-place]");
    return token && this.root.contains(token) ? Number(token.dataset.place) : null;
  }

  /** The position above or below another one. */
  neighbour(place, lines) {
    const from = this.tokens[place].getBoundingClientRect();
    const middle = from.left + from.width / 2;
    const step = Math.sign(lines);
    let line = null;
    let best = null;
    for (let other = place + step; this.tokens[other]; other += step) {
      const box = this.tokens[other].getBoundingClientRect();
      if (Math.abs(box.top - from.top) < from.height / 2) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > box.height / 2) break;
      const far = Math.abs(box.left + box.width / 2 - middle);
      if (best === null || far < best.far) best = { other, far };
    }
    return best?.other ?? place;
  }
}

function paint(token, now, place) {
  const { cell, guess } = now;
  const masked = cell.id === null && !guess;
  const classes = ["token"];
  if (masked) classes.push("masked");
  else if (guess) classes.push("guess", "known", guess.right ? "right" : "wrong");
  else classes.push(cell.given ? "given" : "known");
  if (now.isNew) classes.push(masked ? "back" : "new");
  if (masked && now.was) classes.push("was");
  if (masked && sizingCell(now)) classes.push("sized");
  for (const name of ["locked", "selected", "joined", "joins"]) if (now[name]) classes.push(name);
  if (now.ends) classes.push("end-mark");
  const p = guess ? guess.likely[0].p : cell.p;
  token.style.setProperty("--p", masked ? 0 : p);
  const text = now.ends ? END.text : guess ? guess.likely[0].text : masked ? sizingCell(now)?.text ?? "" : cell.text;
  if (text.includes("\n")) classes.push("break");
  token.className = classes.join(" ");
  token.style.setProperty("--fit", Math.min(1, LONGEST / Math.max(1, visible(text).length)));
  token.replaceChildren(...content(token, text, now, masked));
  token.setAttribute("aria-selected", String(now.selected));
  token.setAttribute("aria-label", spoken(now, place, masked, text));
}

/** The cell that the user masked, or the one at the last step; it sets the width of the mask. */
function sizingCell({ final, was }) {
  return was ?? (final && final.id !== null ? final : null);
}

/** The children of a token; in flowing text the space before a word is not coloured. */
function content(token, text, { cell, guess }, masked) {
  const word = (...parts) => el("span", { class: "word" }, ...parts);
  if (token.parentElement.classList.contains("tiles")) {
    if (masked) return [word("\u00a0")];
    const shown = visible(text);
    return [guess ? word(...prediction(shown, guess, cell)) : word(shown)];
  }
  const [, space, rest] = text.match(/^([ ]?)(.*)$/s);
  const letters = token.parentElement.classList.contains("letters");
  if (token.matches(".masked:not(.sized)")) return [letters ? "" : " ", word("\u00a0")];
  return [space, guess ? word(...prediction(rest, guess, cell)) : word(rest)];
}

function prediction(shown, { right }, cell) {
  if (right) return [el("span", { class: "sign" }, "✓"), el("span", {}, shown)];
  return [
    el("span", {}, el("span", { class: "sign" }, "✗"), shown),
    el("span", { class: "truth" }, visible(cell.text)),
  ];
}

function spoken({ cell, guess, locked, ends }, place, masked, text) {
  const number = `${place + 1}: `;
  if (ends) return `${number}end of the text`;
  const kept = locked ? ", locked" : "";
  if (masked) return `${number}gap${kept}`;
  if (guess) {
    const verdict = guess.right ? "right" : `wrong, the token is ${visible(cell.text)}`;
    return `${number}guess ${visible(text)}, ${percent(guess.likely[0].p)}, ${verdict}`;
  }
  return `${number}${visible(text)}${cell.given ? "" : `, ${percent(cell.p)}`}${kept}`;
}

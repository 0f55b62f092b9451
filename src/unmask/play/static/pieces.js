// Small parts that views share: the legend, the choice of layout, the first sight of the page.

import { el } from "./dom.js";

/** What the colours mean; `guesses` for the forward process. */
export function legend(guesses = false) {
  const swatch = (kind, text) => el("span", {}, el("span", { class: `swatch ${kind}` }), text);
  const scale = el(
    "span", { class: "scale" },
    "unsure", el("span", { class: "ramp", role: "img", "aria-label": "from orange to blue" }), "sure",
  );
  const signs = guesses
    ? [swatch("right", "guessed right"), swatch("wrong", "guessed wrong")]
    : [swatch("masked", "masked"), swatch("back", "taken back")];
  return el("p", { class: "legend" }, scale, ...signs);
}

/** Tiles, on which nothing moves, or flowing text. */
export function layouts(state, onchange) {
  const names = { tiles: "Tiles", text: "Text" };
  const buttons = Object.entries(names).map(([name, label]) =>
    el("button", { "aria-pressed": String(state.get("layout") === name), onclick: () => choose(name) }, label));
  const choose = (chosen) => {
    state.set({ layout: chosen });
    Object.keys(names).forEach((name, index) => buttons[index].setAttribute("aria-pressed", String(name === chosen)));
    onchange(chosen);
  };
  return el("span", { class: "segmented", role: "group", "aria-label": "Layout" }, ...buttons);
}

/** Before anything is written. */
export function welcome() {
  const drawn = [["", ""], ["a", "known"], ["", ""], ["", ""], ["in", "known"], ["fog", "doubtful"], ["", ""], [".", "known"]];
  return el(
    "div", { class: "card empty" },
    el("div", { class: "tiles-drawn", "aria-hidden": "true" },
      ...drawn.map(([text, kind]) => el("span", { class: kind }, text))),
    el("h2", {}, "Every text starts as a row of masks."),
    el("p", { class: "lead" }, "Press Write and watch the model uncover them, a few at each step, in any order, each coloured by how sure it was. Then click words to mask them again, lock what you like, and let it rewrite the rest."),
  );
}

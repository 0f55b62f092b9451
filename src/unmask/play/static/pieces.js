// Parts that views share: the legend, the layout buttons, the welcome card.

import { el } from "./dom.js";

/** The legend of the colours; `guesses` for the forward process. */
export function legend(guesses = false) {
  const swatch = (kind, text) => el("span", {}, el("span", { class: `swatch ${kind}` }), text);
  const scale = el(
    "span", { class: "scale" },
    "unsure", el("span", { class: "ramp", role: "img", "aria-label": "from orange to blue" }), "sure",
  );
  const signs = guesses
    ? [swatch("right", "predicted right"), swatch("wrong", "predicted wrong")]
    : [swatch("masked", "masked"), swatch("back", "masked again")];
  return el("p", { class: "legend" }, scale, ...signs);
}

/** Buttons for the layout: tiles at fixed positions, or flowing text. */
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

/** The card of an empty page. */
export function welcome() {
  const drawn = [["", ""], ["a", "known"], ["", ""], ["", ""], ["in", "known"], ["fog", "doubtful"], ["", ""], [".", "known"]];
  return el(
    "div", { class: "card empty" },
    el("div", { class: "tiles-drawn", "aria-hidden": "true" },
      ...drawn.map(([text, kind]) => el("span", { class: kind }, text))),
    el("h2", {}, "Every text starts as a row of masks."),
    el("p", { class: "lead" }, "Press Write. At each step the model reveals a few masks, in any order; the colour of a word shows its probability. Then click words to mask them again, lock words to keep them, and fill the gaps anew."),
  );
}

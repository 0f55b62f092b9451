// Parts that views share: the legend, the layout buttons, the welcome card.

import { el } from "./dom.js";

/** The legend of the colours; `guesses` for the forward process. */
export function legend(guesses = false) {
  const swatch = (kind, text, title) => el("span", { title }, el("span", { class: `swatch ${kind}` }), text);
  const scale = el(
    "span", { class: "scale", title: "Probability of the token" },
    "unsure", el("span", { class: "ramp", role: "img", "aria-label": "from orange to blue" }), "sure",
  );
  const signs = guesses
    ? [swatch("right", "guessed right", "Predicted right"), swatch("wrong", "guessed wrong", "Predicted wrong")]
    : [swatch("masked", "gap", "Masked token"), swatch("back", "taken back", "A token that the sampler masked again")];
  return el("p", { class: "legend" }, scale, ...signs);
}

/** Buttons for the layout: flowing text, or tiles at fixed positions. */
export function layouts(state, onchange) {
  const names = { text: "Text", tiles: "Tiles" };
  const buttons = Object.entries(names).map(([name, label]) =>
    el("button", { "aria-pressed": String(state.get("layout") === name), onclick: () => choose(name) }, label));
  const choose = (chosen) => {
    state.set({ layout: chosen });
    Object.keys(names).forEach((name, index) => buttons[index].setAttribute("aria-pressed", String(name === chosen)));
    onchange(chosen);
  };
  return el("span", { class: "segmented", role: "group", "aria-label": "Layout" }, ...buttons);
}

/** The introduction on an empty page. */
export function welcome() {
  const drawn = [["Tom", "given"], ["had", "known"], ["a", "known"], ["", ""], ["", ""], ["and", "doubtful"], ["", ""], ["it", "known"], ["home", "doubtful"], [".", "known"]];
  return el(
    "div", { class: "welcome" },
    el("div", { class: "tiles-drawn", "aria-hidden": "true" },
      ...drawn.map(([text, kind]) => el("span", { class: kind }, text))),
    el("h2", {}, "A text grows out of gaps"),
    el("p", { class: "lead" }, "The model starts with gaps only. At each step it fills a few of them, anywhere in the text. Blue words are sure, orange words are a guess. Then click words to erase them, and let the model fill the gaps again."),
  );
}

// The buttons above a text; their labels follow the selection.

import { el } from "./dom.js";

export class Tools {
  constructor({ erase, lock, rest, style, undo }) {
    const small = (name, title, act) => el("button", { class: "small", title, onclick: act }, name);
    this.erase = small("Erase", "Mask the token or the selected tokens (Enter)", erase);
    this.lock = small("Lock", "Lock the token or the selected tokens: no fill changes them (L)", lock);
    this.rest = small("Erase unlocked", "Mask every token that is not locked", rest);
    this.style = small("Erase by label", "Mask the words that speak most against the label of the settings", style);
    this.undo = small("Undo", "Undo the last change of the text", undo);
  }

  get buttons() {
    return [this.erase, this.lock, this.undo, this.rest, this.style];
  }

  refresh({ row, chosen, editing, running, model }) {
    const fills = model.fills && !model.conditional;
    for (const each of [this.erase, this.lock, this.rest, this.style]) each.disabled = running || !fills;
    this.style.hidden = !model.labels.length;
    const places = [...chosen];
    this.erase.textContent = places.every((place) => row[place]?.id === null && editing.was.has(place)) ? "Put back" : "Erase";
    this.lock.textContent = places.every((place) => editing.locked.has(place)) ? "Unlock" : "Lock";
    this.undo.disabled = running || !editing.undoStack.length;
  }
}

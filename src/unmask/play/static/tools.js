// The buttons above a board; their labels follow the selection.

import { el, plural } from "./dom.js";

export class Tools {
  constructor({ fill, mask, lock, rest, undo }) {
    const small = (name, act) => el("button", { class: "small", onclick: act }, name);
    this.fill = el("button", { class: "primary", id: "fill", onclick: fill });
    this.mask = small("Mask", mask);
    this.lock = small("Lock", lock);
    this.rest = small("Mask all but locked", rest);
    this.undo = small("Undo", undo);
  }

  get buttons() {
    return [this.fill, this.mask, this.lock, this.rest, this.undo];
  }

  refresh({ row, chosen, editing, running, model }) {
    const gaps = row.filter(({ id }) => id === null).length;
    const fills = model.fills && !model.conditional;
    this.fill.disabled = running || !gaps || !fills;
    this.fill.textContent = gaps && !running ? `Fill ${plural(gaps, "gap")}` : "Fill the gaps";
    for (const each of [this.mask, this.lock, this.rest]) each.disabled = running || !fills;
    const places = [...chosen];
    this.mask.textContent = places.every((place) => row[place]?.id === null) ? "Restore" : "Mask";
    this.lock.textContent = places.every((place) => editing.locked.has(place)) ? "Unlock" : "Lock";
    this.undo.disabled = running || !editing.undoStack.length;
  }
}

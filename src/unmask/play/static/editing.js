// Edits of a row by the user: mask, restore, lock, replace; all but locks can be undone.

import { MASKED } from "./recording.js";

export class Editing {
  constructor() {
    this.forget();
  }

  /** Resets the edits for another text. */
  forget(locked = new Set()) {
    this.locked = locked;
    this.past = [];
    this.#fresh();
  }

  /** The model fills the masks: only undo restores the cells before them. */
  began(moment) {
    this.past.push({ ...moment, was: this.was });
    this.#fresh();
  }

  #fresh() {
    this.selected = new Set();
    this.was = new Map(); // the cell of a place before it was masked
  }

  /** Applies an edit, `(row) => row`, and stores `moment` for undo. */
  change(row, moment, deed) {
    const { was } = this;
    const next = deed(row);
    if (next) this.past.push({ ...moment, was });
    return next;
  }

  /** Undoes the last edit of `row`; locks stay where the token stays. */
  undo(row) {
    const moment = this.past.pop();
    if (!moment) return null;
    const before = moment.recording.frames[moment.at].row;
    this.was = moment.was;
    this.locked = new Set([...this.locked].filter((place) => before[place]?.id === row[place]?.id));
    this.selected = new Set();
    return moment;
  }

  /** Masks places, or restores them if all of them are masked; locked ones stay. */
  toggle(row, places) {
    const free = [...places].filter((place) => row[place] && !this.locked.has(place));
    if (!free.length) return null;
    const back = free.every((place) => row[place].id === null);
    if (back && !free.some((place) => this.was.has(place))) return null;
    return back ? this.#bringBack(row, free) : this.#mask(row, free);
  }

  maskRest(row) {
    const rest = [...row.keys()].filter((place) => !this.locked.has(place) && row[place].id !== null);
    return rest.length ? this.#mask(row, rest) : null;
  }

  put(row, place, cell) {
    if (this.locked.has(place)) return null;
    this.was = new Map(this.was);
    this.was.delete(place);
    return row.with(place, cell);
  }

  /** Locks places, or unlocks them if all of them are locked; a mask cannot be locked. */
  lock(row, places) {
    const known = [...places].filter((place) => row[place] && row[place].id !== null);
    const unlock = known.every((place) => this.locked.has(place));
    this.locked = new Set(this.locked);
    for (const place of known) {
      if (unlock) this.locked.delete(place);
      else this.locked.add(place);
    }
  }

  #mask(row, places) {
    this.was = new Map(this.was);
    const next = [...row];
    for (const place of places) {
      if (next[place].id !== null) this.was.set(place, next[place]);
      next[place] = MASKED;
    }
    return next;
  }

  #bringBack(row, places) {
    const old = this.was;
    this.was = new Map(old);
    const next = [...row];
    for (const place of places) {
      next[place] = old.get(place) ?? MASKED;
      this.was.delete(place);
    }
    return next;
  }
}

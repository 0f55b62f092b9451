// Edits of a row by the user: mask, restore, lock, replace; all but locks can be undone.

import { MASKED } from "./recording.js";

export class Editing {
  constructor() {
    this.reset();
  }

  /** Resets the edits for another text. */
  reset(locked = new Set()) {
    this.locked = locked;
    this.undoStack = [];
    this.#clearMarks();
  }

  /** Called when the model starts to fill the masks; from then on only undo restores the masked tokens. */
  beginFill(snapshot) {
    this.undoStack.push({ ...snapshot, was: this.was });
    this.#clearMarks();
  }

  #clearMarks() {
    this.selected = new Set();
    this.was = new Map(); // place -> its cell before it was masked
  }

  /** Applies an edit, `(row) => row`, and stores `snapshot` for undo. */
  change(row, snapshot, edit) {
    const { was } = this;
    const next = edit(row);
    if (next) this.undoStack.push({ ...snapshot, was });
    return next;
  }

  /** Undoes the last edit of `row`; a lock stays if undo does not change its token. */
  undo(row) {
    const snapshot = this.undoStack.pop();
    if (!snapshot) return null;
    const before = snapshot.recording.frames[snapshot.at].row;
    this.was = snapshot.was;
    this.locked = new Set([...this.locked].filter((place) => before[place]?.id === row[place]?.id));
    this.selected = new Set();
    return snapshot;
  }

  /** Masks positions, or restores them if all of them are masked; locked tokens stay. */
  toggle(row, places) {
    const free = [...places].filter((place) => row[place] && !this.locked.has(place));
    if (!free.length) return null;
    const back = free.every((place) => row[place].id === null);
    if (back && !free.some((place) => this.was.has(place))) return null;
    return back ? this.#restore(row, free) : this.#mask(row, free);
  }

  /** Masks positions; locked tokens stay. */
  mask(row, places) {
    const free = places.filter((place) => row[place] && row[place].id !== null && !this.locked.has(place));
    return free.length ? this.#mask(row, free) : null;
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

  /** Locks positions, or unlocks them if all of them are locked; a mask cannot be locked. */
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

  #restore(row, places) {
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

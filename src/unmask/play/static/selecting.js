// Selects tokens of a board by click, drag and keys.

/**
 * A click calls `toggle(place)`, a span `select(places)`, a key `act(name)` for the selection or the
 * focused token; the pointer and the focus call `point(place or null)`.
 */
export function selecting(board, { toggle, select, act, point }) {
  const { root } = board;
  let anchor = null; // the start of a drag or a key selection
  let drag = null;

  const span = (from, to) => {
    const [first, last] = from < to ? [from, to] : [to, from];
    select(new Set(Array.from({ length: last - first + 1 }, (_, i) => first + i)));
  };

  root.addEventListener("pointerdown", (event) => {
    const place = board.placeOf(event.target);
    if (place === null || event.button !== 0) return;
    drag = { from: place, to: place, id: event.pointerId };
    anchor = event.shiftKey && anchor !== null ? anchor : place;
    if (event.shiftKey) drag.from = anchor;
  });

  root.addEventListener("pointermove", (event) => {
    if (drag?.id !== event.pointerId) {
      if (event.pointerType === "mouse") point(board.placeOf(event.target));
      return;
    }
    const place = board.placeOf(document.elementFromPoint(event.clientX, event.clientY));
    if (place === null || place === drag.to) return;
    drag.to = place;
    point(null);
    span(drag.from, place);
  });

  const lift = (event) => {
    if (drag?.id !== event.pointerId) return;
    const { from, to } = drag;
    drag = null;
    if (event.type === "pointercancel") return;
    board.focus(to);
    if (from === to) {
      select(new Set());
      toggle(to);
    } else {
      span(from, to);
    }
  };
  root.addEventListener("pointerup", lift);
  addEventListener("pointerup", lift);
  root.addEventListener("pointercancel", lift);
  root.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") point(null);
  });

  root.addEventListener("focusin", (event) => {
    const place = board.placeOf(event.target);
    if (place !== null && !drag) point(place);
  });
  root.addEventListener("focusout", () => point(null));

  const DEEDS = { Enter: "toggle", Delete: "mask", Backspace: "mask", m: "mask", l: "lock", a: "alternatives", " ": "play", ",": "back", ".": "on", Escape: "escape" };

  root.addEventListener("keydown", (event) => {
    const place = board.placeOf(event.target);
    if (place === null || event.altKey) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key === "Enter") act("fill", place);
      return;
    }
    const to = moved(board, event.key, place);
    if (to === null) {
      const deed = DEEDS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!deed) return;
      event.preventDefault();
      act(deed, place);
      if (deed === "escape") anchor = null;
      return;
    }
    event.preventDefault();
    if (event.shiftKey) {
      anchor ??= place;
      board.focus(to);
      span(anchor, board.focused);
    } else {
      anchor = null;
      select(new Set());
      board.focus(to);
    }
  });
}

function moved(board, key, place) {
  switch (key) {
    case "ArrowLeft": return place - 1;
    case "ArrowRight": return place + 1;
    case "ArrowUp": return board.neighbour(place, -1);
    case "ArrowDown": return board.neighbour(place, 1);
    case "Home": return 0;
    case "End": return board.tokens.length - 1;
    default: return null;
  }
}

// Selects tokens of a board by click, drag and keys.

/**
 * Calls `toggle(place)` at a click, `select(places)` at a span, `act(action, place)` at a key, and
 * `point(place or null)` when the pointer or the focus moves.
 */
export function enableSelection(board, { toggle, select, act, point }) {
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

  const endDrag = (event) => {
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
  root.addEventListener("pointerup", endDrag);
  addEventListener("pointerup", endDrag);
  root.addEventListener("pointercancel", endDrag);
  root.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") point(null);
  });

  root.addEventListener("focusin", (event) => {
    const place = board.placeOf(event.target);
    if (place !== null && !drag) point(place);
  });
  root.addEventListener("focusout", () => point(null));

  const ACTIONS = { Enter: "toggle", Delete: "mask", Backspace: "mask", m: "mask", l: "lock", a: "alternatives", t: "type", " ": "play", ",": "back", ".": "on", Escape: "escape" };

  root.addEventListener("keydown", (event) => {
    const place = board.placeOf(event.target);
    if (place === null || event.altKey) return;
    if (event.ctrlKey || event.metaKey) {
      if (event.key === "Enter") act("fill", place);
      return;
    }
    const to = destination(board, event.key, place);
    if (to === null) {
      const action = ACTIONS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!action) return;
      event.preventDefault();
      act(action, place);
      if (action === "escape") anchor = null;
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

function destination(board, key, place) {
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

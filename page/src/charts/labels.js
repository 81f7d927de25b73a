// Places for the labels of dots, so that no label covers another one or a larger dot.

const HEIGHT = 13;
const CHARACTER = 6.3;

function overlaps(a, b) {
  return a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1;
}

/** `reserved` boxes stay free; without `beside`, labels stand above and below rather than beside their dots. Returns the items that found a place, the first ones first, with `dx`, `dy` and `anchor` of their labels. */
export function place(items, { left, right, top, bottom, width, height }, reserved = [], beside = true) {
  const dots = items.map(({ x, y, r }) => ({ x0: x - r, x1: x + r, y0: y - r, y1: y + r }));
  const taken = [...reserved];
  const placed = [];
  items.forEach((item, index) => {
    const wide = item.text.length * CHARACTER;
    const near = item.r + 4;
    const choices = [
      { dx: near, dy: 0, anchor: "start" },
      { dx: -near, dy: 0, anchor: "end" },
      { dx: 0, dy: -near - 6, anchor: "middle" },
      { dx: 0, dy: near + 6, anchor: "middle" },
      { dx: 6, dy: -near - 6, anchor: "start" },
      { dx: 6, dy: near + 6, anchor: "start" },
      { dx: -6, dy: -near - 6, anchor: "end" },
      { dx: -6, dy: near + 6, anchor: "end" },
    ];
    for (const choice of beside ? choices : [...choices.slice(2), ...choices.slice(0, 2)]) {
      const x = item.x + choice.dx;
      const start = choice.anchor === "start" ? x : choice.anchor === "end" ? x - wide : x - wide / 2;
      const y = item.y + choice.dy;
      const box = { x0: start - 1, x1: start + wide + 1, y0: y - HEIGHT / 2, y1: y + HEIGHT / 2 };
      const inside = box.x0 >= left && box.x1 <= width - right && box.y0 >= top && box.y1 <= height - bottom;
      if (!inside || taken.some((other) => overlaps(box, other))) continue;
      if (dots.some((dot, other) => other !== index && overlaps(box, dot))) continue;
      taken.push(box);
      placed.push({ ...item, ...choice });
      return;
    }
  });
  return placed;
}

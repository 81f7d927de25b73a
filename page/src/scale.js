// Positions of sliders: four steps per doubling, all of them numbers that people choose (4, 5, 6, 7, 8, 10, 12, …).

/** The values of a slider from 0 to `max`, starting with 0 and then `first`. */
export function ladder(max, first = 1) {
  const values = [0];
  for (let octave = first; octave <= max; octave *= 2) {
    for (const quarter of [4, 5, 6, 7]) {
      const value = (octave * quarter) / 4;
      if (Number.isInteger(value) && value <= max) values.push(value);
    }
  }
  if (values.at(-1) !== max) values.push(max);
  return values;
}

/** The position whose value is nearest to `value`. */
export function nearest(values, value) {
  let best = 0;
  for (let index = 1; index < values.length; index += 1) {
    if (Math.abs(values[index] - value) < Math.abs(values[best] - value)) best = index;
  }
  return best;
}

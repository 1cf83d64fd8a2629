// Numbers as people read them. Bytes are whole numbers everywhere; GiB is 2**30.
export const GIB = 2 ** 30;

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** "14.96 GiB", smaller ones in MiB, KiB or B. */
export function bytes(size, digits = 2) {
  const about = Math.abs(size);
  if (about >= GIB) return `${(size / GIB).toFixed(digits)} GiB`;
  if (about >= 2 ** 20) return `${(size / 2 ** 20).toFixed(1)} MiB`;
  if (about >= 2 ** 10) return `${(size / 2 ** 10).toFixed(1)} KiB`;
  return `${whole.format(size)} B`;
}

/** GiB alone, for axes. */
export const gib = (size) => +(size / GIB).toFixed(3);

/** "12,345" */
export const count = (value) => whole.format(value);

/** "2.47", "0.031": three digits that count. */
export const number = (value) => (value === 0 ? "0" : Number.isInteger(value) ? whole.format(value) : `${+value.toPrecision(3)}`);

/** What something changed by: "+1.50 GiB", "−12"; no change has no sign. */
export const signed = (change, shown = bytes) => `${change > 0 ? "+" : change < 0 ? "−" : ""}${shown(Math.abs(change))}`;

/** A low-expected-high interval in words: "3.1 GiB (2.9 to 3.4)", exact ones without the brackets. */
export function range(interval, shown = bytes) {
  const { low, expected, high } = interval;
  return low === expected && high === expected ? shown(expected) : `${shown(expected)} (${shown(low)} to ${shown(high)})`;
}

/** Seconds in the unit that suits: "38 ms", "2.1 s", "4 min". */
export function seconds(value) {
  if (value < 1) return `${number(value * 1000)} ms`;
  if (value < 120) return `${number(value)} s`;
  return `${number(value / 60)} min`;
}

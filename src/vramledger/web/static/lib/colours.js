// Colours by what they mean; app.css says them for light and dark. Charts get them as plain values.
export const OWNERS = ["weights", "adapters", "kv_cache", "activation", "workspace", "collectives", "graph_pool", "runtime_context", "allocator", "headroom"];
export const PHASES = ["load", "warmup", "prefill", "decode", "recovery"];

/** The value of a variable of app.css: colour("ink"), colour("kv-cache"). */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export const ownerColour = (owner) => colour(owner.replace(/_/g, "-"));

/** Red, green and blue of "#rrggbb", each to 255. */
export const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

/** Two colours ("#rrggbb") mixed: so much of the second. */
export function mixed(first, second, part) {
  const [from, to] = [channels(first), channels(second)];
  return `#${from.map((each, place) => Math.round(each + (to[place] - each) * part).toString(16).padStart(2, "0")).join("")}`;
}

/** Series that are none of the owners, told apart also by who sees few colours. */
export const seriesColour = (place) => colour(`s${(place % 7) + 1}`);

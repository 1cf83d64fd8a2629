// From a row of another tab to the same question in tab Plan.
import { addressOf } from "vl/lib/state";

/** question: {source, device, engine, flags: {name: value}, concurrency}. */
export async function openPlan(question) {
  location.href = await addressOf("plan", planState(question));
}

/** The state of tab Plan that asks this. */
export function planState({ source, device, engine, flags, concurrency = 1 }) {
  return { model: source, device, engine, flags, concurrency };
}

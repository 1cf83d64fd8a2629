// From a row of another tab to the same question in tab Plan.
import { addressOf } from "vl/lib/state";

/** Whether tab Plan can ask the same: weights in a format that the checkpoint does not have are a question of a search alone, except where an
 * engine converts them by a flag of its own. */
export const canOpen = (row) => row.weights === "stored" || row.engine.startsWith("llamacpp");

/** question: {source, names, device, engine: "vllm" or "vllm==0.11.0", flags: as text, concurrency}. */
export async function openPlan({ source, names = [], device, engine, flags, concurrency }) {
  const [name, version = ""] = engine.split("==");
  location.href = await addressOf("plan", { source, names, device, engine: name, version, concurrency, flags: flagsOf(flags) });
}

/** "--tensor-parallel-size 2 --enable-expert-parallel" as {tensor_parallel_size: 2, enable_expert_parallel: true}. */
function flagsOf(text) {
  const found = {};
  let name = null;
  for (const word of text.split(" ").filter(Boolean)) {
    if (word.startsWith("--")) {
      name = word.slice(2).replace(/-/g, "_");
      found[name] = true;
    } else if (name) {
      found[name] = /^\d+(\.\d+)?$/.test(word) ? Number(word) : word;
      name = null;
    }
  }
  return found;
}

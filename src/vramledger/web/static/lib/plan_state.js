// What a plan is asked of, as an address holds it: {source, names, device, engine, version, concurrency, flags}. `source` is "builtin:NAME" or
// "upload:ID" (`names` are its files), `flags` the engine's own by Python's name.

/** The built-in model of this name as a source, the first of them where there is none of that name. */
export const builtin = (known, name) => `builtin:${known.models.includes(name) ? name : known.models[0]}`;

/** A plan worth looking at when nothing was asked. */
export const first = (known) => ({
  source: builtin(known, "Llama-3.1-8B-Instruct"), names: [], device: "H100 SXM 80GB",
  engine: "vllm", version: "", concurrency: 8, flags: { max_model_len: 32768 },
});

/** Names that engines give to what all of them are asked, from the catalogue: {tp, pp, dp, ep, context, sequences, kv: [...], share, weights}. */
export function termsOf(known, engine) {
  const found = known.engines.find((each) => each.name === engine) ?? known.engines[0];
  const has = (...names) => names.find((name) => found.options.some((each) => each.name === name)) ?? null;
  return {
    ...found.terms,
    dp: has("data_parallel_size", "dp_size"),
    sequences: found.terms.sequences ?? has("max_running_requests"),
    share: has("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction", "max_memory_percent"),
    weights: has("quantization", "ftype"),
  };
}

export const optionOf = (known, engine, name) => known.engines.find((each) => each.name === engine)?.options.find((each) => each.name === name);

// The far end of a slider where the engine takes less than others: SGLang's and TensorRT-LLM's share lies below 1, llama.cpp has 256 slots at most.
const MOST = { sglang: { share: 0.99 }, "tensorrt-llm": { share: 0.99 }, llamacpp: { sequences: 256 } };
export const mostOf = (engine, role) => MOST[engine]?.[role] ?? Infinity;

/** The question for the server. */
export function askOf(state) {
  const engine = state.version ? `${state.engine}==${state.version}` : state.engine;
  const options = { device: state.device, engine, ...(state.concurrency > 1 ? { concurrency: state.concurrency } : {}), ...state.flags };
  return { command: "plan", sources: [state.source], options };
}

/** The same question put to another engine: what has a name there is kept, the rest is left behind. */
export function movedTo(known, state, engine) {
  const from = termsOf(known, state.engine);
  const to = termsOf(known, engine);
  const flags = {};
  for (const role of ["tp", "pp", "dp", "context", "sequences"]) {
    if (from[role] && to[role] && from[role] in state.flags) flags[to[role]] = atMost(state.flags[from[role]], mostOf(engine, role));
  }
  const has = new Set(known.engines.find((each) => each.name === engine).options.map((each) => each.name));
  const same = Object.entries(state.flags).filter(([name]) => has.has(name) && optionOf(known, state.engine, name)?.kind === optionOf(known, engine, name).kind && !["kv_cache_dtype", "quantization"].includes(name));
  return { ...state, engine, version: "", flags: { ...Object.fromEntries(same), ...flags } };
}

/**
 * The same question of what was dropped: its context is left to the engine, since the one that is set was chosen for another model, and a GGUF file goes to
 * the engine that it is made for.
 */
export function ofDropped(known, state, { source, names, bytes }) {
  const isGguf = names.length > 0 && names.every((each) => each.toLowerCase().endsWith(".gguf"));
  const moved = isGguf && state.engine !== "llamacpp" ? movedTo(known, state, "llamacpp") : state;
  const context = termsOf(known, moved.engine).context;
  return { ...moved, source, names, bytes, flags: Object.fromEntries(Object.entries(moved.flags).filter(([name]) => name !== context)) };
}

const atMost = (value, most) => (typeof value === "number" ? Math.min(value, most) : value);

/** A state that came from outside, with what is not its own left out; null where nothing can be made of it. */
export function clean(known, state) {
  if (!state || typeof state !== "object" || typeof state.source !== "string" || !/^(builtin|upload):/.test(state.source)) return null;
  const engine = known.engines.find((each) => each.name === state.engine) ?? known.engines[0];
  const names = new Set(engine.options.map((each) => each.name));
  const isValue = (value) => ["string", "number", "boolean"].includes(typeof value) || (Array.isArray(value) && value.every((each) => typeof each === "string"));
  const flags = Object.entries(state.flags ?? {}).filter(([name, value]) => names.has(name) && isValue(value));
  const text = (value, otherwise) => (typeof value === "string" ? value.slice(0, 200) : otherwise);
  return {
    source: state.source.slice(0, 300), names: Array.isArray(state.names) ? state.names.filter((each) => typeof each === "string").slice(0, 300) : [], bytes: Number.isInteger(state.bytes) ? state.bytes : 0, device: text(state.device, first(known).device),
    engine: engine.name, version: text(state.version, ""), concurrency: Number.isInteger(state.concurrency) && state.concurrency > 0 ? state.concurrency : 1, flags: Object.fromEntries(flags),
  };
}

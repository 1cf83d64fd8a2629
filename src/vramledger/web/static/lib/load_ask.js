// From what the tab Capacity's controls hold to the questions that the commands are asked.

import { clean } from "vl/lib/plan_state";

/** A load worth looking at when nothing was asked; `plan` is as the tab Plan has it. */
const FIRST = {
  what: "simulate", workload: "azure-chat", requests: 3000, speed: 1, rate: "", ttft: "2000", tpot: "80", latency: "", goodput: 0.99,
  replicas: 1, router: "round-robin", scheduling: "", toolWait: "release", hostLink: "", hostSwap: "", admission: "", compare: false, seed: 0, prefill: 0, link: "",
  confidence: 0.95, resolution: 0.02, replications: 3, headroom: true, sensitivity: true, by: "admission", policies: ["", "default", "throughput"],
};

const firstPlan = (known) => ({ ...clean(known, { source: "builtin:Llama-3.1-8B-Instruct" }), device: "L40S", flags: { max_model_len: 16384 } });

/** A state from an address or another tab, with what is not its own left out. */
export function cleaned(known, state) {
  const found = { ...FIRST, plan: clean(known, state?.plan) ?? firstPlan(known) };
  for (const [name, usual] of Object.entries(FIRST)) {
    const value = state?.[name];
    const isAlike = typeof value === typeof usual && Array.isArray(value) === Array.isArray(usual);
    if (isAlike && (!Array.isArray(value) || value.every((each) => typeof each === "string"))) found[name] = value;
  }
  return found;
}

/** Of a state only what is not as at first, for a short address. Uploads are of this page alone. */
export function changed(known, asked) {
  const own = Object.entries(asked).filter(([name, value]) => name !== "plan" && JSON.stringify(value) !== JSON.stringify(FIRST[name]));
  const isPlanOwn = JSON.stringify(asked.plan) !== JSON.stringify(firstPlan(known));
  return { ...Object.fromEntries(own), ...(isPlanOwn && { plan: asked.plan }) };
}

/** Whether a workload is sampled from cohorts rather than sent as it was recorded. */
export function isSampled(asked, known, held) {
  if (asked.workload) return !known.workloads.find((each) => each.name === asked.workload)?.is_trace;
  return /\.(toml|json)$|\.rates\.parquet$/i.test(held?.names[0] ?? "");
}

const workloadFile = (asked, held) => (asked.workload ? `builtin:${asked.workload}` : held?.source);

/** Options of how a workload is read, for every command that takes one. */
function reading(asked, sampled) {
  const options = sampled ? { rate: asked.rate } : asked.speed === 1 ? {} : { scale_time: +(1 / asked.speed).toPrecision(12) };
  return asked.seed ? { ...options, seed: asked.seed } : options;
}

/** What `vramledger workload` is asked; `held` are uploads: {model, workload, step}. */
export function workloadAsk(asked, known, held) {
  const sampled = isSampled(asked, known, held.workload);
  return { command: "workload", sources: [workloadFile(asked, held.workload)], options: { ...reading(asked, sampled), ...(sampled ? { requests: asked.requests } : { limit: asked.requests }) } };
}

/** What `vramledger simulate` or `capacity` is asked; `more` are options over the controls'. */
export function loadAsk(command, asked, known, held, more = {}) {
  const { plan } = asked;
  const engine = plan.version ? `${plan.engine}==${plan.version}` : plan.engine;
  const sampled = isSampled(asked, known, held.workload);
  const fleet = {
    ...(asked.replicas > 1 && { replicas: asked.replicas, router: asked.router }), ...(asked.prefill > 0 && { prefill_replicas: asked.prefill, link: asked.link }),
    ...(asked.toolWait !== "release" && { tool_wait: asked.toolWait }), scheduling: asked.scheduling, host_link: asked.hostLink, host_swap: asked.hostSwap,
  };
  const aims = { slo_ttft_ms: asked.ttft, slo_tpot_ms: asked.tpot, slo_latency_ms: asked.latency, ...(asked.goodput !== 0.99 && { goodput: asked.goodput }) };
  const own = command === "simulate" ? { admission: asked.admission, ...(asked.compare && { compare: true }) } : search(asked);
  return {
    command, sources: [plan.source],
    options: { device: plan.device, ...(engine !== "vllm" && { engine }), ...plan.flags, ...reading(asked, sampled), requests: asked.requests, ...aims, ...fleet, ...own, ...more },
    files: { workload: workloadFile(asked, held.workload), ...(held.step && { step_model: held.step.source }) },
  };
}

function search(asked) {
  return {
    ...(asked.confidence !== 0.95 && { confidence: asked.confidence }), ...(asked.resolution !== 0.02 && { resolution: asked.resolution }), ...(asked.replications !== 3 && { replications: asked.replications }),
    ...(!asked.headroom && { with_headroom: false }), ...(!asked.sensitivity && { with_changes: false }),
  };
}

/** The options that the policies compared by `by` are, by their names. */
export function policiesOf(by, known) {
  return by === "admission" ? ["", ...known.simulation.admission] : known.simulation[by];
}

/** What is missing before anything can be asked: a key of words, or "". */
export function missing(asked, held) {
  if (!asked.workload && !held.workload) return "cap.needs.workload";
  if (asked.what === "capacity" && !asked.ttft && !asked.tpot && !asked.latency) return "cap.needs.aim";
  if (asked.what === "policies" && !asked.policies.length) return "cap.needs.policies";
  return "";
}

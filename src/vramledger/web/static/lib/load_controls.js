// The controls of the tab Capacity: plan, workload, aims, fleet, and what is searched or compared.
import { html } from "vl/lib/dom";
import { Check, Drop, Select, Slider, Text } from "vl/lib/parts";
import { count } from "vl/lib/units";
import { t } from "vl/lib/words";
import { DeviceControl, EngineControls, FlagControls, FormatControls, ModelControls, ParallelControls, given } from "vl/lib/engine_controls";
import { isSampled, policiesOf } from "vl/lib/load_ask";
import { optionOf, termsOf } from "vl/lib/plan_state";
import { share } from "vl/lib/load";

const CONTEXTS = [2048, 4096, 8192, 16384, 32768, 65536, 131072];
const REQUESTS = [100, 250, 500, 1000, 1500, 2000, 3000, 5000, 10000, 20000, 50000, 100000];
// Those whose times are short numbers.
const SPEEDS = [0.1, 0.2, 0.25, 0.4, 0.5, 0.625, 0.8, 1, 1.25, 1.6, 2, 2.5, 4, 5, 8, 10];
const SEQUENCES = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const SHARES = [0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
const OWN = "";

function Group({ name, children }) {
  return html`<fieldset><legend>${name}</legend>${children}</fieldset>`;
}

/** `asked`: the state of load_ask; `set` takes what changes of it; `held` and `hold`: uploads by what they are. */
export function Controls({ asked, set, known, held, hold, settings }) {
  return html`<${What} asked=${asked} set=${set} />
    <${Workload} asked=${asked} set=${set} known=${known} held=${held} hold=${hold} />
    <${Instance} asked=${asked} set=${set} known=${known} settings=${settings} />
    <${Aims} asked=${asked} set=${set} />
    ${asked.what === "policies" && html`<${Policies} asked=${asked} set=${set} known=${known} />`}
    <details class="more"><summary>${t("cap.fleet")}</summary><${Fleet} asked=${asked} set=${set} known=${known} held=${held} hold=${hold} /></details>
    ${asked.what === "capacity" && html`<details class="more"><summary>${t("cap.search")}</summary><${Search} asked=${asked} set=${set} /></details>`}`;
}

function What({ asked, set }) {
  return html`<${Group} name=${t("cap.what")}><div class="modes">${["simulate", "capacity", "policies"].map((each) => html`<label key=${each}><input type="radio" name="what" value=${each} checked=${asked.what === each} onChange=${() => set({ what: each })} /> ${t(`cap.${each}`)}</label>`)}</div><//>`;
}

function Workload({ asked, set, known, held, hold }) {
  const sampled = isSampled(asked, known, held.workload);
  const chosen = known.workloads.find((each) => each.name === asked.workload);
  return html`<${Group} name=${t("cap.workload")}>
    <${Select} label=${t("cap.workload")} value=${asked.workload} options=${[...known.workloads.map((each) => [each.name, `builtin:${each.name}`]), [OWN, t("cap.own")]]} hint=${chosen?.about} onChange=${(workload) => set({ workload })} />
    ${!asked.workload && html`<${Drop} label=${t("cap.own")} held=${held.workload} accept=".csv,.jsonl,.json,.toml,.parquet,.gz" hint=${t("cap.own.drop")} onFiles=${(files) => hold({ workload: files })} />`}
    <${Slider} label=${t("cap.requests")} value=${asked.requests} steps=${REQUESTS} shown=${count} onChange=${(requests) => set({ requests: Math.round(requests) })} />
    ${sampled ? html`<${Text} label=${t("cap.rate")} value=${asked.rate} hint=${t("cap.rate.hint")} onChange=${(rate) => set({ rate: rate.trim() })} />`
      : html`<${Slider} label=${t("cap.speed")} value=${asked.speed} steps=${SPEEDS} shown=${(value) => `${value}×`} onChange=${(speed) => set({ speed })} />`}<//>`;
}

/** The plan's own controls; `settings` are those of the last answer, shown where nothing is given. */
function Instance({ asked, set, known, settings }) {
  const own = { known, state: asked.plan, onChange: (plan) => set({ plan }) };
  return html`<${Group} name=${t("cap.plan")}><${ModelControls} ...${own} /><${DeviceControl} ...${own} /><${EngineControls} ...${own} />
    <details class="more"><summary>${t("cap.plan.more")}</summary><${Sizes} ...${own} settings=${settings} /><${ParallelControls} ...${own} /><${FormatControls} ...${own} /><${FlagControls} ...${own} /></details><//>`;
}

function Sizes({ known, state, settings, onChange }) {
  const terms = termsOf(known, state.engine);
  const slider = (name, label, steps, otherwise) => name && html`<${Slider} key=${name} label=${label} flag=${optionOf(known, state.engine, name).flag} steps=${steps} shown=${count} value=${state.flags[name] ?? otherwise ?? steps[steps.length - 1]}
    onReset=${name in state.flags ? () => onChange(given(state, name, null)) : null} onChange=${(value) => onChange(given(state, name, Math.round(value)))} />`;
  return html`${slider(terms.context, t("context"), CONTEXTS, settings?.max_model_len)}${slider(terms.sequences, t("cap.seqs"), SEQUENCES, settings?.max_num_seqs)}`;
}

function Aims({ asked, set }) {
  const aim = (name) => html`<${Text} label=${t(`cap.${name}`)} value=${asked[name]} onChange=${(value) => set({ [name]: value.trim() })} />`;
  return html`<${Group} name=${t("cap.aims")}><div class="pair">${aim("ttft")}${aim("tpot")}</div>${aim("latency")}<p class="hint">${t("cap.aim.hint")}</p>
    <${Slider} label=${t("cap.goodput")} value=${asked.goodput} steps=${SHARES} shown=${share} onChange=${(goodput) => goodput <= 1 && set({ goodput })} /><//>`;
}

function Policies({ asked, set, known }) {
  const all = policiesOf(asked.by, known);
  const toggle = (name, on) => set({ policies: all.filter((each) => (each === name ? on : asked.policies.includes(each))) });
  const by = (next) => set({ by: next, policies: policiesOf(next, known).slice(0, 3), ...(next === "router" && asked.replicas === 1 && { replicas: 2 }) });
  return html`<${Group} name=${t("cap.policy")}>
    <${Select} label=${t("cap.by")} value=${asked.by} options=${["admission", "tool_wait", "scheduling", "router"].map((each) => [each, t(`cap.by.${each}`)])} onChange=${by} />
    ${all.map((each) => html`<${Check} key=${each} label=${policyName(each)} value=${asked.policies.includes(each)} onChange=${(on) => toggle(each, on)} />`)}<//>`;
}

/** The name of a policy; none is the empty one. */
export const policyName = (name) => name || t("cap.admission.none");

function Fleet({ asked, set, known, held, hold }) {
  const { simulation } = known;
  const swaps = asked.toolWait === "swap" || asked.compare || (asked.what === "policies" && asked.by === "tool_wait");
  const isCompared = (name) => asked.what === "policies" && asked.by === name;
  return html`<${Slider} label=${t("cap.replicas")} value=${asked.replicas} min=${1} max=${16} onChange=${(replicas) => set({ replicas: Math.round(replicas) })} />
    ${asked.replicas > 1 && !isCompared("router") && html`<${Select} label=${t("cap.router")} value=${asked.router} options=${simulation.router} onChange=${(router) => set({ router })} />`}
    ${asked.replicas > 1 && html`<${Slider} label=${t("cap.prefill")} value=${asked.prefill} min=${0} max=${asked.replicas - 1} onChange=${(prefill) => set({ prefill: Math.min(Math.round(prefill), asked.replicas - 1) })} />`}
    ${asked.prefill > 0 && html`<${Text} label=${t("cap.link")} value=${asked.link} placeholder="50GB" onChange=${(link) => set({ link: link.trim() })} />`}
    ${!isCompared("scheduling") && html`<${Select} label=${t("cap.scheduling")} value=${asked.scheduling} options=${[["", t("cap.scheduling.own")], ...simulation.scheduling.map((each) => [each, each])]} onChange=${(scheduling) => set({ scheduling })} />`}
    ${asked.what === "simulate" && html`<${Select} label=${t("cap.admission")} value=${asked.admission} options=${[["", t("cap.admission.none")], ...simulation.admission.map((each) => [each, each])]} onChange=${(admission) => set({ admission })} />`}
    ${!isCompared("tool_wait") && html`<${Select} label=${t("cap.toolwait")} value=${asked.toolWait} options=${simulation.tool_wait} onChange=${(toolWait) => set({ toolWait })} />`}
    ${asked.what === "simulate" && html`<${Check} label=${t("cap.compare")} value=${asked.compare} onChange=${(compare) => set({ compare })} />`}
    ${swaps && html`<div class="pair"><${Text} label=${t("cap.hostlink")} value=${asked.hostLink} placeholder="25GB" onChange=${(hostLink) => set({ hostLink: hostLink.trim() })} /><${Text} label=${t("cap.hostswap")} value=${asked.hostSwap} placeholder="64GiB" onChange=${(hostSwap) => set({ hostSwap: hostSwap.trim() })} /></div>`}
    <${Slider} label=${t("cap.seed")} value=${asked.seed} min=${0} max=${100} onChange=${(seed) => set({ seed: Math.round(seed) })} />
    <${Drop} label=${t("cap.step")} held=${held.step} accept=".json" onFiles=${(files) => hold({ step: files })} />`;
}

function Search({ asked, set }) {
  return html`<${Slider} label=${t("cap.confidence")} value=${asked.confidence} steps=${[0.8, 0.9, 0.95, 0.99]} shown=${share} onChange=${(confidence) => set({ confidence })} />
    <${Slider} label=${t("cap.resolution")} value=${asked.resolution} steps=${[0.01, 0.02, 0.05, 0.1]} shown=${share} onChange=${(resolution) => set({ resolution })} />
    <${Slider} label=${t("cap.replications")} value=${asked.replications} min=${1} max=${10} onChange=${(replications) => set({ replications: Math.round(replications) })} />
    <${Check} label=${t("cap.headroom")} value=${asked.headroom} onChange=${(headroom) => set({ headroom })} />
    <${Check} label=${t("cap.sensitivity")} value=${asked.sensitivity} onChange=${(sensitivity) => set({ sensitivity })} />`;
}

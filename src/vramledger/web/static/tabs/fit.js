// Tab Fit: what a model holds on. Two questions run: the search with its front, and the grid of devices by context.
import { useAsked } from "vl/lib/asked";
import { run } from "vl/lib/api";
import { html, useEffect } from "vl/lib/dom";
import { openPlan } from "vl/lib/open_plan";
import { Check, Command, Field, Problem, Progress, Select, Slider, useRun } from "vl/lib/parts";
import { builtin } from "vl/lib/plan_state";
import { AT_ONCE, CONTEXTS, Chosen, fitting, OwnFlags, Subject, Ticked } from "vl/lib/subject";
import { count } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import { View } from "vl/views/fit";
import { View as Grid } from "vl/views/sweep";
import words from "vl/words/fit";

addWords(words);

const MOST = [1, 2, 4, 8, 16, 32, 64];
const ORDERS = ["devices", "price", "tokens", "tokens-per-price"];
const USUAL = ["L4", "RTX 4090", "RTX 5090", "L40S", "A100 SXM 80GB", "H100 SXM 80GB", "RTX PRO 6000 Blackwell", "H200 141GB", "B200", "MI300X"];
const LARGE = 4000;
const SHOWN_ROWS = 2000;
const SETTLED_MS = 400;
const ALL = "all";

const first = (known) => ({
  source: builtin(known, "Llama-3.3-70B-Instruct"), names: [], bytes: 0, devices: USUAL, engines: ["vllm"], weights: ["stored", "fp8"], kv: ["auto", "fp8"],
  context: 32768, contexts: ["4K", "8K", "16K", "32K", "64K", "128K"], concurrency: 8, most: 8, nodes: 1, ep: false, order: "devices", prices: "", flags: [],
});

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  const [asked, setAsked] = useAsked("fit", state, { read: (found) => fitting(first(known), found), first: () => first(known) });
  const search = useRun(run);
  const grid = useRun(run);
  const set = (more) => setAsked((before) => ({ ...before, ...more }));
  const size = points(asked, known);
  const start = () => {
    search.start(fitAsk(asked));
    grid.start(sweepAsk(asked));
  };
  const cancel = () => {
    search.cancel();
    grid.cancel();
  };
  useEffect(() => {
    const later = setTimeout(() => asked.source && size > 0 && size <= LARGE && start(), SETTLED_MS);
    return () => clearTimeout(later);
  }, [asked]);
  const open = (row) => openPlan({ source: asked.source, names: asked.names, device: row.device, engine: row.engine, flags: row.flags, concurrency: row.concurrency });
  const names = known.devices.map((each) => each.name);
  const isRunning = search.isRunning || grid.isRunning;
  return html`<h1 class="hidden">${t("tab.fit")}</h1><div class="split"><form class="controls" aria-label=${t("tab.fit")} onSubmit=${(event) => { event.preventDefault(); start(); }}>
      <${Subject} known=${known} state=${asked} onChange=${set} />
      <${Slider} label=${t("context")} value=${asked.context} steps=${CONTEXTS} shown=${count} onChange=${(context) => set({ context })} />
      <${Slider} label=${t("concurrency")} value=${asked.concurrency} steps=${AT_ONCE} onChange=${(concurrency) => set({ concurrency })} />
      <${Chosen} label=${t("fit.devices")} values=${asked.devices} list=${names} add=${t("fit.device.add")} hint=${t("fit.device.hint")} all=${[ALL, t("fit.all")]} onChange=${(devices) => set({ devices })} />
      <${Ticked} label=${t("fit.weights")} values=${asked.weights} options=${known.weights.map((each) => [each.name, html`<span>${each.name} <span class="dim">${each.help}</span></span>`])} hint=${t("fit.weights.hint")} onChange=${(weights) => set({ weights })} />
      <${Ticked} label=${t("fit.kv")} values=${asked.kv} options=${known.kv.map((each) => [each.name, each.name])} onChange=${(kv) => set({ kv })} />
      <${Ticked} label=${t("fit.engines")} values=${asked.engines} options=${known.engines.map((each) => [each.name, each.name])} onChange=${(engines) => set({ engines })} />
      <details><summary>${t("more")}</summary>
      <${Chosen} label=${t("fit.contexts")} values=${asked.contexts} list=${[]} add=${t("fit.context.add")} hint=${t("fit.context.hint")} onChange=${(contexts) => set({ contexts })} />
      <${Slider} label=${t("fit.most")} value=${asked.most} steps=${MOST} onChange=${(most) => set({ most, nodes: Math.ceil(most / 8) })} />
      <${Check} label=${t("fit.ep")} value=${asked.ep} onChange=${(ep) => set({ ep })} />
      <${Select} label=${t("fit.order")} value=${asked.order} options=${ORDERS.map((name) => [name, t(`fit.order.${name}`)])} onChange=${(order) => set({ order })} />
      <${Field} label=${t("fit.prices")} hint=${t("fit.prices.hint")}>${(id) => html`<textarea id=${id} rows="3" spellcheck="false" placeholder=${"H100 SXM 80GB=2.5\nL40S=1.1"} value=${asked.prices} onInput=${(event) => set({ prices: event.target.value })}></textarea>`}<//>
      <${OwnFlags} values=${asked.flags} onChange=${(flags) => set({ flags })} /></details>
      <button type="submit" disabled=${!asked.source || size === 0}>${t("run")}</button>
    </form>
    <div class="shown" aria-busy=${isRunning}>${size > LARGE && !isRunning && html`<p>${t("fit.large", { count: count(size) })}</p>`}
      ${isRunning && html`<${Progress} told=${search.told || grid.told} onCancel=${cancel} />`}<${Problem} message=${search.problem} />
      ${grid.problem !== search.problem && html`<${Problem} message=${grid.problem} />`}
      ${grid.answer && html`<h2>${t("fit.grid")}</h2><${Grid} document=${grid.answer.document} open=${open} /><${Command} line=${grid.answer.command} />`}
      ${search.answer && html`<h2>${t("fit.search")}</h2><${View} document=${search.answer.document} open=${open} /><${Command} line=${search.answer.command} />`}</div></div>`;
}

const powers = (most) => MOST.filter((each) => each <= most);
const common = (asked) => ({ engine: asked.engines, weights: asked.weights.join(","), kv: asked.kv.join(","), concurrency: asked.concurrency, ep: asked.ep ? "off,on" : "off", price: asked.prices.split("\n").map((each) => each.trim()).filter(Boolean), flags: asked.flags, exit_zero: true });

function fitAsk(asked) {
  const { source, devices, context, most, nodes, order } = asked;
  return { command: "fit", sources: [source], options: { devices, ...common(asked), context: String(context), max_devices: most, max_nodes: nodes, order, limit: SHOWN_ROWS } };
}

function sweepAsk(asked) {
  const { source, devices, contexts, most } = asked;
  const sizes = powers(Math.min(most, 8));
  return { command: "sweep", sources: [source], options: { device: devices, ...common(asked), concurrency: String(asked.concurrency), tp: sizes.join(","), pp: powers(Math.max(1, most / 8)).join(","), context: contexts.join(",") } };
}

/** About how many plans both questions make. */
function points(asked, known) {
  const devices = asked.devices.includes(ALL) ? known.devices.length : asked.devices.length;
  const each = devices * asked.engines.length * asked.weights.length * asked.kv.length * (asked.ep ? 2 : 1);
  const sizes = powers(asked.most);
  const ways = sizes.flatMap((tp) => sizes.filter((pp) => tp <= 8 && tp * pp <= asked.most)).length;
  return each * (ways + asked.contexts.length * powers(Math.min(asked.most, 8)).length);
}

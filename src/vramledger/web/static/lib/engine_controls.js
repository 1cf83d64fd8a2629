// Controls of a plan's question. Each shows what was given, else what the engine takes (`settings` of the last answer).
import { Fragment, html, useId, useState } from "vl/lib/dom";
import { Drop, Entry, Pick, Select, Slider, few } from "vl/lib/parts";
import { remember } from "vl/lib/plan_file";
import { mostOf, movedTo, ofDropped, optionOf, termsOf } from "vl/lib/plan_state";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/plan_controls";

addWords(words);

const CONTEXTS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024].map((each) => each * 1024);
const COUNTS = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];

/** `onChange` gets the whole new state. `before` is Drop's. */
export function ModelControls({ known, state, onChange, before }) {
  const own = state.source.startsWith("upload:") ? { names: state.names, bytes: state.bytes ?? 0 } : null;
  const options = [...known.models.map((each) => [`builtin:${each}`, each]), ...(own ? [[state.source, few(own.names)]] : [])];
  const take = (given) => {
    if (given) remember(given.source, given.files);
    onChange(given ? ofDropped(known, state, given) : { ...state, source: `builtin:${known.models[0]}`, names: [] });
  };
  return html`<${Select} label=${t("model")} value=${state.source} options=${options} onChange=${(source) => onChange({ ...state, source, names: source === state.source ? state.names : [] })} />
    <${Drop} label=${t("model.own")} held=${own} onFiles=${take} before=${before} multiple=${true} />`;
}

export function DeviceControl({ known, state, onChange }) {
  return html`<${Pick} label=${t("device")} value=${state.device} options=${known.devices.map((each) => each.name)} hint=${t("pc.device.hint")} onChange=${(device) => onChange({ ...state, device })} />`;
}

export function EngineControls({ known, state, newest, onChange }) {
  return html`<div class="pair"><${Select} label=${t("engine")} value=${state.engine} options=${known.engines.map((each) => each.name)} onChange=${(engine) => onChange(movedTo(known, state, engine))} />
    <${Entry} label=${t("pc.version")} value=${state.version} placeholder=${newest ?? ""} onChange=${(version) => onChange({ ...state, version })} /></div>`;
}

/** tp, pp, dp, ep as far as the engine has them. */
export function ParallelControls({ known, state, onChange }) {
  const terms = termsOf(known, state.engine);
  const set = (name, value) => onChange(given(state, name, value));
  const isSwitch = terms.ep && optionOf(known, state.engine, terms.ep).kind === "switch";
  return html`<fieldset class="parallel"><legend>${t("pc.parallel")}</legend><div class="row">
    ${["tp", "pp", "dp"].filter((role) => terms[role]).map((role) => html`<${Count} key=${role} label=${terms[role] === "gpus" ? "gpus" : role} value=${state.flags[terms[role]] ?? 1} onChange=${(value) => set(terms[role], value === 1 ? null : value)} />`)}
    ${terms.ep && (isSwitch
      ? html`<label class="switch"><span>ep</span><input type="checkbox" checked=${state.flags[terms.ep] === true} onChange=${(event) => set(terms.ep, event.target.checked || null)} /></label>`
      : html`<${Count} label="ep" value=${state.flags[terms.ep] ?? 1} onChange=${(value) => set(terms.ep, value === 1 ? null : value)} />`)}</div></fieldset>`;
}

/** Formats of the weights and of the KV cache. */
export function FormatControls({ known, state, onChange }) {
  const terms = termsOf(known, state.engine);
  const choices = terms.weights ? optionOf(known, state.engine, terms.weights).choices : [];
  const kv = terms.kv.length ? state.flags[terms.kv[0]] ?? "" : "";
  const listed = (values, value) => [["", t("pc.auto")], ...new Set([...values, ...(value ? [value] : [])])];
  const setKv = (value) => onChange(terms.kv.reduce((next, name) => given(next, name, value), state));
  const weights = state.flags[terms.weights] ?? "";
  return html`<div class="pair">
    ${terms.weights && html`<${Select} label=${t("pc.weights")} value=${weights} options=${listed(WEIGHTS[state.engine] ?? choices, weights)} onChange=${(value) => onChange(given(state, terms.weights, value))} />`}
    ${terms.kv.length > 0 && html`<${Select} label=${t("pc.kv")} value=${kv} options=${listed(terms.kv_formats, kv)} onChange=${setKv} />`}</div>`;
}

// What these engines make of a checkpoint while they load it; where a flag has choices of its own the catalogue has them.
const WEIGHTS = { vllm: ["fp8", "bitsandbytes"], sglang: ["fp8"], llamacpp: ["F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_XS", "Q3_K_M", "Q2_K"] };

/** Context, concurrency, sequences and the share of the device, as sliders. */
export function SizeControls({ known, state, settings, onChange }) {
  const terms = termsOf(known, state.engine);
  const slider = (name, label, more) => {
    const value = state.flags[name] ?? settings[name];
    return html`<${Slider} key=${name} label=${label} flag=${optionOf(known, state.engine, name).flag} value=${typeof value === "number" ? value : more.otherwise} onReset=${name in state.flags ? () => onChange(given(state, name, null)) : null}
      onChange=${(next) => onChange(given(state, name, next))} ...${more} />`;
  };
  return html`${slider(terms.context, t(state.engine === "llamacpp" ? "pc.contextOfAll" : "context"), { steps: CONTEXTS, otherwise: 131072 })}
    <${Slider} label=${t("concurrency")} flag="--concurrency" hint=${t("pc.concurrency.hint")} value=${state.concurrency} steps=${COUNTS} onChange=${(concurrency) => onChange({ ...state, concurrency: Math.round(concurrency) })} />
    ${terms.share && slider(terms.share, t("pc.share"), { min: 0.05, max: Math.min(1, mostOf(state.engine, "share")), step: 0.01, otherwise: 0.9 })}
    ${terms.sequences && slider(terms.sequences, t("pc.sequences"), { steps: COUNTS.filter((each) => each <= mostOf(state.engine, "sequences")), otherwise: 256 })}`;
}

/** Every flag of the engine, by group. */
export function FlagControls({ known, state, onChange }) {
  const options = known.engines.find((each) => each.name === state.engine).options.filter((each) => !UNSET.has(each.name));
  const groups = [...new Set(options.map((each) => each.group))];
  return html`<${Opened} title=${t("more")} note=${Object.keys(state.flags).length ? t("pc.given", { count: Object.keys(state.flags).length }) : ""}>
    ${() => groups.map((group) => {
      const own = options.filter((each) => each.group === group);
      const held = own.filter((each) => each.name in state.flags);
      return html`<${Opened} key=${group} title=${group} note=${held.map((each) => each.flag).join(" ")}>${() => own.map((option) => html`<${Flag} key=${option.name} option=${option} value=${state.flags[option.name]} onChange=${(value) => onChange(given(state, option.name, value))} />`)}<//>`;
    })}<//>`;
}

// These name files of the machine that runs the command; the page reads none.
const UNSET = new Set(["adapter", "lora", "mmproj"]);

function Flag({ option, value, onChange }) {
  if (option.kind === "switch") {
    const options = [["", t("pc.default")], ["on", t("pc.on")], ["off", t("pc.off")]];
    return html`<${Select} label=${option.flag} hint=${option.help} value=${value === undefined ? "" : value ? "on" : "off"} options=${options} onChange=${(text) => onChange(text === "" ? null : text === "on")} />`;
  }
  if (option.choices.length) {
    return html`<${Select} label=${option.flag} hint=${option.help} value=${value ?? ""} options=${[["", t("pc.default")], ...option.choices]} onChange=${(text) => onChange(text || null)} />`;
  }
  const isMany = Array.isArray(value) || option.kind.startsWith("names");
  return html`<${Entry} label=${option.flag} hint=${option.help} value=${isMany && value ? value.join(" ") : value} placeholder=${option.kind}
    onChange=${(text) => onChange(text === "" ? null : isMany ? text.split(/\s+/) : text)} />`;
}

function Opened({ title, note, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details open=${isOpen} onToggle=${(event) => event.target === event.currentTarget && setOpen(event.currentTarget.open)}><summary>${title}${note && html` <span class="dim">${note}</span>`}</summary>
    ${isOpen && html`<${Fragment}>${children()}<//>`}</details>`;
}

function Count({ label, value, onChange }) {
  const id = useId();
  return html`<div class="count"><label for=${id}>${label}</label><input id=${id} type="number" min="1" max="4096" step="1" value=${value}
    onInput=${(event) => Number.isInteger(event.target.valueAsNumber) && event.target.valueAsNumber > 0 && onChange(event.target.valueAsNumber)}
    onBlur=${(event) => { event.target.value = value; }} /></div>`;
}

/** The state with a flag set, or without it (null, ""). */
export function given(state, name, value) {
  const { [name]: _, ...others } = state.flags;
  return { ...state, flags: value === null || value === "" ? others : { ...others, [name]: value } };
}

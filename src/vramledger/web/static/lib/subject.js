// What is asked about: a built-in model, or files that were dropped; and lists of things to try.
import { html, useState } from "vl/lib/dom";
import { Drop, Field, Select } from "vl/lib/parts";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/subject";

addWords(words);

/** Tokens of context and requests at once that are offered where several plans are asked for together. */
export const CONTEXTS = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144];
export const AT_ONCE = [1, 2, 4, 8, 16, 32, 64, 128, 256];

const OWN = "own";

const LONGEST = 10_000;
const MOST = 200;

/** A state that came from outside, held against one that is whole: what is of another kind is left as it is there. */
export function fitting(usual, state) {
  const isText = (value) => typeof value === "string" && value.length <= LONGEST;
  const isLike = (value, other) => {
    if (Array.isArray(other)) return Array.isArray(value) && value.length <= MOST && value.every(isText);
    return typeof other === "string" ? isText(value) : typeof other === typeof value && (typeof value !== "number" || Number.isFinite(value));
  };
  const given = state && typeof state === "object" ? state : {};
  return Object.fromEntries(Object.entries(usual).map(([name, other]) => [name, isLike(given[name], other) ? given[name] : other]));
}

/** `state` has {source, names, bytes}: "builtin:NAME", or "upload:ID" with what was dropped; source is "" while nothing is. `onChange` gets those three. */
export function Subject({ known, state: value, onChange }) {
  const isOwn = !value.source.startsWith("builtin:");
  const held = value.source && value.names.length ? { names: value.names, bytes: value.bytes } : null;
  const take = (found) => onChange(found ? { source: found.source, names: found.names, bytes: found.bytes } : { source: "", names: [], bytes: 0 });
  return html`<${Select} label=${t("model")} value=${isOwn ? OWN : value.source} options=${[...known.models.map((name) => [`builtin:${name}`, name]), [OWN, t("model.drop")]]}
      onChange=${(source) => onChange({ source: source === OWN ? "" : source, names: [], bytes: 0 })} />
    ${isOwn && html`<${Drop} label=${t("model.own")} held=${held} multiple=${true} onFiles=${take} />`}`;
}

/** A list of words that is added to and taken from: `values`, with suggestions; `all`, where given, is [word, text] that stands for everything. What is
 * typed is a list with commas, unless a value may have some itself (`isWhole`). */
export function Chosen({ label, values, onChange, list, add, all, hint, isWhole = false }) {
  const [text, setText] = useState("");
  const take = (given) => {
    const found = (isWhole ? [given] : given.split(",")).map((each) => each.trim()).filter((each) => each && !values.includes(each));
    if (found.length) onChange([...values.filter((each) => each !== all?.[0]), ...found]);
    setText("");
  };
  return html`<fieldset class="chosen"><legend>${label}</legend>
    <ul>${values.map((each) => html`<li><span>${each === all?.[0] ? all[1] : each}</span><button type="button" class="plain" aria-label=${t("list.remove", { name: each })} onClick=${() => onChange(values.filter((other) => other !== each))}>×</button></li>`)}</ul>
    <${Field} label=${add} hint=${hint}>${(id) => html`<div class="adding"><input id=${id} type="text" list=${`${id}-list`} value=${text} autocomplete="off" spellcheck="false"
        onInput=${(event) => (isPicked(event) && list.includes(event.target.value) ? take(event.target.value) : setText(event.target.value))}
        onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); take(text); } }} />
      <button type="button" class="plain" onClick=${() => take(text)}>${t("list.add")}</button></div>
      <datalist id=${`${id}-list`}>${list.filter((each) => !values.includes(each)).map((each) => html`<option value=${each}></option>`)}</datalist>`}<//>
    ${all && !values.includes(all[0]) && html`<button type="button" class="plain" onClick=${() => onChange([all[0]])}>${all[1]}</button>`}
  </fieldset>`;
}

/** Whether a text came from the list, not from the keyboard: what is typed may go on ("vllm" on its way to "vllm==0.11.0"). */
const isPicked = ({ inputType }) => !inputType || inputType === "insertReplacementText";

/** Boxes of which any number is ticked, folded: `options` [value, text]. */
export function Ticked({ label, values, options, onChange, hint }) {
  const set = (name, on) => onChange(options.map(([each]) => each).filter((each) => (each === name ? on : values.includes(each))));
  return html`<details class="ticked"><summary>${label}: ${values.join(", ") || "—"}</summary><fieldset><legend class="hidden">${label}</legend>${options.map(([name, text]) => html`<label class="check"><input type="checkbox" checked=${values.includes(name)} onChange=${(event) => set(name, event.target.checked)} /> ${text}</label>`)}
    ${hint && html`<p class="hint">${hint}</p>`}</fieldset></details>`;
}

/** Flags that only one engine has: "ENGINE:FLAG=VALUE". */
export function OwnFlags({ values, onChange }) {
  return html`<${Chosen} label=${t("flags.own")} values=${values} list=${[]} add=${t("flags.add")} hint=${t("flags.hint")} isWhole=${true} onChange=${onChange} />`;
}

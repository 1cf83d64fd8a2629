// What is asked about: a built-in model, or files that were dropped; and lists of things to try.
import { html, useState } from "vl/lib/dom";
import { Drop, Field, Select } from "vl/lib/parts";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/subject";

addWords(words);

const OWN = "own";

/** value: {source: "builtin:NAME"} or {source: "upload:ID", names, bytes}; source is "" while nothing is dropped. */
export function Subject({ known, value, onChange }) {
  const isOwn = !value.source.startsWith("builtin:");
  return html`<${Select} label=${t("model")} value=${isOwn ? OWN : value.source} options=${[...known.models.map((name) => [`builtin:${name}`, name]), [OWN, t("model.drop")]]}
      onChange=${(source) => onChange({ source: source === OWN ? "" : source })} />
    ${isOwn && html`<${Drop} label=${t("model.own")} held=${value.source && value.names ? value : null} multiple=${true} onFiles=${(held) => onChange(held ?? { source: "" })} />`}`;
}

/** A list of words that is added to and taken from: `values`, with suggestions; `all`, where given, is a word that stands for everything. */
export function Chosen({ label, values, onChange, list, add, all, hint }) {
  const [text, setText] = useState("");
  const take = (given) => {
    const found = given.split(",").map((each) => each.trim()).filter((each) => each && !values.includes(each));
    if (found.length) onChange([...values.filter((each) => each !== all?.[0]), ...found]);
    setText("");
  };
  return html`<fieldset class="chosen"><legend>${label}</legend>
    <ul>${values.map((each) => html`<li><span>${each === all?.[0] ? all[1] : each}</span><button type="button" class="plain" aria-label=${t("list.remove", { name: each })} onClick=${() => onChange(values.filter((other) => other !== each))}>×</button></li>`)}</ul>
    <${Field} label=${add} hint=${hint}>${(id) => html`<div class="adding"><input id=${id} type="text" list=${`${id}-list`} value=${text} autocomplete="off" spellcheck="false"
        onInput=${(event) => (list.includes(event.target.value) ? take(event.target.value) : setText(event.target.value))}
        onKeyDown=${(event) => { if (event.key === "Enter") { event.preventDefault(); take(text); } }} />
      <button type="button" class="plain" onClick=${() => take(text)}>${t("list.add")}</button></div>
      <datalist id=${`${id}-list`}>${list.filter((each) => !values.includes(each)).map((each) => html`<option value=${each}></option>`)}</datalist>`}<//>
    ${all && !values.includes(all[0]) && html`<button type="button" class="plain" onClick=${() => onChange([all[0]])}>${all[1]}</button>`}
  </fieldset>`;
}

/** Boxes of which any number is ticked, folded: `options` [value, text]. */
export function Ticked({ label, values, options, onChange, hint }) {
  const set = (name, on) => onChange(options.map(([each]) => each).filter((each) => (each === name ? on : values.includes(each))));
  return html`<details class="ticked"><summary>${label}: ${values.join(", ") || "—"}</summary><fieldset><legend class="hidden">${label}</legend>${options.map(([name, text]) => html`<label class="check"><input type="checkbox" checked=${values.includes(name)} onChange=${(event) => set(name, event.target.checked)} /> ${text}</label>`)}
    ${hint && html`<p class="hint">${hint}</p>`}</fieldset></details>`;
}

// Parts that every tab is made of. All of them are the browser's own controls, with labels.
import { html, useEffect, useId, useRef, useState } from "vl/lib/dom";
import { bytes } from "vl/lib/units";
import { t } from "vl/lib/words";
import { isRefused, upload } from "vl/lib/api";

export function Field({ label, hint, children }) {
  const id = useId();
  return html`<div class="field"><label for=${id}>${label}</label>${children(id)}${hint && html`<p class="hint">${hint}</p>`}</div>`;
}

/** `options`: [value, text] or plain values. */
export function Select({ label, value, options, onChange, hint }) {
  return html`<${Field} label=${label} hint=${hint}>${(id) => html`<select id=${id} value=${value} onChange=${(event) => onChange(event.target.value)}>
    ${options.map((each) => {
      const [key, text] = Array.isArray(each) ? each : [each, each];
      return html`<option value=${key} selected=${key === value}>${text}</option>`;
    })}
  </select>`}<//>`;
}

/** What is being typed, until it is finished: a field keeps it while the page is drawn anew around it. Gives the attributes of the field. */
function useDraft(value, onDone) {
  const [draft, setDraft] = useState(null);
  const finish = (event) => {
    setDraft(null);
    onDone(event.target.value.trim());
  };
  return { value: draft ?? value, onInput: (event) => setDraft(event.target.value), onChange: finish };
}

/** A line of text that counts when it is finished (Enter, or leaving it); `list` are suggestions. */
export function Entry({ label, value, onChange, list, hint, placeholder, numeric = false }) {
  const suggestions = useId();
  const draft = useDraft(value ?? "", onChange);
  return html`<${Field} label=${label} hint=${hint}>${(id) => html`<input id=${id} type="text" inputmode=${numeric ? "decimal" : undefined} placeholder=${placeholder}
      list=${list && suggestions} autocomplete="off" spellcheck="false" ...${draft} />
    ${list && html`<datalist id=${suggestions}>${list.map((each) => html`<option value=${each}></option>`)}</datalist>`}`}<//>`;
}

/** One of a long list, searched by typing; what is not in the list is taken when it is finished. The list is whole as long as nothing is typed. */
export function Pick({ label, value, options, onChange, hint }) {
  const suggestions = useId();
  const [typed, setTyped] = useState(null);
  const take = (text) => {
    setTyped(null);
    if (text && text !== value) onChange(text);
  };
  return html`<${Field} label=${label} hint=${hint}>${(id) => html`<input id=${id} type="text" list=${suggestions} autocomplete="off" spellcheck="false"
      value=${typed ?? value} placeholder=${value} onFocus=${() => setTyped("")} onBlur=${(event) => take(event.target.value.trim())}
      onKeyDown=${(event) => event.key === "Enter" && take(event.target.value.trim())}
      onInput=${(event) => (options.includes(event.target.value) ? take(event.target.value) : setTyped(event.target.value))} />
    <datalist id=${suggestions}>${options.map((each) => html`<option value=${each}></option>`)}</datalist>`}<//>`;
}

/** A line of text; `list` are suggestions. */
export function Text({ label, value, onChange, list, hint, placeholder }) {
  const suggestions = useId();
  return html`<${Field} label=${label} hint=${hint}>${(id) => html`<input id=${id} type="text" value=${value ?? ""} placeholder=${placeholder}
      list=${list && suggestions} autocomplete="off" spellcheck="false" onInput=${(event) => onChange(event.target.value)} />
    ${list && html`<datalist id=${suggestions}>${list.map((each) => html`<option value=${each}></option>`)}</datalist>`}`}<//>`;
}

export function Check({ label, value, onChange }) {
  return html`<label class="check"><input type="checkbox" checked=${value} onChange=${(event) => onChange(event.target.checked)} /> ${label}</label>`;
}

/**
 * A slider with its number beside it, for exact values. `steps` are the values it stops at (a whole scale that is not even), else min, max, step.
 * `flag` is how a command line has it; `onReset`, where there is one, gives the value back to whoever has it as a default.
 */
export function Slider({ label, flag, value, onChange, onReset, steps, min = 1, max = 100, step = 1, shown = String, hint }) {
  const nearest = steps ? steps.reduce((best, each, place) => (Math.abs(each - value) < Math.abs(steps[best] - value) ? place : best), 0) : value;
  const least = steps ? steps[0] : min;
  const most = steps ? steps[steps.length - 1] : max;
  const take = (text) => {
    const found = Number(text);
    if (text !== "" && (steps ? Number.isSafeInteger(found) : Number.isFinite(found)) && found >= least) onChange(found);
  };
  const draft = useDraft(value, take);
  return html`<${Field} label=${flag ? html`${label} <code>${flag}</code>` : label} hint=${hint}>${(id) => html`<div class="slider">
    <input id=${id} type="range" min=${steps ? 0 : min} max=${steps ? steps.length - 1 : max} step=${steps ? 1 : step} value=${nearest}
      aria-valuetext=${shown(value)} onInput=${(event) => onChange(steps ? steps[Number(event.target.value)] : Number(event.target.value))} />
    <input type="number" min=${least} max=${steps ? most * 64 : most} step=${steps ? 1 : "any"} aria-label=${t("exactly", { name: label })} ...${draft} />
  </div>${onReset && html`<button type="button" class="reset" onClick=${onReset}>${t("reset")}</button>`}`}<//>`;
}

/**
 * A place to drop files, or to choose them. `onFiles` gets {source, names, bytes, files}; null when they are removed. `before(files, {told})` may deal with
 * files itself: where it resolves to true they are not sent.
 */
export function Drop({ label, held, onFiles, before, multiple = false, accept, hint }) {
  const [note, setNote] = useState("");
  const [isOver, setOver] = useState(false);
  const send = async (files) => {
    if (!files.length) return;
    const given = [...files];
    try {
      const told = (name) => setNote(t("dropping", { name }));
      if (!(await before?.(given, { told }))) onFiles({ ...(await upload(given, { told })), files: given });
      setNote("");
    } catch (problem) {
      setNote(t(problem.message));
    }
  };
  return html`<${Field} label=${label} hint=${hint}>${(id) => html`<div class=${`drop ${isOver ? "over" : ""}`}
      onDragOver=${(event) => { event.preventDefault(); setOver(true); }} onDragLeave=${() => setOver(false)}
      onDrop=${(event) => { event.preventDefault(); setOver(false); send(event.dataTransfer.files); }}>
    <input id=${id} type="file" multiple=${multiple} accept=${accept} onChange=${(event) => { send(event.target.files); event.target.value = ""; }} />
    ${held ? html`<p>${t("drop.keep", { names: few(held.names), size: bytes(held.bytes) })} <button type="button" class="plain" onClick=${() => onFiles(null)}>${t("remove")}</button></p>`
      : html`<p class="hint">${t("drop")}</p>`}
    <p role="status">${note}</p>
  </div>`}<//>`;
}

const SHOWN_NAMES = 3;

/** The first of many names. */
export const few = (names) => (names.length > SHOWN_NAMES + 1 ? `${names.slice(0, SHOWN_NAMES).join(", ")}, ${t("andMore", { count: names.length - SHOWN_NAMES })}` : names.join(", "));

export function Copy({ text, label }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return undefined;
    const later = setTimeout(() => setDone(false), 2000);
    return () => clearTimeout(later);
  }, [done]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Where no clipboard may be written (http to another machine) the old way still works.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setDone(true);
  };
  return html`<button type="button" class="plain" onClick=${copy}>${done ? t("copied") : label ?? t("copy")}<span class="hidden" role="status">${done ? t("copied") : ""}</span></button>`;
}

/** A command line to copy; `kind` is its class, "command" for the one of this project that gives what is shown. */
export function Command({ line, label, kind = "command" }) {
  return html`<section class=${kind} aria-label=${label ?? t("command")}><h3>${label ?? t("command")}</h3><pre tabindex="0"><code>${words(line)}</code></pre><${Copy} text=${line} /></section>`;
}

/** A line that is broken between words alone, not after the hyphens of a flag. */
const words = (line) => (line.includes("\n") ? line : line.split(" ").map((word, place) => html`${place > 0 && " "}<span class="word">${word}</span>`));

/** What kind of evidence a number has; opens the formula with its numbers and the source. What is not open is not made, there are many of these. */
export function Evidence({ evidence, interval, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`<details class=${`evidence ${evidence.kind}`} onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>${t(`evidence.${evidence.kind}`)}</summary>
    ${isOpen && html`<dl>${evidence.formula && html`<dt>${t("formula")}</dt><dd><code>${evidence.formula}</code></dd>`}
    <dt>${t("source")}</dt><dd>${evidence.source}</dd>
    ${interval && html`<dt>${t("low")} / ${t("expected")} / ${t("high")}</dt><dd>${[interval.low, interval.expected, interval.high].map((each) => each.toLocaleString("en-US")).join(" / ")} B</dd>`}</dl>
    ${children}`}
  </details>`;
}

/** A verdict of a plan with its conditions. */
export function Verdict({ verdict }) {
  const [word, tone] = verdict.holds === null ? ["verdict.untold", "unsure"] : verdict.holds ? ["verdict.holds", "good"] : ["verdict.fails", "bad"];
  const short = verdict.holds === false && verdict.shortfall_bytes ? `: ${t("verdict.short", { bytes: bytes(verdict.shortfall_bytes) })}` : "";
  const lists = [["conditions", verdict.conditions], ["remedies", verdict.remedies], ["missing", verdict.missing], ["assumed", verdict.assumed]];
  return html`<section class=${`verdict ${tone}`} aria-live="polite" aria-label=${t(word)}>
    <div class="word">${t(word)}${short}</div><p class="said">${verdict.summary}</p>
    ${lists.filter(([, items]) => items.length).map(([name, items]) => html`<details open=${name === "conditions" || name === "missing"}><summary>${t(name)} (${items.length})</summary><ul>${items.map((each) => html`<li>${each}</li>`)}</ul></details>`)}
  </section>`;
}

/** `columns`: names, or {name, number: true}; `rows`: arrays of text or elements. */
export function Table({ columns, rows, label }) {
  const shown = columns.map((each) => (typeof each === "string" ? { name: each } : each));
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table><thead><tr>${shown.map((each) => html`<th scope="col" class=${each.number ? "n" : ""}>${each.name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr>${row.map((cell, place) => (place === 0 ? html`<th scope="row">${cell}</th>` : html`<td class=${shown[place].number ? "n" : ""}>${cell}</td>`))}</tr>`)}</tbody></table></div>`;
}

/** Figures to be read at a glance: [name, value, small, tone]. `kind` is a class beside "facts". */
export function Facts({ items, label, kind = "close" }) {
  return html`<dl class=${`facts ${kind}`} aria-label=${label}>${items.filter(Boolean).map(([name, value, small, tone]) => html`<div class=${tone ?? ""} key=${name}><dt>${name}</dt>
    <dd class="value">${value}</dd>${small && html`<dd class="small">${small}</dd>`}</div>`)}</dl>`;
}

/** What went wrong, as the command said it. */
export function Problem({ message }) {
  return message ? html`<p class="problem" role="alert">${message === "lost" ? t("lost") : message}</p>` : null;
}

/** How far a long command is, with a way to end it. */
export function Progress({ told, onCancel }) {
  return html`<div class="progress"><progress aria-label=${t("working")}></progress><span role="status">${told || t("working")}</span>
    <button type="button" onClick=${onCancel}>${t("cancel")}</button></div>`;
}

/**
 * Runs quick asks one after the other, {answer, problem, start}: of those that come while one runs only the newest. None is ended, which would cost
 * more than its answer. An answer knows what was `asked`.
 */
export function useLive(run) {
  const [state, setState] = useState({ answer: null, problem: "" });
  const turn = useRef({ next: null, isBusy: false, isGone: false });
  useEffect(() => () => { turn.current.isGone = true; }, []);
  const start = async (ask) => {
    const own = turn.current;
    own.next = ask;
    if (own.isBusy) return;
    own.isBusy = true;
    while (own.next && !own.isGone) {
      const asked = own.next;
      own.next = null;
      let found;
      try {
        found = { answer: await run(asked) };
      } catch (problem) {
        found = { problem: problem.message };
      }
      const failed = !found.answer || isRefused(found.answer);
      setState((before) => ({ answer: failed ? before.answer : { ...found.answer, asked }, problem: failed ? found.problem ?? (found.answer.message || t("lost")) : "" }));
    }
    own.isBusy = false;
  };
  return { ...state, start };
}

/**
 * Runs asks one at a time, always the newest: {answer, problem, told, isRunning, start, cancel}. An ask that is superseded is ended.
 * `start(ask)` at once; what an older answer says stays shown until the next one is there.
 */
export function useRun(run) {
  const [state, setState] = useState({ answer: null, problem: "", told: "", isRunning: false });
  const ending = useRef(null);
  useEffect(() => () => ending.current?.abort(), []);
  const cancel = () => ending.current?.abort();
  const start = async (ask) => {
    ending.current?.abort();
    const own = new AbortController();
    ending.current = own;
    setState((before) => ({ ...before, isRunning: true, told: "", problem: "" }));
    try {
      const answer = await run(ask, { signal: own.signal, told: (told) => own === ending.current && setState((before) => ({ ...before, told })) });
      if (own !== ending.current) return null;
      const failed = isRefused(answer);
      setState((before) => ({ answer: failed ? before.answer : answer, problem: failed ? answer.message || t("lost") : "", told: "", isRunning: false }));
      return failed ? null : answer;
    } catch (problem) {
      if (own === ending.current) {
        setState((before) => ({ ...before, told: "", isRunning: false, problem: problem.name === "AbortError" ? t("cancelled") : problem.message }));
      }
      return null;
    }
  };
  return { ...state, start, cancel };
}

// Tab Diagnose: what failed, what the log says, who holds the allocator's memory, a plan against what was measured.
import { html, useEffect, useMemo, useState } from "vl/lib/dom";
import { run, upload } from "vl/lib/api";
import { sent, useEvidenceFiles, useTexts } from "vl/lib/evidencefiles";
import { Command, Drop, Field, Problem, Progress, Select, Text, useRun } from "vl/lib/parts";
import { writeAddress } from "vl/lib/state";
import { fitting } from "vl/lib/subject";
import { bytes } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import { View as Diagnosis } from "vl/views/diagnose";
import { View as Log } from "vl/views/log";
import { View as Reconciliation } from "vl/views/reconcile";
import { View as Snapshot } from "vl/views/snapshot";
import words from "vl/words/diagnose";

addWords(words);

// Recorded by this project; `model` and `device` are what the log does not tell.
const EXAMPLES = {
  failure: { log: ["llamacpp-unified-kv.txt", "llamacpp-unified-kv.log"] },
  plan: { log: ["sglang-cpu.txt", "sglang-cpu.log"], model: ["tiny-llama.txt", "config.json"], device: "cpu:24105MiB" },
};
const PARTS = ["failure", "log", "allocator", "plan"];
const FIRST = { part: "failure", model: "", device: "", engine: "", set: "", request: "", free: "", example: "" };
const DOCUMENTS = new Set(["plan", "measurement"]);
const LATER_MS = 350;

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  const [asked, setAsked] = useState(() => fitting(FIRST, state));
  const [files, change] = useEvidenceFiles();
  const [own, setOwn] = useState(null);
  const [problem, setProblem] = useState("");
  const settled = useLater(asked);
  const set = (more) => setAsked((before) => ({ ...before, ...more }));
  const add = async (dropped, { told }) => {
    const found = await sent(dropped, files.map((each) => each.name), told);
    change((before) => [...before, ...found]);
    set({ example: "", part: partFor(found, asked.part) });
    return true;
  };
  const example = async (name) => {
    const { log, model, device = "" } = EXAMPLES[name];
    try {
      const found = await sent([await shipped(...log)], []);
      if (model) setOwn(await upload([await shipped(...model)]));
      change(() => found);
      set({ example: name, part: name, device, model: "" });
    } catch (refused) {
      setProblem(t(refused.message));
    }
  };
  useEffect(() => { if (state?.example in EXAMPLES && files.length === 0) example(state.example); }, []);
  useEffect(() => { if (JSON.stringify(settled) !== JSON.stringify(FIRST) || state) writeAddress("diagnose", settled); }, [settled]);
  const [isWide] = useState(() => matchMedia("(min-width: 861px)").matches);
  const model = own ? own.source : asked.model ? `builtin:${asked.model}` : "";
  return html`<div class="split"><form class="controls" aria-label=${t("tab.diagnose")} onSubmit=${(event) => event.preventDefault()}>
      <${Drop} label=${t("files")} hint=${t("files.hint")} multiple before=${add} onFiles=${() => {}} />
      <${Held} files=${files} onRemove=${(gone) => { change((before) => before.filter((each) => each !== gone)); set({ example: "" }); }} />
      <p><button type="button" class="plain" onClick=${() => example("failure")}>${t("example")}</button> <span class="hint">${t("example.told")}</span></p>
      <details class="untold" open=${isWide || model !== "" || asked.device !== ""}><summary>${t("untold")}</summary>
      <${Select} label=${t("served")} value=${own ? "" : asked.model} options=${[["", t("model.none")], ...known.models]} onChange=${(chosen) => { setOwn(null); set({ model: chosen }); }} />
      <details open=${own !== null}><summary>${t("served.own")}</summary><${Drop} label=${t("model.own")} held=${own} multiple onFiles=${setOwn} /></details>
      <${Text} label=${t("device")} value=${asked.device} list=${known.devices.map((each) => each.name)} hint=${t("device.hint")} onChange=${(device) => set({ device })} />
      <${Select} label=${t("engine")} value=${asked.engine} options=${[["", t("engine.any")], ...known.engines.map((each) => each.name)]} onChange=${(engine) => set({ engine })} />
      <${Field} label=${t("settings.set")} hint=${t("settings.hint")}>${(id) => html`<textarea id=${id} rows="3" spellcheck="false" value=${asked.set} onInput=${(event) => set({ set: event.target.value })}></textarea>`}<//></details>
    </form>
    <div class="shown"><${Problem} message=${problem} />
      <${Parts} part=${asked.part} onChoose=${(part) => set({ part })} />
      <${Part} key=${asked.part} asked=${settled.part === asked.part ? settled : { ...settled, part: asked.part }} files=${files} model=${model} set=${set} now=${asked} onExample=${example} onKinds=${(kinds) => change((before) => before.map((each) => ({ ...each, kind: kinds.get(each.shown) ?? each.kind })))} />
    </div></div>`;
}

/** A file of the package as if it had been dropped. */
const shipped = async (file, name) => new File([await (await fetch(`/static/examples/${file}`)).blob()], name);

/** Where what was dropped is shown first. */
function partFor(found, before) {
  if (found.some((each) => each.kind === "log")) return before === "plan" || before === "log" ? before : "failure";
  if (found.every((each) => DOCUMENTS.has(each.kind))) return "plan";
  return found.some((each) => each.kind === "snapshot") ? "allocator" : before;
}

function Held({ files, onRemove }) {
  if (files.length === 0) return null;
  return html`<ul class="held" aria-label=${t("files.held")}>${files.map((each) => html`<li key=${each.source}><span><b>${each.name}</b> <span class="dim">${t(`files.kind.${each.kind}`)}, ${bytes(each.size)}</span></span>
    <button type="button" class="plain" aria-label=${t("files.remove", { name: each.name })} onClick=${() => onRemove(each)}>${t("remove")}</button></li>`)}</ul>`;
}

function Parts({ part, onChoose }) {
  return html`<div class="parts" role="group" aria-label=${t("part.label")}>${PARTS.map((each) => html`<button type="button" class="plain" aria-pressed=${each === part} onClick=${() => onChoose(each)}>${t(`part.${each}`)}</button>`)}</div>`;
}

// Without the names that every object has.
const SHOWN = { __proto__: null, failure: Failure, log: LogPart, allocator: Allocator, plan: Against };

function Part({ asked, ...more }) {
  return html`<${SHOWN[asked.part] ?? Failure} asked=${asked} ...${more} />`;
}

function Failure({ asked, files, model, onExample, onKinds }) {
  const evidence = files.filter((each) => !DOCUMENTS.has(each.kind));
  const texts = useTexts(evidence.filter((each) => each.kind === "log"));
  const ask = evidence.length > 0 && {
    command: "diagnose", sources: evidence.map((each) => each.source),
    options: { device: asked.device, engine: asked.engine, settings: lines(asked.set) }, files: model ? { model } : {},
  };
  if (!ask) return html`<h1>${t("empty.title")}</h1><p>${t("empty.told")}</p><p>${t("empty.more")}</p><p><button type="button" onClick=${() => onExample("failure")}>${t("example")}</button></p>`;
  const learn = ({ document }) => onKinds(new Map(document.sources?.map((each) => [each.name, each.kind])));
  return html`<${Answered} ask=${ask} onAnswer=${learn}>${(document) => html`<${Diagnosis} document=${document} texts=${texts} />`}<//>`;
}

function LogPart({ asked, files }) {
  const logs = files.filter((each) => each.kind === "log");
  const [file, choice] = useChoice(logs);
  const texts = useTexts(logs);
  if (!file) return html`<p>${t("empty.log")}</p>`;
  return html`${choice}<${Answered} ask=${{ command: "log", sources: [file.source], options: { engine: asked.engine }, files: {} }}>${(document) => html`<${Log} document=${document} texts=${texts} />`}<//>`;
}

function Allocator({ asked, files, now, set }) {
  const [file, choice] = useChoice(files.filter((each) => each.kind === "snapshot"));
  if (!file) return html`<p>${t("empty.snapshot")}</p>`;
  const options = { request: asked.request, device_free: asked.request ? asked.free : "", blocks: true };
  return html`${choice}<div class="beside"><${Text} label=${t("request.label")} value=${now.request} placeholder=${t("request.hint")} onChange=${(request) => set({ request })} />
      <${Text} label=${t("free.label")} hint=${t("free.hint")} value=${now.free} placeholder="120MiB" onChange=${(free) => set({ free })} /></div>
    <${Answered} ask=${{ command: "snapshot", sources: [file.source], options, files: {} }}>${(document) => html`<${Snapshot} document=${document} />`}<//>`;
}

function Against({ asked, files, model, onExample }) {
  const of = (kind) => files.filter((each) => each.kind === kind);
  const plan = of("plan").at(-1);
  const measurement = of("measurement").at(-1);
  const logs = measurement ? [] : of("log");
  const isWhole = (measurement || logs.length > 0) && (plan || model);
  if (!isWhole) return html`<p>${t("empty.plan")}</p><p><button type="button" onClick=${() => onExample("plan")}>${t("example")}</button> <span class="hint">${t("example.plan.told")}</span></p>`;
  const ask = {
    command: "reconcile", sources: [plan, measurement].filter(Boolean).map((each) => each.source),
    options: { ...(plan ? {} : { device: asked.device, engine: asked.engine, ...flags(asked.set) }) },
    files: { ...(logs.length > 0 ? { logs: logs.map((each) => each.source) } : {}), ...(model ? { model } : {}) },
  };
  return html`<${Answered} ask=${ask}>${(document) => html`<${Reconciliation} document=${document} />`}<//>`;
}

/** What a command answers to `ask`, shown by its child; the same question is asked once. */
function Answered({ ask, children, onAnswer }) {
  const { answer, problem, told, isRunning, start, cancel } = useRun(asking);
  const key = JSON.stringify(ask);
  const [shown, setShown] = useState("");
  useEffect(() => { start(ask).then((found) => {
    if (!found) return;
    setShown(key);
    onAnswer?.(found);
  }); }, [key]);
  return html`<div class="answered" data-shown=${shown === key && !isRunning ? "now" : "before"}>
    <${Problem} message=${problem} />${isRunning && html`<${Progress} told=${told} onCancel=${cancel} />`}
    ${answer && html`${children(answer.document)}<${Command} line=${answer.command} />`}</div>`;
}

const answers = new Map();
const MOST_ANSWERS = 12;

async function asking(ask, how) {
  const key = JSON.stringify(ask);
  const answer = answers.get(key) ?? await run(ask, how);
  if (answer.document !== null) answers.set(key, answer);
  if (answers.size > MOST_ANSWERS) answers.delete(answers.keys().next().value);
  return answer;
}

/** One of several files: [the file, a control to choose where there are more]. */
function useChoice(files) {
  const [source, choose] = useState("");
  const file = files.find((each) => each.source === source) ?? files[0];
  const control = files.length > 1 ? html`<div class="narrow"><${Select} label=${t("which")} value=${file.source} options=${files.map((each) => [each.source, each.name])} onChange=${choose} /></div>` : null;
  return [file, control];
}

function useLater(value) {
  const [settled, settle] = useState(value);
  const key = useMemo(() => JSON.stringify(value), [value]);
  useEffect(() => {
    const later = setTimeout(() => settle(value), LATER_MS);
    return () => clearTimeout(later);
  }, [key]);
  return settled;
}

const lines = (text) => text.split("\n").map((each) => each.trim()).filter((each) => /^[^=]+=/.test(each));

/** NAME=VALUE lines as options of the engine. */
function flags(text) {
  return Object.fromEntries(lines(text).map((line) => {
    const [, name, value] = /^([^=]+)=(.*)$/s.exec(line);
    const told = value.trim();
    return [name.trim().replace(/^-+/, "").replace(/-/g, "_"), told === "true" ? true : told === "false" ? false : told];
  }));
}

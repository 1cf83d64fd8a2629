// Tab Compare: engines and versions on one question, plans that were made before, or two releases.
import { useAsked } from "vl/lib/asked";
import { run, upload } from "vl/lib/api";
import { html, useEffect, useRef, useState } from "vl/lib/dom";
import { forget, useKept } from "vl/lib/kept";
import { openPlan } from "vl/lib/open_plan";
import { Check, Command, Drop, Pick, Problem, Progress, Select, Slider, useRun } from "vl/lib/parts";
import { planNames } from "vl/lib/plan_names";
import { builtin } from "vl/lib/plan_state";
import { AT_ONCE, CONTEXTS, Chosen, fitting, OwnFlags, Subject } from "vl/lib/subject";
import { count } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import { View } from "vl/views/compare";
import { View as Diff } from "vl/views/diff";
import words from "vl/words/compare";

addWords(words);

const SIZES = [1, 2, 4, 8];
const SETTLED_MS = 250;

const first = (known) => ({
  way: "engines", source: builtin(known, "Llama-3.1-8B-Instruct"), names: [], bytes: 0,
  device: "H100 SXM 80GB", engines: known.engines.map((each) => each.name), tp: 1, pp: 1, ep: false, context: 8192, concurrency: 1, kv: "auto", flags: [],
});

const WAYS = new Map(Object.entries({ engines: Engines, plans: Plans, releases: Releases }));

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  const [asked, setAsked] = useAsked("compare", state, { read: (found) => fitting(first(known), found), first: () => first(known) });
  const kept = useKept();
  const set = (more) => setAsked((before) => ({ ...before, ...more }));
  useEffect(() => {
    if (!state && kept.length > 1) set({ way: "plans" });
  }, []);
  const Way = WAYS.get(asked.way) ?? Engines;
  const choice = html`<${Select} label=${t("compare.ways")} value=${asked.way} options=${["engines", "plans", "releases"].map((way) => [way, t(`compare.${way}`)])} onChange=${(way) => set({ way })} />`;
  return html`<h1 class="hidden">${t("tab.compare")}</h1><${Way} known=${known} asked=${asked} set=${set} kept=${kept} choice=${choice} />`;
}

function Engines({ known, asked, set, choice }) {
  const { answer, problem, isRunning, told, start, cancel } = useRun(run);
  useEffect(() => {
    if (!asked.source) return undefined;
    const { device, engines, tp, pp, ep, context, concurrency, kv, flags } = asked;
    const later = setTimeout(() => start({ command: "compare", sources: [asked.source], options: { device, engine: engines, tp, pp, ep, context: String(context), concurrency, kv, flags, exit_zero: true } }), SETTLED_MS);
    return () => clearTimeout(later);
  }, [asked]);
  const open = (column) => openPlan({ source: asked.source, names: asked.names, device: asked.device, engine: column.engine, flags: column.flags, concurrency: asked.concurrency });
  return html`<div class="split"><form class="controls" aria-label=${t("tab.compare")} onSubmit=${(event) => event.preventDefault()}>${choice}
      <${Subject} known=${known} state=${asked} onChange=${set} />
      <${Pick} label=${t("device")} value=${asked.device} options=${known.devices.map((each) => each.name)} onChange=${(device) => set({ device })} />
      <${Chosen} label=${t("compare.versions")} values=${asked.engines} list=${known.engines.map((each) => each.name)} add=${t("compare.version.add")} hint=${t("compare.version.hint")} onChange=${(engines) => set({ engines })} />
      <${Slider} label=${t("context")} value=${asked.context} steps=${CONTEXTS} shown=${count} onChange=${(context) => set({ context })} />
      <${Slider} label=${t("concurrency")} value=${asked.concurrency} steps=${AT_ONCE} onChange=${(concurrency) => set({ concurrency })} />
      <${Select} label=${t("compare.kv")} value=${asked.kv} options=${known.kv.map((each) => each.name)} onChange=${(kv) => set({ kv })} />
      <${Select} label=${t("compare.tp")} value=${String(asked.tp)} options=${SIZES.map(String)} onChange=${(tp) => set({ tp: Number(tp) })} />
      <${Select} label=${t("compare.pp")} value=${String(asked.pp)} options=${SIZES.map(String)} onChange=${(pp) => set({ pp: Number(pp) })} />
      <${Check} label=${t("compare.ep")} value=${asked.ep} onChange=${(ep) => set({ ep })} />
      <details><summary>${t("more")}</summary><${OwnFlags} values=${asked.flags} onChange=${(flags) => set({ flags })} /></details>
    </form><${Shown} answer=${answer} problem=${problem} isRunning=${isRunning} told=${told} cancel=${cancel} View=${View} open=${open} /></div>`;
}

function Plans({ kept, choice }) {
  const [dropped, setDropped] = useState([]);
  const { answer, problem, isRunning, told, start, cancel } = useRun(run);
  const sent = useRef(new Map());
  const files = planNames(kept.map((item) => item.answer.command));
  const all = [...kept.map((item, place) => ({ ...item, isKept: true, file: files[place] })), ...dropped];
  useEffect(() => {
    if (all.length < 2) return;
    (async () => {
      const sources = [];
      for (const item of all) {
        if (item.source) sources.push(item.source);
        else {
          const text = JSON.stringify(item.answer.document);
          const key = item.file + text;
          if (!sent.current.has(key)) sent.current.set(key, (await upload([new File([text], `${item.file}.json`)])).source);
          sources.push(sent.current.get(key));
        }
      }
      start({ command: "compare", sources, options: { exit_zero: true } });
    })();
  }, [kept, dropped]);
  /** Each file is a plan of its own. */
  const add = async (files) => {
    for (const file of files) {
      const found = await upload([file]);
      setDropped((before) => [...before, found]);
    }
    return true;
  };
  return html`<div class="split"><form class="controls" aria-label=${t("tab.compare")} onSubmit=${(event) => event.preventDefault()}>${choice}
      <fieldset class="chosen"><legend>${t("compare.taken")}</legend>${all.length === 0 && html`<p class="hint">${t("compare.kept.none")}</p>`}
        <ul>${all.map((item) => html`<li title=${item.name}><span>${item.file ?? item.names.join(", ")}</span><button type="button" class="plain" aria-label=${t("list.remove", { name: item.file ?? item.names[0] })}
          onClick=${() => (item.isKept ? forget(item.name) : setDropped(dropped.filter((each) => each !== item)))}>×</button></li>`)}</ul></fieldset>
      <${Drop} label=${t("compare.files")} held=${null} accept=".json" multiple=${true} before=${add} onFiles=${() => {}} />
    </form><${Shown} answer=${all.length < 2 ? null : answer} problem=${problem} isRunning=${isRunning} told=${told} cancel=${cancel} View=${View}
        before=${all.length < 2 && html`<p>${t("compare.two", { count: all.length })}</p>`}>
      ${kept.length > 0 && html`<section class="command" aria-label=${t("compare.made")}><h3>${t("compare.made")}</h3><pre tabindex="0"><code>${kept.map((item, place) => `${item.answer.command} --json > ${files[place]}.json`).join("\n")}</code></pre></section>`}<//></div>`;
}

function Releases({ choice }) {
  const [sides, setSides] = useState({ before: null, after: null, limits: [] });
  // Files arrive when they were sent, whatever else was changed meanwhile.
  const set = (more) => setSides((now) => ({ ...now, ...more }));
  const { answer, problem, isRunning, told, start, cancel } = useRun(run);
  useEffect(() => {
    if (sides.before && sides.after) start({ command: "diff", sources: [sides.before.source, sides.after.source], options: { expressions: sides.limits } });
  }, [sides]);
  /** Two files at once are both sides, in the order of their names. */
  const both = async (files) => {
    if (files.length !== 2) return false;
    const [before, after] = [...files].sort((one, other) => (one.name < other.name ? -1 : 1));
    set({ before: await upload([before]), after: await upload([after]) });
    return true;
  };
  const isWhole = sides.before && sides.after;
  return html`<div class="split"><form class="controls" aria-label=${t("tab.compare")} onSubmit=${(event) => event.preventDefault()}>${choice}
      <${Drop} label=${t("compare.before")} held=${sides.before} accept=".json" multiple=${true} before=${both} onFiles=${(before) => set({ before })} />
      <${Drop} label=${t("compare.after")} held=${sides.after} accept=".json" multiple=${true} before=${both} onFiles=${(after) => set({ after })} />
      <${Chosen} label=${t("diff.thresholds")} values=${sides.limits} list=${[]} add=${t("diff.threshold.add")} hint=${t("diff.threshold.hint")} isWhole=${true} onChange=${(limits) => set({ limits })} />
    </form><${Shown} answer=${isWhole ? answer : null} problem=${problem} isRunning=${isRunning} told=${told} cancel=${cancel} View=${Diff} before=${!isWhole && html`<p>${t("compare.release.none")}</p>`} /></div>`;
}

function Shown({ answer, problem, isRunning, told, cancel, View: Own, open, before, children }) {
  return html`<div class="shown" aria-busy=${isRunning}>${before}<${Problem} message=${problem} />${isRunning && !answer && html`<${Progress} told=${told} onCancel=${cancel} />`}
    ${answer && html`<${Own} document=${answer.document} open=${open} /><${Command} line=${answer.command} />`}${children}</div>`;
}

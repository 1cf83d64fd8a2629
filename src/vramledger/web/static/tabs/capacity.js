import { html, useEffect, useRef, useState } from "vl/lib/dom";
import { isRefused, run } from "vl/lib/api";
import { useAsked } from "vl/lib/asked";
import { Command, Facts, Problem, Progress, useRun } from "vl/lib/parts";
import { addressOf } from "vl/lib/state";
import { count, number, seconds } from "vl/lib/units";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/capacity";
import { share } from "vl/lib/load";
import { Controls, policyName } from "vl/lib/load_controls";
import { changed, cleaned, loadAsk, missing, workloadAsk } from "vl/lib/load_ask";
import { View as Simulated } from "vl/views/simulate";
import { View as Found } from "vl/views/capacity";
import { View as Policies } from "vl/views/policies";

addWords(words);

const OPTIONS = { admission: "admission", tool_wait: "tool_wait", scheduling: "scheduling", router: "router" };
const SETTLED_MS = 600;

// What was dropped, for who comes back from another tab.
let heldBefore = {};

// Without the names that every object has.
const WAYS = { __proto__: null, simulate: Simulate, capacity: Search, policies: Compare };

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  const [asked, setAsked] = useAsked("capacity", state, { read: (found) => cleaned(known, found), first: () => cleaned(known, null), inAddress: (now) => changed(known, now) });
  const [held, setHeld] = useState(heldBefore);
  const [settings, setSettings] = useState(null);
  useEffect(() => {
    heldBefore = held;
  }, [held]);
  const set = (more) => setAsked((before) => ({ ...before, ...more }));
  const lacks = missing(asked, held);
  const Shown = WAYS[asked.what] ?? Simulate;
  return html`<h1 class="hidden">${t("tab.capacity")}</h1><div class="split"><form class="controls" aria-label=${t("tab.capacity")} onSubmit=${(event) => event.preventDefault()}>
      <${Controls} asked=${asked} set=${set} known=${known} held=${held} hold=${(more) => setHeld((before) => ({ ...before, ...more }))} settings=${settings} /></form>
    <div class="shown"><${Shown} key=${asked.what} asked=${asked} known=${known} held=${held} lacks=${lacks} onConditions=${setSettings} />
      <${PlanLink} plan=${asked.plan} />${(asked.workload || held.workload) && html`<${About} asked=${asked} known=${known} held=${held} />`}</div></div>`;
}

/** The same plan in its own tab. */
function PlanLink({ plan }) {
  const [address, setAddress] = useState("");
  useEffect(() => {
    addressOf("plan", plan).then(setAddress);
  }, [plan]);
  return html`<p><a href=${address}>${t("cap.plan.link")}</a></p>`;
}

/** What was asked before the answer shown; a button to run what is asked now. */
function Bar({ lacks, hint, isStale, isRunning, told, problem, onRun, onCancel }) {
  return html`<${Problem} message=${problem} />
    ${isRunning ? html`<${Progress} told=${told} onCancel=${onCancel} />`
      : html`<div class="progress"><button type="button" disabled=${Boolean(lacks)} onClick=${onRun}>${t("run")}</button>
        <span role="status" class=${isStale && !lacks ? "stale" : "dim"}>${lacks ? t(lacks) : isStale ? t("cap.stale") : hint ?? ""}</span></div>`}`;
}

/** One command on what is asked now: {ask, key, done, answer, go} and `bar` for Bar; `done` is the key of what was run last. */
function useCommand(command, { asked, known, held, lacks, onConditions }) {
  const { answer, problem, told, isRunning, start, cancel } = useRun(run);
  const ask = lacks ? null : loadAsk(command, asked, known, held);
  const key = JSON.stringify(ask);
  const [done, setDone] = useState("");
  const go = async () => {
    setDone(key);
    const found = await start(ask);
    if (found) onConditions(found.document.conditions);
  };
  return { ask, key, done, answer, go, bar: { lacks, isStale: answer && key !== done, isRunning, told, problem, onRun: go, onCancel: cancel } };
}

function Simulate(own) {
  const { ask, key, done, answer, go, bar } = useCommand("simulate", own);
  useEffect(() => {
    if (ask === null || key === done) return undefined;
    const later = setTimeout(go, done ? SETTLED_MS : 0);
    return () => clearTimeout(later);
  }, [key]);
  return html`<${Bar} ...${bar} />
    ${answer && html`<div aria-busy=${bar.isRunning}><${Simulated} document=${answer.document} /></div><${Command} line=${answer.command} />`}`;
}

function Search(own) {
  const { answer, bar } = useCommand("capacity", own);
  return html`<${Bar} ...${bar} hint=${!answer && t("cap.first")} />
    ${answer && html`<div aria-busy=${bar.isRunning}><${Found} document=${answer.document} /></div><${Command} line=${answer.command} />`}`;
}

/** One simulation after the other, a policy each; what is done stays shown. */
function Compare({ asked, known, held, lacks }) {
  const [state, setState] = useState({ runs: [], told: "", isRunning: false, problem: "" });
  const ending = useRef(null);
  useEffect(() => () => ending.current?.abort(), []);
  const asks = lacks ? [] : asked.policies.map((each) => ({ name: policyName(each), ask: loadAsk("simulate", { ...asked, admission: "", compare: false }, known, held, { [OPTIONS[asked.by]]: each }) }));
  const key = JSON.stringify(asks.map((each) => each.ask));
  const [done, setDone] = useState("");
  const go = async () => {
    const own = new AbortController();
    ending.current = own;
    setDone(key);
    const runs = [];
    let problem = "";
    for (const [place, each] of asks.entries()) {
      const about = t("cap.running", { place: place + 1, all: asks.length, name: each.name });
      setState({ runs: [...runs], told: about, isRunning: true, problem: "" });
      try {
        const answer = await run(each.ask, { signal: own.signal, told: (told) => setState((before) => ({ ...before, told: `${about}: ${told}` })) });
        const failed = isRefused(answer);
        runs.push({ name: each.name, command: answer.command, document: failed ? null : answer.document, problem: failed ? answer.message || t("load.not_run") : "" });
      } catch (found) {
        problem = found.name === "AbortError" ? t("cancelled") : found.message;
        break;
      }
    }
    if (ending.current === own) setState({ runs, told: "", isRunning: false, problem });
  };
  const { runs, told, isRunning, problem } = state;
  return html`<${Bar} lacks=${lacks} hint=${!runs.length && t("cap.first.policies")} isStale=${runs.length > 0 && key !== done} isRunning=${isRunning} told=${told} problem=${problem} onRun=${go} onCancel=${() => ending.current?.abort()} />
    ${runs.length > 0 && html`<${Policies} runs=${runs} /><${Command} line=${runs.map((each) => each.command).join("\n")} />`}`;
}

/** Rate, lengths and what is shared, as \`vramledger workload\` tells them. */
function About({ asked, known, held }) {
  const { answer, problem, start } = useRun(run);
  const ask = workloadAsk(asked, known, held);
  const key = JSON.stringify(ask);
  useEffect(() => {
    const later = setTimeout(() => start(ask), SETTLED_MS);
    return () => clearTimeout(later);
  }, [key]);
  if (problem) return html`<section aria-label=${t("cap.about.workload")}><h2>${t("cap.about.workload")}</h2><${Problem} message=${problem} /></section>`;
  if (!answer) return null;
  const found = answer.document.workloads[0];
  const spread = (values) => t("cap.p95", { p95: count(values.p95), max: count(values.max) });
  return html`<section aria-label=${t("cap.about.workload")}><h2>${t("cap.about.workload")}</h2><${Facts} label=${t("cap.about.workload")} items=${[
    [t("cap.requests.n"), count(found.requests), t("cap.span", { time: seconds(found.span_ns / 1e9) })],
    found.rate_per_s !== null && [t("cap.arrivals"), `${number(found.rate_per_s)}/s`, found.arrival_cv !== null && t("cap.cv", { cv: number(found.arrival_cv), times: number(found.busiest_minute ?? 1) })],
    [t("cap.prompt"), `p50 ${count(found.prompt_tokens.p50)}`, spread(found.prompt_tokens)], [t("cap.output"), `p50 ${count(found.output_tokens.p50)}`, spread(found.output_tokens)],
    [t("cap.reuse"), found.reuse ? share(found.reuse.reusable_share) : "–", found.reuse ? t("cap.reuse.said") : t("cap.unknown")],
    [t("cap.turns"), found.conversations ? count(found.conversations) : t("cap.none"), found.conversations > 0 && t("cap.turns.said", { n: count(found.longest_conversation), following: count(found.following) })],
  ]} />${found.notes.length > 0 && html`<ul class="dim">${found.notes.map((each) => html`<li>${each}</li>`)}</ul>`}<${Command} line=${answer.command} /></section>`;
}
